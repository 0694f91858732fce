"""A corridor to walk down: small enough to know every answer, long enough that chance does not reach its end."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Corridor(gymnasium.Env):
    """`length` places in a row, steps left and right; 1 at the last place, which ends the episode."""

    def __init__(self, length: int = 10, limit: int | None = None) -> None:
        self.length, self.limit = length, limit
        self.observation_space = spaces.Box(0.0, float(length), (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.place = max(self.place + (1 if action == 1 else -1), 0)
        self.steps += 1
        there = self.place == self.length - 1
        return self._observe(), float(there), there, not there and self.steps == self.limit, {}

    def _observe(self):
        return np.array([self.place], np.float32)


class Short(Corridor):
    """As RLlib makes environments; rewards are whole numbers, as many environments give them."""

    def __init__(self, config=None):
        super().__init__(**({"length": 5, "limit": 9} | dict(config or {})))

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, int(reward), *rest


class Lock(gymnasium.Env):
    """A combination lock: at each place one of two buttons leads on and the other back to the start; 1 for opening it.

    Chance opens it once in 2^length tries, and no constant choice opens it at all.
    """

    def __init__(self, length: int = 20, limit: int = 40) -> None:
        self.combination = np.random.default_rng(7).integers(2, size=length)
        self.limit = limit
        self.observation_space = spaces.Discrete(length + 1)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self.place, {}

    def step(self, action):
        self.place = self.place + 1 if action == self.combination[self.place] else 0
        self.steps += 1
        opened = self.place == len(self.combination)
        return self.place, float(opened), opened, not opened and self.steps == self.limit, {}
