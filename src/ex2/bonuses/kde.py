"""A kernel density estimate of the visited states (paper, section 7), by scikit-learn."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from sklearn.neighbors import KernelDensity
from torch import Tensor

from ex2.batch import Batch
from ex2.bonus import DensityBonus, Metrics
from ex2.errors import UsageError
from ex2.exemplar.propositions import log_kernel_peak


class KernelDensityBonus(DensityBonus):
    """p(x) with a Gaussian kernel around a random part of the visited states, drawn anew for each batch.

    As with the smoothed exemplar models, p is relative to the kernel's peak: the probability of a kernel's volume around x.

    Args:
        bandwidth: the kernel's standard deviation, in the units of `Inputs` (standard deviations where a space has no bounds).
        subsample: how many visited states carry a kernel; this bounds the cost.
        relative_tolerance: how exact the sum over kernels must be.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        bandwidth: float = 0.1,
        subsample: int = 2_000,
        relative_tolerance: float = 0.01,
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **settings)
        if bandwidth <= 0 or subsample < 1:
            raise UsageError(f"bandwidth={bandwidth} and subsample={subsample} must both be above 0.")
        self.bandwidth, self.subsample, self.relative_tolerance = bandwidth, subsample, relative_tolerance
        self._centres: Tensor | None = None

    def fit(self, batch: Batch) -> Metrics:
        if self.ready:
            self._place(self.replay.sample(self.subsample, self.generator))
        return {}

    def _place(self, centres: Tensor) -> None:
        """Puts a kernel on each of these rows."""
        self._centres = centres
        numbers = self._numbers(centres)
        self._scale = torch.ones(self.inputs.width, dtype=torch.float64)
        if not self.inputs.bounded:
            states = self.inputs.width - self.inputs.action_width
            self._scale[:states] = numbers[:, :states].std(0).clamp_min(1e-3)
        self._estimate = KernelDensity(bandwidth=self.bandwidth, rtol=self.relative_tolerance)
        self._estimate.fit((numbers / self._scale).numpy())

    def _numbers(self, rows: Tensor) -> Tensor:
        numbers = rows.double()
        if self.inputs.image_shape:
            numbers[:, : self.inputs.width - self.inputs.action_width] /= 255.0
        return numbers

    def log_density(self, rows: Tensor) -> Tensor:
        if self._centres is None:
            return torch.zeros(len(rows))
        density = self._estimate.score_samples((self._numbers(rows) / self._scale).numpy())
        return torch.as_tensor(density - log_kernel_peak(self.bandwidth, self.inputs.width), dtype=torch.float32)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"centres": self._centres}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._centres = None
        if state["centres"] is not None:
            self._place(state["centres"])
