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
from ex2.tasks import task_map

# Games start slowly: what is quick about Atari is in tests/tasks/test_atari.py.
pytestmark = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (task.extra == "atari")) for name, task in TASKS.items()]
)
SHORT = {"atari": {"episode_steps": 80}}  # episodes that a test can play to their end, by extra
BRIEF = {"atari": {"episode_steps": 30}, "mujoco": {"max_episode_steps": 30}}  # and more than once


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


def can_be_drawn(name):
    """All tasks can, but for the one that needs OpenGL, on a machine without it."""
    env = gymnasium.make(TASKS[name].env_id, render_mode="rgb_array")
    env.reset(seed=0)
    try:
        return env.render() is not None
    except UsageError:
        assert name == "cheetah"
        return False
    finally:
        env.close()


def test_the_checkers_pass(name):
    drawn = can_be_drawn(name)
    env = gymnasium.make(TASKS[name].env_id, render_mode="rgb_array" if drawn else None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*value is -?infinity.*")  # joint velocities have no bounds
        warnings.filterwarnings("ignore", message=".*minimal resolution.*")  # of another policy's network
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
        check_env(env.unwrapped, skip_render_check=not drawn)
        sb3_check_env(env, skip_render_check=not drawn)
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


@pytest.mark.slow
def test_threads_change_nothing(name):
    if name == "doom":
        pytest.skip("its games are played in processes, one each")
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


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_autoreset_is_as_gymnasium_defines_it(name, mode):
    """After an episode's end, the next step is the reset, or the step is refused and the user resets."""
    brief = BRIEF.get(TASKS[name].extra, {})
    vector = make_vector_env(name, 2, autoreset_mode=mode, **brief)
    assert vector.metadata["autoreset_mode"] is mode
    single = gymnasium.make(TASKS[name].env_id, **brief)
    seen, _ = vector.reset(seed=7)
    expected, _ = single.reset(seed=7)
    resets = 0
    ended = np.zeros(2, bool)
    for action in random_actions(vector, 2 * next(iter(brief.values()), TASKS[name].episode_steps) + 5):
        assert np.array_equal(seen[0], expected)
        if ended.any() and mode is AutoresetMode.DISABLED:
            with pytest.raises(UsageError, match="has ended"):
                vector.step(action)
            before = seen
            seen, _ = vector.reset(options={"reset_mask": ended})
            assert np.array_equal(seen[~ended], before[~ended])
        if ended[0]:
            resets += 1
            expected, _ = single.reset()
            if mode is AutoresetMode.DISABLED:
                assert np.array_equal(seen[0], expected)
        waits = ended & (mode is AutoresetMode.NEXT_STEP)
        seen, reward, terminated, truncated, infos = vector.step(action)
        assert "final_obs" not in infos
        assert not reward[waits].any()
        assert not (terminated | truncated)[waits].any()
        if not waits[0]:
            expected, *rest = single.step(action[0])
            assert [reward[0], terminated[0], truncated[0]] == rest[:3]
        ended = terminated | truncated
    assert resets == 2
    for env in (vector, single):
        env.close()


def test_modes_that_there_are_not_are_named(name):
    for setting, value in (("render_mode", "ansi"), ("render_mode", "human"), ("autoreset_mode", "Sometimes")):
        with pytest.raises(UsageError, match=value):
            make_vector_env(name, 1, **{setting: value})
    with pytest.warns(UserWarning, match="ansi"), pytest.raises(UsageError, match="'ansi'"):
        gymnasium.make(TASKS[name].env_id, render_mode="ansi")


def test_masks_are_checked(name):
    env = make_vector_env(name, 2)
    for wrong in ([True], [1, 0], [True, False]):  # the last would be right after a first reset
        with pytest.raises(UsageError, match="reset_mask"):
            env.reset(options={"reset_mask": np.array(wrong)})
    env.close()


def test_after_close_there_is_a_word(name):
    single, vector = gymnasium.make(TASKS[name].env_id, render_mode="rgb_array"), make_vector_env(name, 2)
    for env in (single, vector):
        env.reset(seed=0)
        env.close()
        env.close()
        for call, arguments in ((env.step, [env.action_space.sample()]), (env.render, [])):
            with pytest.raises(UsageError, match=f"^{call.__name__} was called after close"):
                call(*arguments)
    with pytest.raises(UsageError, match="reset was called after close"):
        vector.reset(seed=0)
    again, _ = single.reset(seed=5)  # as Stable-Baselines3's checker does
    assert np.array_equal(again, single.reset(seed=5)[0])
    single.close()
    make_vector_env(name, 1).close()


@pytest.mark.slow
def test_gymnasium_collects_and_shows_pictures(name, monkeypatch):
    """By its own wrappers, which it puts round an environment that says it can be drawn."""
    if not can_be_drawn(name):
        pytest.skip("this machine has no OpenGL")
    env = gymnasium.make(TASKS[name].env_id, render_mode="rgb_array_list")
    env.reset(seed=0)
    for action in random_actions(env, 3):
        env.step(action)
    frames = env.render()
    assert len(frames) == 4
    assert all(frame.dtype == np.uint8 and frame.shape == frames[0].shape for frame in frames)
    assert env.render() == []
    env.close()
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with pytest.warns(UserWarning, match="HumanRendering"):
        env = gymnasium.make(TASKS[name].env_id, render_mode="human")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    assert env.render() is None
    env.close()


@pytest.mark.slow
def test_it_can_be_drawn_without_a_screen(name):
    if not can_be_drawn(name):
        pytest.skip("this machine has no OpenGL")
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
    for each in (env, frames):
        each.close()


def test_a_map_says_where_agents_are(name):
    arena = task_map(name)
    if arena is None:
        assert TASKS[name].extra == "atari"
        return
    env = make_vector_env(name, 2)
    places = arena.places(*env.reset(seed=0))
    assert places.shape == (2, len(arena.axes))
    if arena.start is not None:
        assert places == pytest.approx(np.array([arena.start] * 2), abs=1.0)
    moved = env.step(env.action_space.sample())
    assert arena.places(moved[0], moved[4]).shape == places.shape
    if arena.extent is not None:
        left, right, bottom, top = arena.extent
        for point in (*places, *np.reshape(arena.walls, (-1, 2))):
            assert left <= point[0] <= right
            assert bottom <= point[1] <= top
    if arena.reachable is not None:
        assert arena.reachable(8).shape == (8, 8)
    env.close()


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
    assert ex2.Run(result.folder).history()["bonus/std"][-1] > 0
