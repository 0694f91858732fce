"""Counts within an episode: how often the agent has been at a place since its episode began, by the kernel of the bonus.

What it meets for the first time in an episode is worth its whole novelty, what it meets for the n-th time 1 / sqrt(n) of it, as
Raileanu and Rocktaeschel (2020) do with tables. So there is nothing to gain from staying where it is rare, and still something
from going through many places once all of them are known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

PAIRS_AT_ONCE = 4_000_000
STEPS_AT_ONCE = 256  # of a long batch: pairs are as many as steps times those of running episodes
EXACT = "donot_use_mm_for_euclid_dist"  # what lies far out and is the same must be at a distance of 0
LONGEST = 5_000  # steps of an episode that are remembered, the latest ones


class Places(NamedTuple):
    """States as points, and when two of them are one place."""

    points: Tensor
    """[T, N, D]."""
    width: float
    """Of the kernel: two points that lie so far apart count as 0.6 of a place."""
    metric: int
    """Points of different metrics cannot be compared."""


class EpisodicCounts:
    """Counts states [T, N] within their episodes, which may have begun in batches before.

    >>> places = Places(torch.tensor([[[0.0]], [[9.0]], [[0.0]], [[0.0]]]), 1.0, 0)
    >>> ends, mask = torch.tensor([[False], [False], [True], [False]]), torch.ones(4, 1, dtype=torch.bool)
    >>> EpisodicCounts()(places, ends, mask).flatten().tolist()
    [1.0, 1.0, 2.0, 1.0]
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """All episodes begin anew."""
        self.past, self.running, self.metric = torch.zeros(0, 0, 0), torch.zeros(0, 0, dtype=torch.bool), -1

    def __call__(self, places: Places, ends: Tensor, mask: Tensor) -> Tensor:
        """How often each state was met so far in its episode, itself included, [T, N]; 1 where masked.

        `ends` and `mask` are [T, N]. Episodes that still run are remembered for the next batch.
        """
        points, width, metric = places
        if metric != self.metric or self.past.shape[1:] != points.shape[1:]:
            self.past, self.running, self.metric = points[:0], ends[:0], metric
        pieces = zip(*(part.split(STEPS_AT_ONCE) for part in (points / width, ends, mask)), strict=True)
        self.past = self.past / width  # not in place: a checkpoint may be writing it
        found = torch.cat([self._count(*piece) for piece in pieces])
        self.past = self.past * width
        return found

    def _count(self, points: Tensor, ends: Tensor, mask: Tensor) -> Tensor:
        """The same of some steps, of points in units of a kernel's width."""
        steps, count = ends.shape
        every, before = torch.cat([self.past, points]), len(self.past)
        begun = torch.cat([torch.zeros(1, count, dtype=torch.long), ends.long().cumsum(0)])
        # The number of each step's episode, 0 for those that ran before; -1 for steps that did not happen or are over.
        episode = torch.cat([torch.where(self.running, 0, -1), torch.where(mask, begun[:-1], -1)])
        order = torch.arange(len(every))
        earlier = order[before:, None] >= order
        found = torch.ones(steps, count)
        at_once = max(PAIRS_AT_ONCE // (steps * len(every)), 1)
        for some in torch.arange(count).split(at_once):
            rows, own = every[:, some].transpose(0, 1), episode[:, some].T
            kernels = torch.cdist(rows[:, before:], rows, compute_mode=EXACT).square_().mul_(-0.5).exp_()
            kernels.masked_fill_((own[:, before:, None] != own[:, None]) | ~earlier, 0.0)
            found[:, some] = kernels.sum(2).T
        running = episode == begun[-1]
        kept = int(running.any(1).long().argmax()) if running.any() else len(every)
        kept = max(kept, len(every) - LONGEST)
        self.past, self.running = every[kept:].clone(), running[kept:].clone()
        return torch.where(mask, found.clamp_min(1.0), torch.ones(()))

    def state_dict(self) -> dict[str, Any]:
        return {"past": self.past, "running": self.running, "metric": self.metric}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.past, self.running, self.metric = state["past"].clone(), state["running"].clone(), int(state["metric"])
