"""The states held, as points of a fixed metric (`ex2.bonuses.exemplar.features`) that is fitted anew as more is seen."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from ex2.batch import Batch
from ex2.bonuses.exemplar.features import Features
from ex2.inputs import Inputs
from ex2.networks import seeded
from ex2.replay import Fifo

SAMPLE = 4_096  # states that the metric is fitted to
VIEWED_AT_ONCE = 8_192  # rows that become points


class Held:
    """A FIFO of points beside the FIFO of rows that they are made of, in the same order.

    The metric is fitted with the first batch after anything is held, and again each time that twice as much was seen, or as
    much as the FIFO holds; all states held become points of it then.
    """

    def __init__(self, inputs: Inputs, replay: Fifo, generator: torch.Generator, device: torch.device, **settings: Any) -> None:
        self.inputs, self.replay, self.generator, self.device = inputs, replay, generator, device
        features = seeded(lambda: Features(inputs, **settings), generator.initial_seed()).to(device)
        assert isinstance(features, Features)
        self.features = features
        self.points = Fifo(replay.capacity, features.width, torch.float32)
        self.seen = self.seen_at_fit = 0
        self._viewed: tuple[weakref.ref[Batch], int, Tensor] | None = None  # batch, metric, its points

    @property
    def metric(self) -> int:
        """A number of its own for each fit."""
        return self.seen_at_fit

    @property
    def due(self) -> bool:
        """Whether the metric is to be fitted."""
        return not self.features.fitted or self.seen - self.seen_at_fit >= min(self.seen_at_fit, self.replay.capacity)

    def fit(self, batch: Batch) -> Tensor:
        """Fits the metric to what is held and to the new batch; returns the rows it was fitted to."""
        every = self.inputs.rows(batch).flatten(0, 1)
        pairs = batch.neighbours()
        pairs = pairs[torch.randperm(len(pairs), generator=self.generator)[:SAMPLE]]
        new = every[batch.mask.flatten()]
        new = new[torch.randperm(len(new), generator=self.generator)[: SAMPLE // 2]]
        rows = torch.cat([new, self.replay.sample(min(len(self.replay), SAMPLE - len(new)), self.generator)])
        self.features.fit(rows.to(self.device), every[pairs].to(self.device), self.generator)
        self.points = self.replay.through(self.view, self.features.width, torch.float32, VIEWED_AT_ONCE)
        self.seen_at_fit = self.seen
        return rows

    def view(self, rows: Tensor) -> Tensor:
        """Rows as `inputs` makes them -> points, in main memory."""
        parts = [self.features(some.to(self.device)).cpu() for some in rows.split(VIEWED_AT_ONCE)]
        return torch.cat(parts) if parts else torch.zeros(0, self.features.width)

    def points_of(self, batch: Batch) -> Tensor:
        """The points of all transitions of a batch, [T * N, width]: it is looked at once, since pictures cost."""
        if self._viewed is None or self._viewed[0]() is not batch or self._viewed[1] != self.metric:
            self._viewed = weakref.ref(batch), self.metric, self.view(self.inputs.rows(batch).flatten(0, 1))
        return self._viewed[2]

    def add(self, batch: Batch) -> None:
        """Takes the states of a batch that the FIFO of rows has just taken."""
        self.seen += int(batch.mask.sum())
        if self.features.fitted and batch.mask.any():
            self.points.add(self.points_of(batch)[batch.mask.flatten()])

    def state_dict(self) -> dict[str, Any]:
        return {
            "features": {name: value.clone() for name, value in self.features.state_dict().items()},
            "points": self.points.state_dict(),
            "seen": [self.seen, self.seen_at_fit],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.features.load_state_dict(state["features"])
        self.points.load_state_dict(state["points"])
        self.seen, self.seen_at_fit = state["seen"]
        self._viewed = None

    def to(self, device: torch.device) -> None:
        self.device = device
        self.features.to(device)


class Points(nn.Module):
    """What the networks begin with in a fixed metric: its points [M, `width`], on a scale on which those that count have
    variance 1. Directions that a metric does not need are 0, and get no noise."""

    counting: Tensor
    deviation: Tensor

    def __init__(self, features: Features) -> None:
        super().__init__()
        self.width, self.actions = features.width, features.inputs.action_width
        self.outside = features.kept if features.outside else None  # the column of how far a state lies outside all directions
        self.register_buffer("counting", torch.ones(self.width))
        self.register_buffer("deviation", torch.ones(self.width))

    def update(self, points: Tensor) -> None:
        """Takes in which directions count, for points [M, width] of a new metric; those of actions always do."""
        deviation = points.std(0, unbiased=False)
        deviation[self.width - self.actions :] = 0.0
        self.counting.copy_(deviation > 0.0)
        if self.outside is not None and deviation[self.outside] > 0.0:
            deviation[self.outside] = (deviation.square().sum() / self.counting.sum()).sqrt()
        self.deviation.copy_(deviation)
        self.counting[self.width - self.actions :] = 1.0

    def scatter(self, points: Tensor, reach: Tensor, unit: Tensor) -> None:
        """Moves points [M, width] in place, by so many deviations [M, 1] of unit noise; actions stay."""
        points += reach * self.deviation.cpu() * unit
        if self.outside is not None:
            points[:, self.outside].abs_()

    def spread(self) -> Tensor:
        """What unit noise on points is multiplied by, [width]."""
        return self.counting

    def forward(self, points: Tensor) -> Tensor:
        return points * (self.width / self.counting.sum().clamp_min(1.0)).sqrt()
