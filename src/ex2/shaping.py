"""From a density to a reward: R' = R + beta * (f(p) - centre). The forms f, the centring and the weight beta live here only."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ex2.arrays import Array
from ex2.batch import Batch
from ex2.errors import unknown
from ex2.settings import Settings, setting

if TYPE_CHECKING:
    from ex2.bonus import Bonus

FORMS = ("log", "sqrt-count", "inverse-count")
CENTRES = ("median", "mean", "none")
FEWEST = 0.01  # visits that a state counts as at the least, so that a bonus stays finite
SCHEDULES = ("constant", "linear")


def bonus_of_density(
    log_density: Tensor, count: int, form: str = "log", count_offset: float = 0.0, state_count: float = 1.0
) -> Tensor:
    """f(p) for log p of any shape and n = `count` states held.

    - `log`: -log p, the paper's form; a factor on p is a constant here and is taken off by centring.
    - `sqrt-count`: 1 / sqrt(N + count_offset) with the pseudo-count N = n p (MBIE-EB), at most 10.
    - `inverse-count`: 1 / (N + |S|) with |S| = `state_count` (BEB).

    >>> bonus_of_density(torch.tensor([0.25]).log(), count=16, form="sqrt-count").tolist()
    [0.5]
    """
    if form not in FORMS:
        raise unknown("form of bonus", form, FORMS)
    if form == "log":
        return -log_density
    visits = count * log_density.exp()
    if form == "sqrt-count":
        return (visits + count_offset).clamp_min(FEWEST).rsqrt()
    return 1.0 / (visits + state_count)


def centred(bonus: Tensor, mask: Tensor, centre: str = "median") -> Tensor:
    """The bonus minus its median (or mean) over the transitions that happened; 0 for those that did not. [T, N] -> [T, N]

    >>> centred(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[True, True, True]])).tolist()
    [[-1.0, 0.0, 7.0]]
    """
    if centre not in CENTRES:
        raise unknown("centre", centre, CENTRES)
    real = bonus[mask]
    if len(real) == 0:
        return torch.zeros_like(bonus)
    middle = {"median": real.median(), "mean": real.mean(), "none": torch.zeros(())}[centre]
    return torch.where(mask, bonus - middle, torch.zeros_like(bonus))


@dataclass(frozen=True, kw_only=True)
class Weight(Settings):
    """The bonus weight beta as a function of training progress in [0, 1].

    >>> Weight(start=1.0, schedule="linear", end=0.0, until=0.5).at(0.25)
    0.5
    """

    start: float = setting(1.0, "What it begins with.", least=0)
    schedule: str = setting("constant", "`constant` keeps `start`; `linear` falls to `end`.", among=SCHEDULES)
    end: float = setting(0.0, "What a linear schedule falls to.", least=0)
    until: float = setting(1.0, "The share of the training by which it has fallen.", above=0, most=1)

    def at(self, progress: float) -> float:
        if self.schedule == "constant":
            return self.start
        return self.start + (self.end - self.start) * min(progress / self.until, 1.0)


@dataclass(frozen=True)
class Shaped:
    """What a bonus adds to a batch [T, N]: the centred scores, what they weigh, and what there is to report."""

    scores: Array
    weight: float
    metrics: dict[str, float]

    @property
    def bonuses(self) -> Array:
        """What is added to the rewards: weight * (score - centre)."""
        return self.weight * self.scores


def shape(bonus: Bonus, batch: Batch, weight: Weight, progress: float, centre: str = "median") -> Shaped:
    """Shows a batch to a bonus, and makes of its scores what an agent learns from: the loop and every adapter do it here."""
    started = time.perf_counter()
    raw, fitted = bonus.observe(batch)
    now = weight.at(min(progress, 1.0))
    scores = centred(raw, batch.mask, centre).numpy()
    metrics = {"mean": float(raw.mean()), "std": float(raw.std(unbiased=False)), "weight": now} | fitted
    metrics["seconds"] = time.perf_counter() - started
    return Shaped(scores, now, {f"bonus/{name}": value for name, value in metrics.items()})
