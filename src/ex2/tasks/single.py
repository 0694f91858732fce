"""A batch of one behind the ordinary Gymnasium interface, for environments that exist as batches only."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

Array = np.ndarray


class Single(gymnasium.Env[Array, Any]):
    """One environment from a vector environment of one that resets in the same step.

    That reset has happened when an episode's end is reported, so a `reset` without a seed right after it hands over the
    observation that is already there: the single environment sees the same episodes as one in a batch.
    """

    def __init__(self, batch: VectorEnv, render_mode: str | None = None) -> None:
        self.batch = batch
        self.render_mode = render_mode
        self.metadata = {name: value for name, value in batch.metadata.items() if name != "autoreset_mode"}
        self.observation_space = batch.single_observation_space
        self.action_space = batch.single_action_space
        self._begun: Array | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        begun, self._begun = self._begun, None
        if begun is not None and seed is None:
            return begun, {}
        observation, infos = self.batch.reset(seed=seed)
        return observation[0].copy(), self._own(infos)

    @staticmethod
    def _own(infos: dict[str, Any]) -> dict[str, Any]:
        """What the batch says of its one environment, but for its autoreset."""
        return {name: value[0] for name, value in infos.items() if not name.endswith("final_obs")}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._begun = None
        observation, reward, terminated, truncated, infos = self.batch.step(np.asarray(action)[None])
        seen = observation[0].copy()
        if terminated[0] or truncated[0]:
            self._begun, seen = seen, infos["final_obs"][0].copy()
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), self._own(infos)

    def render(self) -> Any:
        return None if self.render_mode is None else self.batch.render()[0]  # type: ignore[index]

    def close(self) -> None:
        self.batch.close()
