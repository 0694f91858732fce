"""Visits counted on a grid: the paper's upper bound for count-based exploration in the maze."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from ex2.batch import Batch
from ex2.bonus import DensityBonus, Metrics
from ex2.errors import UsageError

MAX_CELLS = 10_000_000


class Histogram(DensityBonus):
    """p(x) = (visits to the cell of x) / (visits) on a grid of `bins` cells a dimension over a bounded space.

    It counts the states that the FIFO holds. A cell never visited counts as half a visit, so that log p is finite.
    """

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space, *, bins: int = 50, **settings: Any) -> None:
        super().__init__(observation_space, action_space, **settings)
        if self.inputs.image_shape or not self.inputs.bounded:
            raise UsageError(f"A histogram needs a bounded space of few dimensions, got {observation_space}: use 'amortized'.")
        if bins < 1 or bins**self.inputs.width > MAX_CELLS:
            raise UsageError(
                f"bins={bins} in {self.inputs.width} dimensions makes {bins**self.inputs.width:,} cells: "
                f"between 1 and {MAX_CELLS:,} are allowed."
            )
        self.bins = bins

    def fit(self, batch: Batch) -> Metrics:
        return {}

    def cells(self, rows: Tensor) -> Tensor:
        """The number of the cell of each row, [M]."""
        place = ((rows + 1) / 2 * self.bins).long().clamp(0, self.bins - 1)
        return (place * self.bins ** torch.arange(self.inputs.width)).sum(-1)

    def log_density(self, rows: Tensor) -> Tensor:
        visits = torch.bincount(self.cells(self.replay.rows()), minlength=self.bins**self.inputs.width)
        return visits[self.cells(rows)].clamp_min(0.5).log() - torch.tensor(float(len(self.replay))).log()
