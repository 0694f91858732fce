"""Visits counted on a grid: the paper's upper bound for count-based exploration in the maze."""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from ex2.batch import Batch, is_bounded
from ex2.bonus import DensityBonus, Metrics
from ex2.errors import UsageError

MAX_CELLS = 10_000_000


class Histogram(DensityBonus):
    """p(x) = (visits to the cell of x) / (visits) on a grid of `bins` cells a dimension; a cell for each value of a Discrete.

    It counts the states that the FIFO holds. A cell never visited counts as half a visit, so that log p is finite.
    """

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space, *, bins: int = 50, **settings: Any) -> None:
        super().__init__(observation_space, action_space, **settings)
        parts = [observation_space, action_space] if self.inputs.action_width else [observation_space]
        if self.inputs.image_shape or not all(is_bounded(part) for part in parts):
            raise UsageError(f"A histogram needs bounded spaces of few dimensions, got {parts}: use 'amortized'.")
        if bins < 1:
            raise UsageError(f"bins={bins}: at least 1 is needed.")
        self.bins = bins
        self.discrete = [isinstance(part, spaces.Discrete) for part in parts]
        self.widths = [self.inputs.width - self.inputs.action_width, self.inputs.action_width][: len(parts)]
        self.cell_count = math.prod(n if one else bins**n for n, one in zip(self.widths, self.discrete, strict=True))
        if self.cell_count > MAX_CELLS:
            raise UsageError(f"bins={bins} makes {self.cell_count:.2g} cells here: at most {MAX_CELLS:,} are allowed.")

    def fit(self, batch: Batch) -> Metrics:
        return {}

    def cells(self, rows: Tensor) -> Tensor:
        """The number of the cell of each row, [M]."""
        cell = torch.zeros(len(rows), dtype=torch.long)
        scales = (1.0, self.inputs.action_scale)
        for part, one_hot, scale in zip(rows.split(self.widths, dim=1), self.discrete, scales, strict=False):
            if one_hot:
                cell = cell * part.shape[1] + part.argmax(1)
                continue
            for column in ((part / scale + 1) / 2 * self.bins).long().clamp(0, self.bins - 1).unbind(1):
                cell = cell * self.bins + column
        return cell

    def log_density(self, rows: Tensor) -> Tensor:
        visits = torch.bincount(self.cells(self.replay.rows()), minlength=self.cell_count)
        return visits[self.cells(rows)].clamp_min(0.5).log() - torch.tensor(float(len(self.replay))).log()
