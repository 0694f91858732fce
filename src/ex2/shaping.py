"""From a density to what an agent learns from: R' = R + beta * (f(p) - centre). The forms f, the centring, the scale and the
weight beta live here only; the loop and every adapter have a `Shaper`.

**The weight "auto"**, the default. Scores of different bonuses deviate by 0.001 to 100, rewards by anything, so neither says
what a good beta is. The agent learns from

    R / sigma_R  +  c (1 - t)^2 (f(p) / sqrt(n) - centre) / sigma_B

with c = 0.3, or 0.01 where rewards guide by themselves, sigma_R and sigma_B the deviations of the discounted sums of rewards
and of centred scores, n how often the agent has been at the place since its episode began (`ex2.episodic`; 1 for bonuses
without a metric), and t the share of the training that was done before the batch. So both are on the scale of their own
returns, whatever their units. sigma_R is of all rewards so far, and at least a tenth of the largest return seen, so that a
first, rare find comes to 10 where the bonus's returns deviate by 0.3, and not to thousands; where returns never varied, it is
1. Where rewards come with either sign, it is at least (1 - t)^2 of the largest that has come with both: a find that could
as well have been a loss says little at first, and at 10 such finds would be all that the agent hears; what is left of the
bonus later must not drown what tells them apart. sigma_B is that of the latest part of the training, about half of it: at
first everything is new, and measured against that nothing would be for long. Scores that fade faster than the training
grows old fade against it, and when the training ends, the bonus is gone.

Rewards guide by themselves where, of all steps so far, more than half have another reward than the step before, and more than a
tenth are paid something: speeds, gains of distance. What tells one action from the next is a small part there of what returns
deviate by, and 0.3 would drown it. Costs alone do not guide: they say that nothing should be tried.

A reward that is the same at every step, while no episode terminates, says nothing: -1 a step until a goal that nobody has
seen. The critic's errors would be all that the agent hears of it, so it is left out until that changes, if there is a bonus.

A rollout ends all sums, so sigmas are those of returns only if rollouts are about as long as the discount looks ahead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ex2.arrays import Array
from ex2.batch import Batch
from ex2.episodic import EpisodicCounts
from ex2.errors import UsageError, unknown
from ex2.rewards import Rewards
from ex2.settings import Settings, setting

if TYPE_CHECKING:
    from ex2.bonus import Bonus

FORMS = ("log", "sqrt-count", "inverse-count")
CENTRES = ("median", "mean", "none")
FEWEST = 0.01  # visits that a state counts as at the least, so that a bonus stays finite
SCHEDULES = ("constant", "linear")
AUTO = "auto"
SHARE = 0.3  # of the reward's deviation that the bonus's is, with the weight "auto", when a training begins
GUIDED = 0.01  # the same where rewards guide by themselves
LATEST = 0.5  # of the transitions so far, after which those before count half in sigma_B
SHORTEST = 4_000  # transitions, if that is more
RAREST = 0.1  # of the largest return, which the deviation of returns counts as at the least
ROUNDING = 1e-6  # deviation, as a share of the largest number, below which all are the same


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
    return torch.where(mask, bonus - middle(bonus, mask, centre), torch.zeros_like(bonus))


def middle(bonus: Tensor, mask: Tensor, centre: str = "median") -> Tensor:
    """What centring takes off: the median (or mean, or nothing) over the transitions that happened."""
    if centre not in CENTRES:
        raise unknown("centre", centre, CENTRES)
    real = bonus[mask]
    if len(real) == 0 or centre == "none":
        return torch.zeros(())
    return real.median() if centre == "median" else real.mean()


@dataclass(frozen=True, kw_only=True)
class Weight(Settings):
    """The bonus weight beta as a function of training progress in [0, 1].

    >>> Weight(start=1.0, schedule="linear", end=0.0, until=0.5).at(0.25)
    0.5
    """

    start: float | Literal["auto"] = setting(
        AUTO,
        'What it begins with, in units of the reward; "auto" is a share of what rewards deviate by, falling to 0.',
        least=0,
    )
    schedule: str = setting("constant", "`constant` keeps `start`; `linear` falls to `end`.", among=SCHEDULES)
    end: float = setting(0.0, "What a linear schedule falls to.", least=0)
    until: float = setting(1.0, "The share of the training by which it has fallen.", above=0, most=1)

    def check(self) -> None:
        if self.auto and (self.schedule != "constant" or self.end != 0.0):
            raise UsageError('The weight "auto" falls to 0 by itself: leave out schedule and end, or give start as a number.')

    @property
    def auto(self) -> bool:
        return self.start == AUTO

    def at(self, progress: float, share: float = SHARE) -> float:
        """The weight; of "auto", what is left of the share."""
        if self.start == AUTO:
            return share * self.left(progress)
        done = min(progress / self.until, 1.0)
        return float(self.start) + (self.end - float(self.start)) * (done if self.schedule == "linear" else 0.0)

    def left(self, progress: float) -> float:
        """(1 - t)^2: what is left of the weight "auto". It goes faster than it comes to an end, so that an agent has the last
        third of a training to perfect what it has found."""
        return (1.0 - min(progress / self.until, 1.0)) ** 2


def discounted(values: Array, discount: float, ends: Array | None = None) -> Array:
    """The discounted sum of what follows each step, itself included, [T, N] -> [T, N]; nothing follows where an episode ends.

    >>> discounted(np.ones((3, 1)), 0.5).ravel().tolist()
    [1.75, 1.5, 1.0]
    """
    decay = discount * (np.ones_like(values) if ends is None else 1.0 - ends.astype(values.dtype))
    found = np.zeros_like(values)
    running = np.zeros_like(values[0])
    for step in range(len(values) - 1, -1, -1):
        running = values[step] + decay[step] * running
        found[step] = running
    return found


class Scale:
    """The deviation of the discounted sums of a stream of numbers (Burda et al. 2018, section 2.4): of all of them, or, if it
    `forgets`, of the latest ones, about half."""

    def __init__(self, gamma: float, forgets: bool = False) -> None:
        self.gamma, self.forgets = gamma, forgets
        self.seen = self.count = self.mean = self.squares = self.largest = 0.0

    def update(self, values: Array, mask: Array, ends: Array | None = None) -> None:
        """Takes in numbers [T, N], of which those in the mask count."""
        sums = discounted(np.where(mask, values, 0.0).astype(np.float64), self.gamma, ends)[mask]
        if not len(sums):
            return
        if self.forgets:
            memory = 0.5 ** (len(sums) / max(LATEST * self.seen, SHORTEST))
            self.count, self.squares = memory * self.count, memory * self.squares
        self.seen += len(sums)
        apart, total = float(sums.mean()) - self.mean, self.count + len(sums)
        self.squares += float(sums.var()) * len(sums) + apart**2 * self.count * len(sums) / total
        self.mean, self.count = self.mean + apart * len(sums) / total, total
        self.largest = max(self.largest, float(np.abs(sums).max()))

    @property
    def deviation(self) -> float:
        """0 where all sums were the same, but for rounding."""
        found = (self.squares / self.count) ** 0.5 if self.count else 0.0
        return found if found > ROUNDING * self.largest else 0.0

    def state_dict(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("seen", "count", "mean", "squares", "largest")}

    def load_state_dict(self, state: dict[str, float]) -> None:
        for name in self.state_dict():
            setattr(self, name, float(state[name]))


def check_scaled(weight: Weight, scaled: bool) -> None:
    """Refuses the weight "auto" of scores on no scale."""
    if weight.auto and not scaled:
        raise UsageError('scaled=false does not go with the weight "auto": give the weight as a number, weight.start=0.01.')


@dataclass(frozen=True)
class Shaped:
    """What an agent learns from a batch [T, N], and what there is to report."""

    rewards: Array
    """The environment's own, in the units that the agent learns in."""
    bonuses: Array
    """What is added to them."""
    metrics: dict[str, float]


class Shaper:
    """Shows batches to a bonus, and makes of rewards and scores what an agent learns from.

    Args:
        bonus: any bonus.
        weight: beta; "auto" is explained at the top of this file.
        gamma: the agent's discount.
        centre: what is subtracted from the scores of a batch: "median", "mean" or "none".
        scaled: whether scores are divided by the running deviation of their discounted sums, so that a weight means the same
            for every bonus: how much of the reward's units the bonus's returns deviate by. The paper does not scale.
        episodic: whether the bonus's sums end with an episode, as its returns do.
        episode_counts: whether what recurs within an episode counts less, for bonuses that have a metric.
    """

    def __init__(
        self,
        bonus: Bonus,
        weight: Weight,
        gamma: float,
        centre: str = "median",
        scaled: bool = True,
        episodic: bool = True,
        episode_counts: bool = True,
    ) -> None:
        check_scaled(weight, scaled)
        self.bonus, self.weight, self.gamma = bonus, weight, gamma
        self.centre, self.scaled, self.episodic = centre, scaled, episodic
        self.reward_scale, self.bonus_scale = Scale(gamma), Scale(gamma, forgets=True)
        self.counts = EpisodicCounts() if episode_counts else None
        self.last = {"heard": 1.0, "factor": 0.0, "centre": 0.0}  # what rewards and scores, less a centre, were multiplied by
        self.heard = Rewards()
        self.progress = 0.0  # the share of the training that was done before the last batch

    def __call__(self, batch: Batch, rewards: Array, progress: float, counted: bool = True) -> Shaped:
        """Rewards [T, N] of a batch; `progress` is the share of the training that was done before it. What recurs within an
        episode counts less if it is `counted`, as rollouts are that are rated as a whole."""
        started = time.perf_counter()
        raw, fitted = self.bonus.observe(batch)
        mask, ends = batch.mask.numpy(), (batch.terminated | batch.truncated).numpy()
        if not counted:
            self.restart()
        elif self.counts is not None and (places := self.bonus.places(batch)) is not None:
            visits = self.counts(places, batch.terminated | batch.truncated, batch.mask)
            raw = raw * visits.rsqrt()
            fitted = fitted | {"episode_visits": float(visits.mean())}
        scores = centred(raw, batch.mask, self.centre).numpy()
        scores[np.abs(scores) <= ROUNDING * float(raw.abs().max())] = 0.0  # all the same, but for rounding
        self.progress = min(progress, 1.0)
        self.heard.listen(rewards, mask, bool((batch.terminated & batch.mask).any()))
        self.reward_scale.update(rewards, mask, ends)
        if scores.any():  # there is no bonus before enough was seen
            self.bonus_scale.update(scores, mask, ends if self.episodic else None)
        unit = self.unit if self.weight.auto else 1.0
        beta = self.weight.at(self.progress, GUIDED if self.heard.guiding else SHARE)
        factor = beta / (self.bonus_scale.deviation or math.inf) if self.scaled else beta
        metrics = {"mean": float(raw.mean()), "std": float(raw.std(unbiased=False)), "weight": factor * unit} | fitted
        metrics |= {"scale": self.bonus_scale.deviation, "reward_scale": self.reward_scale.deviation}
        metrics["seconds"] = time.perf_counter() - started
        reported = {f"bonus/{name}": value for name, value in metrics.items()}
        heard = 0.0 if self.weight.auto and not self.heard.telling and scores.any() else 1.0 / unit
        self.last = {"heard": heard, "factor": factor, "centre": middle(raw, batch.mask, self.centre).item()}
        return Shaped(heard * rewards, (factor * scores).astype(np.float32), reported)

    def scores_of(self, shaped: Shaped) -> Array:
        """What the last batch that was shown was rated, [T, N], from what was added to its rewards; 0 where nothing was."""
        factor = self.last["factor"]
        scores: Array = shaped.bonuses / factor + self.last["centre"] if factor else np.zeros_like(shaped.bonuses)
        return scores

    def again(self, batch: Batch | Callable[[], Batch], rewards: Array) -> Shaped:
        """What an agent learns from transitions that came before or lie between, [T, N]: scores are today's, on the scales,
        with the weight and less the centre of the last batch that was shown. Changes nothing.

        A function that makes the batch is called only if there is a bonus now: there is none before the first fit, at a weight
        of 0, and where all scores have been the same."""
        heard, factor, centre = self.last["heard"], self.last["factor"], self.last["centre"]
        if not factor:
            return Shaped(heard * rewards, np.zeros(rewards.shape, np.float32), {})
        batch = batch() if callable(batch) else batch
        scores = (self.bonus.score(batch) - centre).numpy()
        bonuses = np.where(batch.mask.numpy(), factor * scores, 0.0).astype(np.float32)
        return Shaped(heard * rewards, bonuses, {})

    @property
    def unit(self) -> float:
        """sigma_R."""
        if not self.reward_scale.deviation:
            return 1.0
        both_signs = self.weight.left(self.progress) * min(self.heard.highest, -self.heard.lowest)
        return max(self.reward_scale.deviation, RAREST * self.reward_scale.largest, both_signs)

    def state_dict(self) -> dict[str, Any]:
        scales = {"rewards": self.reward_scale.state_dict(), "scores": self.bonus_scale.state_dict()}
        counts = None if self.counts is None else self.counts.state_dict()
        own = {"counts": counts, "last": dict(self.last), "progress": self.progress}
        return scales | self.heard.state_dict() | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reward_scale.load_state_dict(state["rewards"])
        self.bonus_scale.load_state_dict(state["scores"])
        self.heard.load_state_dict(state)
        self.progress = float(state.get("progress", 0.0))
        self.last = {name: float(value) for name, value in state["last"].items()}
        if state["counts"] is None:
            self.counts = None
        elif self.counts is not None:
            self.counts.load_state_dict(state["counts"])

    def restart(self) -> None:
        """All episodes begin anew."""
        if self.counts is not None:
            self.counts.forget()
