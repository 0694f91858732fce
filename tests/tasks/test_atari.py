"""Atari: the same frames as ALE's single environment with the same preprocessing, unclipped rewards, whole lives."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from ex2 import make_vector_env
from ex2.tasks.atari import Atari

GAMES = ["freeway", "frostbite", "venture"]


@pytest.mark.parametrize("game", ["freeway", *(pytest.param(game, marks=pytest.mark.slow) for game in GAMES[1:])])
def test_frames_are_those_of_the_single_environment(game):
    """No random start: the single environment draws it from another generator."""
    import ale_py

    gymnasium.register_envs(ale_py)
    single = FrameStackObservation(
        AtariPreprocessing(
            gymnasium.make(f"ALE/{game.capitalize()}-v5", frameskip=1, repeat_action_probability=0.0),
            noop_max=0,
            frame_skip=4,
            screen_size=42,
        ),
        4,
        padding_type="zero",
    )
    batch = Atari(game, 2, noops=0)
    expected, _ = single.reset(seed=5)
    seen, _ = batch.reset(seed=5)
    random = np.random.default_rng(0)
    for _ in range(600):
        assert np.array_equal(seen[0], expected)
        action = int(random.integers(batch.single_action_space.n))
        expected, reward, terminated, truncated, _ = single.step(action)
        seen, rewards, *ends, infos = batch.step(np.array([action, 0]))
        assert rewards[0] == reward
        assert (ends[0][0], ends[1][0]) == (terminated, truncated)
        if terminated or truncated:
            assert np.array_equal(infos["final_obs"][0], expected)
            break


def test_rewards_are_not_clipped_and_lives_are_not_ends():
    env = Atari("frostbite", 8)
    env.reset(seed=0)
    random = np.random.default_rng(0)
    largest, lives = 0.0, set()
    for _ in range(300):
        _, reward, _, _, infos = env.step(random.integers(18, size=8))
        largest = max(largest, reward.max())
        lives |= set(infos["lives"].tolist())
    assert largest >= 10
    assert len(lives) > 2  # if a lost life were an end, a new episode would begin with all of them


def test_the_time_limit_truncates():
    env = make_vector_env("freeway", 2, episode_steps=20)
    env.reset(seed=0)
    ends = []
    for _ in range(20):
        _, _, terminated, truncated, _ = env.step(np.zeros(2, int))
        assert not terminated.any()
        ends.append(truncated.any())
    assert ends == 19 * [False] + [True]


def test_sticky_actions_are_an_option():
    def play(sticky):
        env = make_vector_env("freeway", 1, sticky=sticky, noops=0)
        env.reset(seed=0)
        random = np.random.default_rng(0)
        return np.stack([env.step(random.integers(3, size=1))[0] for _ in range(60)])

    assert np.array_equal(play(0.0), play(0.0))
    assert not np.array_equal(play(0.0), play(0.25))
