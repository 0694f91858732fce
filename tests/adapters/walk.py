"""A walk down a corridor, seen in several ways, and a bonus whose every answer is known, for the conformance suite."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn
from torch.nn.functional import one_hot

from ex2 import Batch, Bonus

LENGTH, LIMIT, NOVEL = 6, 15, 3
KINDS = ("vector", "picture", "dict", "discrete")


class Walk(gymnasium.Env):
    """Places in a row, steps left and right; 1 at the last place, which ends the episode; else it is cut after 15 steps."""

    def __init__(self, kind: str = "vector", continuous: bool = False) -> None:
        self.kind = kind
        vector = spaces.Box(0.0, float(LENGTH), (1,), np.float32)
        self.observation_space = {
            "vector": vector,
            "picture": spaces.Box(0, 255, (1, 16, 16), np.uint8),
            "dict": spaces.Dict({"place": vector, "clock": spaces.Discrete(7)}),
            "discrete": spaces.Discrete(LENGTH),
        }[kind]
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self._look(), {}

    def step(self, action):
        right = bool(np.ravel(action)[0] > 0)
        self.place = max(self.place + (1 if right else -1), 0)
        self.steps += 1
        there = self.place == LENGTH - 1
        return self._look(), float(there), there, not there and self.steps == LIMIT, {}

    def action_masks(self):
        return np.ones(2, bool)

    def _look(self):
        if self.kind == "discrete":
            return self.place
        if self.kind == "picture":
            picture = np.zeros((1, 16, 16), np.uint8)
            picture[:, :, 2 * self.place : 2 * self.place + 2] = 255
            return picture
        place = np.array([self.place], np.float32)
        return {"place": place, "clock": self.steps % 7} if self.kind == "dict" else place


def places(observations, lead: int = 2) -> np.ndarray:
    """Where observations [T, N, ...] of any kind are."""
    if isinstance(observations, dict):
        observations = observations["place"]
    found = np.asarray(observations)
    flat = found.reshape(*found.shape[:lead], -1)
    if found.dtype == np.uint8:
        return flat[..., :16].argmax(-1) // 2
    return flat[..., -1].astype(int)


class Features(nn.Module):
    """Eight features of observations [*, ...] of any kind, for libraries that leave networks to their users."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        width = {"vector": 1, "picture": 256, "dict": 8, "discrete": LENGTH}[kind]
        self.layer = nn.Linear(width, 8)

    def forward(self, observations) -> torch.Tensor:
        if self.kind == "dict":
            clock = one_hot(torch.as_tensor(observations["clock"]).long(), 7)
            numbers = torch.cat([torch.as_tensor(observations["place"]), clock], -1)
        elif self.kind == "discrete":
            numbers = one_hot(torch.as_tensor(observations).long(), LENGTH)
        elif self.kind == "picture":
            numbers = torch.as_tensor(observations).flatten(-3) / 255
        else:
            numbers = torch.as_tensor(observations)
        return self.layer(numbers.float()).tanh()


class Known(Bonus):
    """1 for every place from the third on. Keeps what it was shown."""

    def setup(self) -> None:
        self.fitted: list[Batch] = []
        self.remembered: list[Batch] = []
        self.scored: list[Batch] = []

    def prepare(self, batch):
        self.fitted.append(copy.deepcopy(batch))  # a library may use its memory again
        return {}

    def score(self, batch):
        self.scored.append(copy.deepcopy(batch))
        return torch.as_tensor(places(batch.obs) >= NOVEL).float() * batch.mask

    def remember(self, batch):
        self.remembered.append(copy.deepcopy(batch))
