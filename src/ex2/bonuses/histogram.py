"""Visits counted on a grid: the paper's upper bound for count-based exploration in the maze."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor

from ex2.batch import Batch
from ex2.bonus import DensityBonus, DensitySettings, Metrics
from ex2.errors import UsageError
from ex2.inputs import is_bounded
from ex2.settings import setting

MAX_CELLS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class HistogramSettings(DensitySettings):
    bins: int = setting(50, "cells a dimension", least=1)


class Histogram(DensityBonus):
    """p(x) = (visits to the cell of x) / (visits) on a grid of `bins` cells a dimension; a cell for each value of a Discrete.

    It counts the states that the FIFO holds. A cell never visited counts as half a visit, so that log p is finite.
    """

    Settings = HistogramSettings
    settings: HistogramSettings

    def setup(self) -> None:
        super().setup()
        parts = [part.space for part in self.inputs.vectors] + ([self.action_space] if self.inputs.action_width else [])
        if self.inputs.pictures or not all(is_bounded(part) for part in parts):
            raise UsageError(
                f"A histogram needs bounded spaces of few dimensions, got {self.observation_space}: use 'kernel-exemplar'."
            )
        bins = self.settings.bins
        self.widths = [part.width for part in self.inputs.vectors] + [self.inputs.action_width][: self.inputs.action_width]
        self.scales = [1.0] * len(self.inputs.vectors) + [self.inputs.action_scale]
        self.counts = [int(part.n) if isinstance(part, spaces.Discrete) else 0 for part in parts]
        self.cell_count = math.prod(n or bins**width for n, width in zip(self.counts, self.widths, strict=True))
        if self.cell_count > MAX_CELLS:
            many = f"10^{len(str(self.cell_count)) - 1}"
            raise UsageError(
                f"bins={bins} makes {many} cells here: at most {MAX_CELLS:,} are allowed, take fewer bins, choose numbers by "
                "entries=[...], or use 'kernel-exemplar'."
            )

    def prepare(self, batch: Batch) -> Metrics:
        self.check(batch)
        return {}

    def cells(self, rows: Tensor) -> Tensor:
        """The number of the cell of each row, [M]."""
        bins, cell = self.settings.bins, torch.zeros(len(rows), dtype=torch.long)
        for part, count, scale in zip(rows.split(self.widths, dim=1), self.counts, self.scales, strict=False):
            if count:  # a one-hot code, or the bits of a value
                bits = 2 ** torch.arange(part.shape[1])
                cell = cell * count + (part.argmax(1) if part.shape[1] == count else (part.long() * bits).sum(1))
                continue
            for column in ((part / scale + 1) / 2 * bins).clamp(0, bins - 1).long().unbind(1):
                cell = cell * bins + column
        return cell

    def log_density(self, rows: Tensor) -> Tensor:
        visits = torch.bincount(self.cells(self.replay.rows()), minlength=self.cell_count)
        return visits[self.cells(rows)].clamp_min(0.5).log() - torch.tensor(float(len(self.replay))).log()
