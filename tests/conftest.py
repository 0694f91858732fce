"""Spaces and data that several tests share. One thread each: tests run side by side."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ex2 import Batch

torch.set_num_threads(1)

VECTOR = spaces.Box(-1.0, 1.0, (2,), np.float32)
UNBOUNDED = spaces.Box(-np.inf, np.inf, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (16, 16, 3), np.uint8)
FIRST_IMAGE = spaces.Box(0, 255, (3, 16, 16), np.uint8)
TILES = spaces.Discrete(5)
CONTINUOUS = spaces.Box(-1.0, 1.0, (2,), np.float32)
BUTTONS = spaces.Discrete(3)

SPACES = {
    "vector-continuous": (VECTOR, CONTINUOUS),
    "vector-discrete": (VECTOR, BUTTONS),
    "unbounded": (UNBOUNDED, CONTINUOUS),
    "image": (IMAGE, BUTTONS),
    "image-channels-first": (FIRST_IMAGE, BUTTONS),
    "discrete": (TILES, BUTTONS),
}


def make_batch(pair: tuple[spaces.Space, spaces.Space], steps: int = 30, envs: int = 4, seed: int = 0) -> Batch:
    """Random transitions of these spaces: the next observation of each step is the observation of the one after."""
    random = np.random.default_rng(seed)
    observation_space, action_space = pair
    if isinstance(observation_space, spaces.Discrete):
        obs = random.integers(observation_space.n, size=(steps + 1, envs))
    elif observation_space.dtype == np.uint8:
        obs = random.integers(0, 256, (steps + 1, envs, *observation_space.shape)).astype(np.uint8)
    else:
        obs = (random.normal(0.0, 0.3, (steps + 1, envs, *observation_space.shape))).clip(-1, 1).astype(np.float32)
    if isinstance(action_space, spaces.Discrete):
        action = random.integers(action_space.n, size=(steps, envs))
    else:
        action = random.normal(0.0, 1.0, (steps, envs, *action_space.shape)).astype(np.float32)
    truncated = np.zeros((steps, envs), bool)
    truncated[steps // 2] = True
    return Batch.of(obs[:-1], action, obs[1:], truncated=truncated)


QUICK = ("vector-continuous", "image")
"""For `make quick`."""


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in SPACES])
def pair(request: pytest.FixtureRequest) -> tuple[spaces.Space, spaces.Space]:
    return SPACES[request.param]
