"""What every registered task must do, alone and in a batch. A new task is covered by being registered."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import ex2
from ex2 import TASKS, UsageError, make_vector_env
from ex2.training import loop

pytestmark = pytest.mark.parametrize("name", TASKS)
SHORT = {"atari": {"episode_steps": 80}}  # episodes that a test can play to their end, by extra


def settings(name):
    return SHORT.get(TASKS[name].extra, {})


def episode_steps(name):
    return settings(name).get("episode_steps", TASKS[name].episode_steps)


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
        warnings.filterwarnings("ignore", message=".*value is -?infinity.*")  # joint velocities have no bounds
        warnings.filterwarnings("ignore", message=".*minimal resolution.*")  # of another policy's network
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        check_env(env.unwrapped, skip_render_check=True)
        sb3_check_env(env)
    env.close()


def test_seeds_reproduce_and_differ(name):
    one, two = make_vector_env(name, 3, **settings(name)), make_vector_env(name, 3, **settings(name))
    actions = random_actions(one, 250)
    first, again, other = play(one, actions, 5), play(two, actions, 5), play(two, actions, 6)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert not np.array_equal(first[0][:, 0], first[0][:, 1])
    for env in (one, two):
        env.close()


def test_a_batch_gives_what_single_environments_give(name):
    """Over more than one episode, bit for bit, resets included."""
    vector = make_vector_env(name, 3, **settings(name))
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    actions = random_actions(vector, episode_steps(name) + 50)
    together, rewards, ends = play(vector, actions, 11)
    for index in range(3):
        env = gymnasium.make(TASKS[name].env_id, **settings(name))
        observation, _ = env.reset(seed=11 + index)
        for step, action in enumerate(actions):
            assert np.array_equal(observation, together[step, index])
            observation, reward, terminated, truncated, _ = env.step(action[index])
            assert reward == rewards[step, index]
            assert (terminated or truncated) == ends[step, index]
            if terminated or truncated:
                observation, _ = env.reset()
        env.close()
    vector.close()


def test_threads_change_nothing(name):
    one, two = make_vector_env(name, 6, threads=1), make_vector_env(name, 6, threads=2)
    actions = random_actions(one, 60)
    assert all(np.array_equal(a, b) for a, b in zip(play(one, actions, 3), play(two, actions, 3), strict=True))
    for env in (one, two):
        env.close()


def test_2_the_last_observation_is_handed_over(name):
    vector = make_vector_env(name, 2, **settings(name))
    vector.reset(seed=0)
    single = gymnasium.make(TASKS[name].env_id, **settings(name))
    single.reset(seed=0)
    for action in random_actions(vector, episode_steps(name)):
        _, _, terminated, truncated, infos = vector.step(action)
        last, *_ = single.step(action[0])
        if (terminated | truncated).any():
            break
    assert infos["_final_obs"].tolist() == (terminated | truncated).tolist()
    assert np.array_equal(infos["final_obs"][0], last)
    for env in (vector, single):
        env.close()


def test_saved_and_restored_exactly(name):
    if not TASKS[name].exact:
        pytest.skip("games cannot be saved in the middle of an episode: a resumed run begins fresh ones")
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
    try:
        before = env.render()
    except UsageError:
        assert name == "cheetah"  # the one task that is drawn by OpenGL, on a machine without it
        return
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
    for each in (env, frames):
        each.close()


def test_wrong_actions_are_named(name):
    env = make_vector_env(name, 2)
    with pytest.raises(UsageError, match="before reset"):
        env.step(env.action_space.sample())
    env.reset(seed=0)
    with pytest.raises(UsageError, match="actions"):
        env.step(env.action_space.sample()[:1])
    env.close()


def test_a_short_training_runs(name, tmp_path):
    """Two iterations with the default bonus and the task's own networks: seconds, not minutes."""
    steps = {"num_envs": 4, "rollout_steps": 50, "steps": 400, "threads": 1}
    few = {"bonus.min_replay": 100, "algo.batch_size": 50}
    result = ex2.train(name, "kernel-exemplar", out=tmp_path / "run", overrides=few, **steps)
    assert result.finished
    assert loop.history(result.folder)[-1]["bonus/std"] > 0
