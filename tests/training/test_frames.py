"""Stacked frames are stored once, and come back as they were."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer

from ex2.training.frames import FrameRolloutBuffer

STEPS, ENVS, STACK = 40, 3, 4
SPACE = spaces.Box(0, 255, (STACK, 6, 6), np.uint8)


def rollout(buffer, seed=0):
    """Fills a buffer with stacks as an environment would give them, episodes ending now and then."""
    random = np.random.default_rng(seed)
    stacks = np.zeros((ENVS, STACK, 6, 6), np.uint8)
    start = np.ones(ENVS)
    for _ in range(STEPS):
        for index in range(ENVS):
            if start[index]:
                stacks[index] = 0
            stacks[index] = np.roll(stacks[index], -1, axis=0)
            stacks[index, -1] = random.integers(0, 256, (6, 6))
        buffer.add(stacks.copy(), np.zeros((ENVS, 1)), np.zeros(ENVS), start, torch.zeros(ENVS), torch.zeros(ENVS))
        start = (random.random(ENVS) < 0.3).astype(float)
    return buffer


def test_samples_are_those_of_the_usual_buffer():
    ours, usual = (rollout(kind(STEPS, SPACE, spaces.Discrete(2), n_envs=ENVS)) for kind in (FrameRolloutBuffer, RolloutBuffer))
    for size in (None, 16):
        np.random.seed(0)  # noqa: NPY002 (what the buffers shuffle by)
        mine = list(ours.get(size))
        np.random.seed(0)  # noqa: NPY002
        for one, other in zip(mine, usual.get(size), strict=True):
            assert one.observations.dtype == torch.uint8
            assert torch.equal(one.observations, other.observations)


def test_a_frame_is_stored_once():
    """Where episodes are longer than a few steps; each that begins adds a whole stack."""
    space = spaces.Box(0, 255, (STACK, 42, 42), np.uint8)
    buffer = FrameRolloutBuffer(500, space, spaces.Discrete(2), n_envs=4)
    for step in range(500):
        start = np.full(4, step % 100 == 0)
        stack = np.zeros((4, STACK, 42, 42), np.uint8)
        buffer.add(stack, np.zeros((4, 1)), np.zeros(4), start, torch.zeros(4), torch.zeros(4))
    usual = 500 * 4 * STACK * 42 * 42
    assert buffer.frames.nbytes + buffer.observations.nbytes < 0.36 * usual


def test_it_can_be_used_again():
    buffer = rollout(FrameRolloutBuffer(STEPS, SPACE, spaces.Discrete(2), n_envs=ENVS))
    list(buffer.get(None))
    buffer.reset()
    again = next(rollout(buffer, 1).get(None)).observations
    fresh = next(rollout(FrameRolloutBuffer(STEPS, SPACE, spaces.Discrete(2), n_envs=ENVS), 1).get(None)).observations
    assert sorted(again.flatten().tolist()) == sorted(fresh.flatten().tolist())
