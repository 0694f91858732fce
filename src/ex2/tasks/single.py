"""A batch of one behind the ordinary Gymnasium interface: the single environments of all tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from ex2.arrays import Array


class Single(gymnasium.Env[Array, Any]):
    """One environment from a vector environment of one that leaves resets to its user (AutoresetMode.DISABLED).

    A reset after `close` makes the batch anew: Stable-Baselines3's checker closes an environment and goes on with it.
    """

    def __init__(self, make: Callable[[], VectorEnv[Any, Any, Any]]) -> None:
        self._make = make
        self.batch = batch = make()
        self.render_mode = batch.render_mode
        self.metadata = {name: value for name, value in batch.metadata.items() if name != "autoreset_mode"}
        self.observation_space = batch.single_observation_space
        self.action_space = batch.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if self.batch.closed:
            self.batch = self._make()
        observation, infos = self.batch.reset(seed=seed)
        return observation[0], {name: value[0] for name, value in infos.items()}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, infos = self.batch.step(np.asarray(action)[None])
        own = {name: value[0] for name, value in infos.items()}
        return observation[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), own

    def render(self) -> Any:
        frames: tuple[Any, ...] | None = self.batch.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        self.batch.close()
