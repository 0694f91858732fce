"""What every registered task must do, alone and in a batch. A new task is covered by being registered."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from ex2 import TASKS, make_vector_env

pytestmark = pytest.mark.parametrize("name", TASKS)


def play(env, actions, seed):
    """Observations, rewards and ends of a vector environment under given actions."""
    observation, _ = env.reset(seed=seed)
    seen = [observation]
    rewards, ends = [], []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(observation)
        rewards.append(reward)
        ends.append(terminated | truncated)
    return np.stack(seen), np.stack(rewards), np.stack(ends)


def random_actions(env, steps, seed=0):
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(steps)]


def test_the_checkers_pass(name):
    env = gymnasium.make(TASKS[name].env_id)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*render_modes.*|.*render_fps.*|.*No render modes.*")
        check_env(env.unwrapped, skip_render_check=True)
        sb3_check_env(env)


def test_seeds_reproduce_and_differ(name):
    one, two = make_vector_env(name, 3), make_vector_env(name, 3)
    actions = random_actions(one, 250)
    first, again, other = play(one, actions, 5), play(two, actions, 5), play(two, actions, 6)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0][0, 0], first[0][0, 1])


def test_a_batch_gives_what_single_environments_give(name):
    """Over more than one episode, bit for bit, resets included."""
    vector = make_vector_env(name, 3)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    actions = random_actions(vector, TASKS[name].episode_steps + 50)
    together, rewards, ends = play(vector, actions, 11)
    for index in range(3):
        env = gymnasium.make(TASKS[name].env_id)
        observation, _ = env.reset(seed=11 + index)
        for step, action in enumerate(actions):
            assert np.array_equal(observation, together[step, index])
            observation, reward, terminated, truncated, _ = env.step(action[index])
            assert reward == rewards[step, index]
            assert (terminated or truncated) == ends[step, index]
            if terminated or truncated:
                observation, _ = env.reset()


def test_threads_change_nothing(name):
    one, two = make_vector_env(name, 16, threads=1), make_vector_env(name, 16, threads=2)
    actions = random_actions(one, 60)
    assert all(np.array_equal(a, b) for a, b in zip(play(one, actions, 3), play(two, actions, 3), strict=True))


def test_2_the_last_observation_is_handed_over(name):
    vector = make_vector_env(name, 2)
    vector.reset(seed=0)
    single = gymnasium.make(TASKS[name].env_id)
    single.reset(seed=0)
    for action in random_actions(vector, TASKS[name].episode_steps):
        _, _, terminated, truncated, infos = vector.step(action)
        last, *_ = single.step(action[0])
        if (terminated | truncated).any():
            break
    assert infos["_final_obs"].tolist() == (terminated | truncated).tolist()
    assert np.array_equal(infos["final_obs"][0], last)


def test_saved_and_restored_exactly(name):
    one, two = make_vector_env(name, 3), make_vector_env(name, 3)
    actions = random_actions(one, TASKS[name].episode_steps + 20)
    one.reset(seed=2)
    for action in actions[:30]:
        one.step(action)
    two.set_state(one.get_state())
    for action in actions[30:]:
        assert all(np.array_equal(a, b) for a, b in zip(one.step(action)[:4], two.step(action)[:4], strict=True))


def test_it_can_be_drawn_without_a_screen(name):
    env = gymnasium.make(TASKS[name].env_id, render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    for action in random_actions(env, 40):
        env.step(action)
    after = env.render()
    assert before.dtype == np.uint8
    assert before.ndim == 3
    assert before.shape[2] == 3
    assert not np.array_equal(before, after)
    frames = make_vector_env(name, 2, render_mode="rgb_array")
    frames.reset(seed=0)
    assert len(frames.render()) == 2
