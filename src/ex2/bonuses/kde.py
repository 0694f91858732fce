"""A kernel density estimate of the visited states (paper, section 7)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ex2.batch import Batch
from ex2.bonus import DensityBonus, DensitySettings, Metrics
from ex2.inputs import compressed
from ex2.networks import middle_and_spread, usable
from ex2.settings import setting
from ex2.shaping import FORMS

RATED_AT_ONCE = 500  # rows


@dataclass(frozen=True, kw_only=True)
class KernelDensitySettings(DensitySettings):
    # Narrow kernels say of most pictures that they were never seen: as a count they would all be the same.
    form: str = setting("log", "how a density becomes a bonus, see `ex2.shaping.bonus_of_density`", among=FORMS)
    bandwidth: float | None = setting(
        None,
        "the kernel's standard deviation, in deviations of the states that carry a kernel; what lies more than 5 of these away "
        "from their middle counts like a logarithm. By default 0.1; for images 0.036 times the square root of a frame's "
        "numbers, by which all of them together may differ: 2 for 32x32 RGB. With 0.1, a frame's -log p would be in the "
        "hundreds, and decided by its nearest one",
        above=0.0,
    )
    subsample: int = setting(2_000, "how many visited states carry a kernel; this bounds the cost", least=1)


class KernelDensityBonus(DensityBonus):
    """p(x) with a Gaussian kernel around a random part of the visited states, drawn anew for each batch.

    As with the smoothed exemplar models, p is relative to the kernel's peak: the probability of a kernel's volume around x.
    """

    Settings = KernelDensitySettings
    settings: KernelDensitySettings

    def setup(self) -> None:
        super().setup()
        usual = 0.036 * math.sqrt(self.inputs.pixels) if self.inputs.pictures else 0.1
        self.bandwidth = self.settings.bandwidth or usual
        self._centres: Tensor | None = None

    def prepare(self, batch: Batch) -> Metrics:
        self.check(batch)
        if self.ready:
            self._place(self.replay.sample(self.settings.subsample, self.generator))
        return {}

    def _place(self, centres: Tensor) -> None:
        """Puts a kernel on each of these rows."""
        self._centres = centres
        states = self.inputs.split(centres.to(self.device))[1][:, : self.inputs.numbers].double()
        middle, spread = middle_and_spread(states) if self.inputs.numbers else (states[0], states[0])
        self._middle, self._scale = middle, usable(spread, middle)
        self._kernels = self._points(centres)

    def _points(self, rows: Tensor) -> Tensor:
        """Rows as the kernels have them, in double precision: `cdist` takes differences of large squares."""
        pictures, numbers = self.inputs.split(rows.to(self.device))
        states, actions = numbers.double().split([self.inputs.numbers, self.inputs.action_width], dim=1)
        states = compressed((states - self._middle) / self._scale)
        return torch.cat([*(picture.flatten(1).double() / 255.0 for picture in pictures), states, actions], dim=1)

    def log_density(self, rows: Tensor) -> Tensor:
        if self._centres is None:
            return torch.zeros(len(rows))
        parts = []
        for some in rows.split(RATED_AT_ONCE):
            squares = torch.cdist(self._points(some), self._kernels).square()
            parts.append(torch.logsumexp(squares / (-2 * self.bandwidth**2), 1))
        return (torch.cat(parts) - math.log(len(self._kernels))).float().cpu()

    def to(self, device: str | torch.device) -> KernelDensityBonus:
        super().to(device)
        if self._centres is not None:
            self._place(self._centres)
        return self

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"centres": self._centres}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._centres = None
        if state["centres"] is not None:
            self._place(state["centres"])
