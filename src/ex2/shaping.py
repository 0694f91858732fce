"""From a density to a reward: R' = R + beta * (f(p) - centre). The forms f, the centring and the weight beta live here only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ex2.errors import UsageError, unknown

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


@dataclass(frozen=True)
class Weight:
    """The bonus weight beta as a function of training progress in [0, 1].

    `constant` keeps `start`; `linear` falls from `start` to `end` at progress `until` and stays there.

    >>> Weight(start=1.0, schedule="linear", end=0.0, until=0.5).at(0.25)
    0.5
    """

    start: float = 1.0
    schedule: str = "constant"
    end: float = 0.0
    until: float = 1.0

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise unknown("weight schedule", self.schedule, SCHEDULES)
        if not 0.0 < self.until <= 1.0:
            raise UsageError(f"The weight's until is {self.until}: it must be above 0 and at most 1.")

    def at(self, progress: float) -> float:
        if self.schedule == "constant":
            return self.start
        return self.start + (self.end - self.start) * min(progress / self.until, 1.0)
