"""Networks and the Adam that trains them: steps, on a GPU captured ones, other weights to begin anew with, and checkpoints."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ex2.bonuses.captured import CapturedStep, Loss
from ex2.networks import seeded


class Learner:
    """What `build` makes with PyTorch's generator seeded, and a fused Adam for all in it that can be trained, if anything.

    On a GPU its learning rate is a tensor, so that steps can be captured.
    """

    def __init__(self, build: Callable[[], nn.Module], seed: int, device: torch.device, rate: float) -> None:
        self.build, self.device, self.rate = build, device, rate
        self.networks = seeded(build, seed).to(device)
        self._make_optimiser()

    def _make_optimiser(self, moments: dict[int, Any] | None = None) -> None:
        """A new Adam for this device, with the moments of an old one."""
        learning = [value for value in self.networks.parameters() if value.requires_grad]
        captured = bool(learning) and self.device.type == "cuda"
        rate = torch.tensor(self.rate, device=self.device) if captured else self.rate
        self.optimiser = torch.optim.Adam(learning or [torch.zeros(0)], rate, fused=bool(learning), capturable=captured)
        if moments:
            self.optimiser.load_state_dict(self.optimiser.state_dict() | {"state": copy.deepcopy(moments)})
        self._captured: CapturedStep | None = None

    def set_rate(self, factor: float) -> None:
        """Makes the learning rate this times what it is by itself."""
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(self.rate * factor)
            else:
                group["lr"] = self.rate * factor

    def step(self, loss: Loss, drawn: Sequence[Tensor], also: torch.optim.Optimizer | None = None) -> tuple[Tensor, ...]:
        """One step on `loss(*drawn)`, of another optimiser, too; returns what the loss did, its first entry the loss itself."""
        result = loss(*(value.to(self.device) for value in drawn))
        optimisers = [self.optimiser] if also is None else [self.optimiser, also]
        for optimiser in optimisers:
            optimiser.zero_grad()
        result[0].backward()
        for optimiser in optimisers:
            optimiser.step()
        return result

    def captured_step(self, loss: Loss, drawn: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The same as a CUDA graph. The loss must be the one of the steps before."""
        if self._captured is None or not self._captured.fits(drawn):
            self._captured = CapturedStep(drawn, loss, self.optimiser)
        return self._captured.run(drawn)

    def begin_anew(self, seed: int) -> None:
        """Takes other initial weights; buffers stay as they are."""
        with torch.no_grad():
            for old, new in zip(self.networks.parameters(), seeded(self.build, seed).parameters(), strict=True):
                old.copy_(new)
        self._make_optimiser()

    def state_dict(self) -> dict[str, Any]:
        return {"networks": self.networks.state_dict(), "moments": self.optimiser.state_dict()["state"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.networks.load_state_dict(state["networks"])
        self._make_optimiser(state["moments"])

    def to(self, device: torch.device) -> None:
        self.device = device
        self.networks.to(device)
        self._make_optimiser(self.optimiser.state_dict()["state"])
