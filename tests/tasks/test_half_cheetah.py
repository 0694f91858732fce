"""SparseHalfCheetah: where the reward switches, what is observed, how an episode begins and ends."""

from __future__ import annotations

import gymnasium
import mujoco
import numpy as np
import pytest

from ex2.tasks import half_cheetah, make_vector_env

task = half_cheetah.SparseHalfCheetah()


def with_centre_at(x: float) -> np.ndarray:
    """A state whose centre of mass is at x."""
    state = task.initial_state(np.random.default_rng(0))[None]
    state[:, 1] += x - task.centre_of_mass(state)[:, 0]
    return state


@pytest.mark.parametrize("side", [-1, 1])
def test_the_reward_switches_at_five_metres_either_way(side):
    assert task.arrive(with_centre_at(side * 4.9999))[1].tolist() == [0.0]
    assert task.arrive(with_centre_at(side * 5.0001))[1].tolist() == [1.0]
    assert not task.arrive(with_centre_at(side * 6.0))[2].any()


def test_it_is_the_centre_of_mass_that_counts():
    """Not the torso, which is the root's x."""
    state = with_centre_at(5.0001)
    assert abs(state[0, 1] - 5.0001) > 0.02
    assert task.arrive(state)[1].tolist() == [1.0]


def test_the_observation():
    random = np.random.default_rng(1)
    states = np.concatenate([[task.initial_state(random)], [task.initial_state(random)]])
    states[:, 1:10] += random.normal(size=(2, 9))
    observation = task.observation(states)
    assert observation.shape == (2, 20)
    data = mujoco.MjData(task.model)
    for state, row in zip(states, observation, strict=True):
        data.qpos[:], data.qvel[:] = state[1:10], state[10:]
        mujoco.mj_forward(task.model, data)
        assert row == pytest.approx(np.concatenate([data.qpos[1:], data.qvel, data.subtree_com[1]]), abs=1e-5)


def test_one_physics_step_of_a_hundredth_of_a_second():
    env = make_vector_env("cheetah", 1)
    env.reset(seed=0)
    env.step(env.action_space.sample())
    assert env.unwrapped._states[0, 0] == pytest.approx(0.01)
    other = gymnasium.make_vec("ex2/SparseHalfCheetah5Steps-v0", num_envs=1, vectorization_mode="vector_entry_point")
    other.reset(seed=0)
    other.step(other.action_space.sample())
    assert other.unwrapped._states[0, 0] == pytest.approx(0.05)


def test_the_body_is_gymnasiums():
    """The total mass is set by hand, since MuJoCo drops the attribute that did."""
    assert task.model.body_subtreemass[0] == pytest.approx(14.0)
    assert (task.model.nq, task.model.nv, task.model.nu, task.model.opt.timestep) == (9, 9, 6, 0.01)


def test_an_episode_lasts_500_steps_and_is_truncated():
    env = make_vector_env("cheetah", 2)
    env.reset(seed=0)
    for step in range(500):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        assert truncated.all() == (step == 499)
        assert not terminated.any()
