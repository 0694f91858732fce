"""The states held, as points of a fixed metric (`ex2.exemplar.features`) that is fitted anew as more is seen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ex2.batch import Batch, Inputs
from ex2.exemplar.features import Features
from ex2.networks import seeded
from ex2.replay import Fifo

SAMPLE = 4_096  # states that the metric is fitted to
FRAMES = 8_192  # rows that become points at a time


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
        self.points = self.replay.through(self.view, self.features.width, torch.float32, FRAMES)
        self.seen_at_fit = self.seen
        return rows

    def view(self, rows: Tensor) -> Tensor:
        """Rows as `inputs` makes them -> points, in main memory."""
        parts = [self.features(some.to(self.device)).cpu() for some in rows.split(FRAMES)]
        return torch.cat(parts) if parts else torch.zeros(0, self.features.width)

    def add(self, rows: Tensor) -> None:
        """Takes rows that the FIFO of rows has just taken."""
        self.seen += len(rows)
        if self.features.fitted and len(rows):
            self.points.add(self.view(rows))

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

    def to(self, device: torch.device) -> None:
        self.device = device
        self.features.to(device)
