"""What the exemplar models have in common: networks trained for some steps on each new batch, on top of a density bonus."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ex2.bonus import DensityBonus, Metrics
from ex2.errors import UsageError

UNDECIDED = 0.05  # D within this of 1/2
SATURATED = 0.001  # D within this of 1
COLLAPSED = 0.95  # share of exemplars from which on it is called a collapse


class ExemplarModel(DensityBonus):
    """Base of the exemplar models.

    Args:
        steps, first_steps: gradient steps for each batch, and for the first one (as many, unless it is said).
        state_noise: standard deviation of Gaussian noise on the states that are classified, in the units of `Inputs`
            (standard deviations where a space has no bounds); for vectors only. Exemplars themselves stay as they are.
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

    def report(self, loss: Tensor, positive: Tensor, negative: Tensor, telling: bool = True) -> Metrics:
        """Metrics from the last step's logits, and a warning where the discriminators have stopped saying anything.

        `undecided` is the share of exemplars with D near 1/2, `saturated` that with D near 1. Either at 1 means that every
        state looks equally novel: smoothing is too strong (posterior collapse) or too weak. `telling` is False for a
        discriminator of whole batches, of which D = 1/2 is the right answer where they are alike.
        """
        certainty = torch.sigmoid(positive.detach())
        metrics = {
            "loss": loss.item(),
            "accuracy_positive": (positive > 0).float().mean().item(),
            "accuracy_negative": (negative < 0).float().mean().item(),
            "undecided": ((certainty - 0.5).abs() < UNDECIDED).float().mean().item(),
            "saturated": (certainty > 1.0 - SATURATED).float().mean().item(),
        }
        if telling and metrics["undecided"] > COLLAPSED:
            warnings.warn(
                "The discriminators have collapsed to D = 1/2: lower the KL weight or the noise, or fit longer.", stacklevel=3
            )
        if metrics["saturated"] > COLLAPSED:
            warnings.warn("The discriminators are sure of every state (D = 1): raise the KL weight or the noise.", stacklevel=3)
        return metrics

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
