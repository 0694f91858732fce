"""What the exemplar models have in common: networks trained for some steps on each new batch, on top of a density bonus."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any

import torch
from gymnasium import spaces
from torch import nn

from ex2.bonus import DensityBonus
from ex2.errors import UsageError


class ExemplarModel(DensityBonus):
    """Base of the exemplar models.

    Args:
        steps, first_steps: gradient steps for each batch, and for the first one (as many, unless it is said).
        state_noise: standard deviation of Gaussian noise on the states that are classified, in the units of `Inputs`; for
            vectors only. Exemplars themselves stay as they are.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        steps: int = 1_000,
        first_steps: int | None = None,
        state_noise: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **settings)
        if steps < 1 or (first_steps is not None and first_steps < 1):
            raise UsageError(f"steps={steps} and first_steps={first_steps} must be at least 1.")
        if state_noise and self.inputs.image_shape:
            raise UsageError(f"state_noise={state_noise} is for vectors: images are smoothed by noise in a latent space.")
        self.steps, self.first_steps, self.state_noise = steps, first_steps, state_noise
        self.fitted = False
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.generator.initial_seed())
            self.networks = self.build()
        self.networks.to(self.device)
        self.optimiser = torch.optim.Adam(self.parameter_groups(), fused=True)

    @abc.abstractmethod
    def build(self) -> nn.Module:
        """Makes the networks; called once, with PyTorch's generator seeded."""

    @abc.abstractmethod
    def parameter_groups(self) -> Iterable[dict[str, Any]]:
        """What Adam trains, and how fast."""

    def steps_now(self) -> int:
        """Gradient steps for the batch at hand."""
        return self.steps if self.fitted or self.first_steps is None else self.first_steps

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "networks": self.networks.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "fitted": self.fitted,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.networks.load_state_dict(state["networks"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.fitted = bool(state["fitted"])

    def to(self, device: str | torch.device) -> ExemplarModel:
        super().to(device)
        self.networks.to(self.device)
        self.optimiser.load_state_dict(self.optimiser.state_dict())  # moves the moments to where the parameters are
        return self
