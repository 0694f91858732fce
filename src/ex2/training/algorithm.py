"""What TRPO and PPO share: their settings, the optimizer, and how an update is saved."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ex2.arrays import Array
from ex2.settings import Settings, setting
from ex2.training.policy import Policy
from ex2.training.returns import load_moments
from ex2.training.rollout import Rollout

Metrics = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class AlgorithmSettings(Settings):
    """What every algorithm has."""

    gamma: float = setting(0.99, "The discount of rewards, a step.", least=0, most=1)
    gae_lambda: float = setting(0.97, "Of generalised advantage estimation: 1 for returns, 0 for one step.", least=0, most=1)
    learning_rate: float = setting(1e-3, "Of Adam.", above=0)
    batch_size: int = setting(500, "Steps in a minibatch.", least=1)
    normalize_advantage: bool = setting(True, "Whether advantages are brought to mean 0 and deviation 1.")


class Algorithm(abc.ABC):
    """Improves a policy by rollouts."""

    Settings: ClassVar[type[AlgorithmSettings]]

    def __init__(self, policy: Policy, settings: Any, generator: torch.Generator) -> None:
        self.policy, self.settings, self.generator = policy, settings, generator
        self.optimizer = torch.optim.Adam(self.trained(), settings.learning_rate, eps=1e-5, fused=True)

    @abc.abstractmethod
    def trained(self) -> list[torch.nn.Parameter]:
        """The parameters that Adam trains."""

    @abc.abstractmethod
    def update(self, rollout: Rollout, advantages: Array, returns: Array, progress: float = 0.0) -> Metrics:
        """One update, from advantages and returns [T, N]; `progress` is the share of the training that is done.

        Where all advantages are 0 there is nothing to learn, and nothing changes. Part of it may go on in the background, and
        touches nothing but the critic: `finish` waits for it.
        """

    def finish(self) -> Metrics:
        """Waits for what goes on of the last update; returns what there is to report of it."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()["state"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        load_moments(self.optimizer, state["optimizer"])


def standardised(advantages: torch.Tensor) -> torch.Tensor:
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)
