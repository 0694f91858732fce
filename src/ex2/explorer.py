"""For loops of one's own, and for every adapter: from steps of environments to what an agent learns from.

    explorer = Explorer.of(envs, total_steps=1_000_000)
    ...
        explorer.step(obs, action, next_obs, reward, terminated, truncated, infos)    # after each envs.step
    ...
    shaped = explorer.rollout()    # before advantages are computed: shaped.rewards and shaped.bonuses, [T, N]

**When a bonus learns.** Models, scales and the weight move only when the bonus is fitted: as soon as `gather` transitions have
come together since the last time. A rollout that completes them is rated as the paper does it: fit, score, remember. Any other,
such as A2C's 5 steps, is rated at once by what the last fit left: its model, its centre, its scales and its weight; until the
first fit there is no bonus, and rewards are the environment's own. Sums for the scales run over all that was gathered, so they
are of returns, however short the rollouts. A reward that says something new (the first that differs, the first end of an
episode, one larger than any return before) does not wait: the bonus is fitted at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ex2.arrays import Array
from ex2.batch import Batch, leaves, mapped
from ex2.bonus import Bonus, as_bonus
from ex2.errors import UsageError, unknown
from ex2.shaping import CENTRES, Shaped, Shaper, Weight, check_scaled
from ex2.view import See, View, copied

GATHER = 1_000  # transitions that a fit waits for: fewer make all that follows look new, and its scale too large


def as_weight(weight: float | str | Weight) -> Weight:
    """A weight from a number, "auto" or a schedule.

    >>> as_weight(-1)
    Traceback (most recent call last):
    ex2.errors.UsageError: weight=-1 is none: it must be "auto", a finite number of at least 0, or a schedule, ex2.Weight(...).
    """
    if isinstance(weight, Weight):
        return weight
    try:
        return Weight(start=weight)  # type: ignore[arg-type]
    except UsageError:
        raise UsageError(
            f'weight={weight!r} is none: it must be "auto", a finite number of at least 0, or a schedule, ex2.Weight(...).'
        ) from None


def check_choices(weight: float | str | Weight, centre: str, scaled: bool, gather: int) -> Weight:
    """Refuses what no training can begin with, before there are spaces; returns the weight."""
    if centre not in CENTRES:
        raise unknown("centre", centre, CENTRES)
    if not isinstance(gather, int) or isinstance(gather, bool) or gather < 1:
        raise UsageError(f"gather={gather!r} must be a whole number of at least 1: the transitions that a fit waits for.")
    found = as_weight(weight)
    check_scaled(found, scaled)
    return found


class Explorer:
    """Shows steps to a bonus and gives what an agent learns from: rewards and weighted bonuses on one scale.

    Args:
        observation_space, action_space: of one environment.
        bonus: a built bonus, or the name of one, whose settings are `settings`.
        weight: beta, a number or a schedule; "auto" by default, which needs none (`ex2.shaping`).
        gamma: the agent's discount.
        total_steps: of the training, over all environments, which the weight falls over; without it, it does not fall.
        see, last_frame: what of an observation the bonus sees (`ex2.view.View`).
        centre: what is subtracted from the scores of a batch: "median", "mean" or "none".
        scaled: whether scores are divided by the running deviation of their discounted sums.
        episodic: whether the agent's returns of the bonus end with an episode.
        gather: how many transitions a fit waits for, see the top of this file.
        autoreset: what `step` is told after an end of an episode, a mode of Gymnasium's; with None, `next_obs` is always the
            observation that the action led to.
        seed, device: of a bonus that is built by name.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        bonus: Bonus | str = "kernel-exemplar",
        weight: float | str | Weight = "auto",
        *,
        gamma: float = 0.99,
        total_steps: int | None = None,
        see: See = None,
        last_frame: bool | int = False,
        centre: str = "median",
        scaled: bool = True,
        episodic: bool = True,
        gather: int = GATHER,
        autoreset: AutoresetMode | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        **settings: Any,
    ) -> None:
        beta = check_choices(weight, centre, scaled, gather)
        self.view = View(observation_space, see, last_frame)
        built = {} if isinstance(bonus, Bonus) else {"seed": seed, "device": device}
        self.bonus = as_bonus(bonus, self.view.space, action_space, **built, **settings)
        self.shaper = Shaper(self.bonus, beta, gamma, centre, scaled, episodic)
        self.action_space, self.gather, self.autoreset, self.total_steps = action_space, gather, autoreset, total_steps
        self.steps = 0  # of all environments, those before the training included
        self.seen = 0  # transitions that the bonus was fitted to
        self.metrics: dict[str, float] = {}
        self.latest: Batch | None = None  # the last rollout's transitions, and the environment's own rewards
        self.latest_rewards: Array = np.zeros((0, 0))
        self._heard, self._factor, self._centre = 1.0, 0.0, 0.0  # what the last fit left
        self._rows: list[tuple[Any, ...]] = []  # steps since the last rollout
        self._gathered: list[tuple[Batch, Array]] = []  # rollouts since the last fit
        self._ended: Array | None = None  # environments whose next step is a reset
        self._news = False
        self._pending = 0  # transitions since the last fit

    @classmethod
    def of(cls, envs: VectorEnv[Any, Any, Any], *positional: Any, **keywords: Any) -> Self:
        """An explorer for the environments of a Gymnasium vector; it reads their spaces and their autoreset mode."""
        mode = envs.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise UsageError(
                f"{envs} does not say in its metadata what it does when an episode ends (autoreset_mode is {mode!r}): pass "
                "spaces and autoreset=gymnasium.vector.AutoresetMode... to Explorer itself."
            )
        spaces_of = (envs.single_observation_space, envs.single_action_space)
        return cls(*spaces_of, *positional, **({"autoreset": mode} | keywords))

    @property
    def progress(self) -> float:
        """The share of the training that is done."""
        return min(self.steps / self.total_steps, 1.0) if self.total_steps else 0.0

    @property
    def unit(self) -> float:
        """What bonuses are multiplied by to be in units of the reward."""
        return self.shaper.unit if self.shaper.weight.auto else 1.0

    def reset(self) -> None:
        """All environments were reset: no step that follows is one of their own resets. Steps of no rollout are forgotten."""
        self._ended, self._rows = None, []
        self._pending = sum(rewards.size for _, rewards in self._gathered)

    def step(
        self,
        obs: Any,
        action: Any,
        next_obs: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        infos: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes one step of all environments, [N, ...], as they returned it; whatever comes may be written over afterwards."""
        terminated, truncated = (copied(values).astype(bool) for values in (terminated, truncated))
        rewards = copied(rewards)
        before, after = copied(self.view(obs)), copied(self.view(next_obs))
        ended, mask = terminated | truncated, np.ones(terminated.shape, bool)
        if self.autoreset is AutoresetMode.NEXT_STEP:
            mask = mask if self._ended is None else ~self._ended
            self._ended = ended
        elif self.autoreset is AutoresetMode.SAME_STEP and ended.any():
            self._put_finals(after, infos or {}, ended)
        self._rows.append((before, copied(action), after, terminated, truncated, mask, rewards))
        self._pending += rewards.size
        self._news = self._news or self._is_news(rewards[mask], terminated[mask])

    def _put_finals(self, after: Any, infos: Mapping[str, Any], ended: Array) -> None:
        """Where an episode ended, the observation it ended with in place of the one that the next begins with."""
        finals = infos.get("final_obs", infos.get("final_observation"))
        if finals is None:
            raise UsageError(
                "An episode has ended and infos hold no final_obs, as they do with SAME_STEP autoreset: pass step the infos of "
                "the environments."
            )
        for index in np.flatnonzero(ended):
            one = mapped(itemgetter(index), finals)
            _put(after, int(index), self.view(mapped(lambda values: np.asarray(values)[None], one)))

    def rollout(self) -> Shaped:
        """What the agent learns from the steps since the last call, [T, N]."""
        self.latest, self.latest_rewards = self._taken()
        return self._shape(self.latest, self.latest_rewards)

    def shape(self, batch: Batch, rewards: Array) -> Shaped:
        """What the agent learns from a rollout [T, N] that comes as a whole, its observations as the bonus sees them."""
        self._pending += rewards.size
        return self._shape(batch, rewards)

    def learn(self) -> None:
        """Gathers the steps since the last call, and fits the bonus if that makes enough; for who rates later."""
        self._learn(*self._taken())

    def _shape(self, batch: Batch, rewards: Array) -> Shaped:
        whole = self._learn(batch, rewards)
        if whole is None:
            return self.rate(batch, rewards)
        return Shaped(self._heard * rewards, whole.bonuses[-len(rewards) :], self.metrics)

    def _learn(self, batch: Batch, rewards: Array) -> Shaped | None:
        self.bonus.check(batch)  # before anything has changed
        self._gather(batch, rewards)
        progress = self.progress
        self.steps += rewards.size
        if not self.due:
            return None
        whole, own = Batch.joined([held for held, _ in self._gathered]), np.concatenate([own for _, own in self._gathered])
        shaped = self.shaper(whole, own, progress)
        self.seen += own.size
        self._gathered, self._news, self._pending = [], False, 0
        self._heard, self._factor, self._centre = shaped.heard, shaped.factor, shaped.centre
        self.metrics = {f"exploration/{name.removeprefix('bonus/')}": value for name, value in shaped.metrics.items()}
        return shaped

    def rate(self, batch: Batch, rewards: Array) -> Shaped:
        """What the agent would learn from transitions now, by what the last fit left. Changes nothing."""
        if not self._factor:
            return Shaped(self._heard * rewards, np.zeros(rewards.shape, np.float32), self.metrics)
        scores = (self.bonus.score(batch) - self._centre).numpy()
        bonuses = np.where(batch.mask.numpy(), self._factor * scores, 0.0).astype(np.float32)
        return Shaped(self._heard * rewards, bonuses, self.metrics)

    @property
    def due(self) -> bool:
        """Whether the bonus is to be fitted to what was gathered."""
        return self._news or self._pending >= self.gather

    def batch(self, obs: Any, action: Any, next_obs: Any, terminated: Any = None, truncated: Any = None) -> Batch:
        """Transitions [B, ...] of no order in time, as a batch [1, B] of what the bonus sees."""
        before, after = (mapped(lambda values: np.asarray(values)[None], self.view(some)) for some in (obs, next_obs))
        flags = [None if flag is None else np.asarray(flag)[None] for flag in (terminated, truncated)]
        return Batch.of(before, np.asarray(action)[None], after, *flags)

    def _is_news(self, rewards: Array, terminated: Array) -> bool:
        """Whether rewards say what they have not said before."""
        shaper = self.shaper
        if not self.seen or not len(rewards):
            return False
        if not shaper.telling and (terminated.any() or (rewards != shaper.only).any()):
            return True
        return bool(np.abs(rewards).max() > shaper.reward_scale.largest)

    def _taken(self) -> tuple[Batch, Array]:
        """The steps since the last rollout, and forgets them."""
        if not self._rows:
            raise UsageError("There is no step to learn from: call Explorer.step after each step of the environments.")
        rows, self._rows = self._rows, []
        before, action, after, terminated, truncated, mask, rewards = (_stacked(part) for part in zip(*rows, strict=True))
        return Batch.of(before, action, after, terminated, truncated, mask), rewards

    def _gather(self, batch: Batch, rewards: Array) -> None:
        """Puts a rollout behind those before it; where it does not begin where they ended, an episode was cut."""
        mask = batch.mask.numpy()
        self._news = self._news or self._is_news(rewards[mask], (batch.terminated & batch.mask).numpy())
        if self._gathered:
            last = self._gathered[-1][0]
            if last.shape[1] != batch.shape[1]:
                raise UsageError(f"There were {last.shape[1]} environments and now are {batch.shape[1]}: keep to one number.")
            pairs = zip(leaves(last.next_obs), leaves(batch.obs), strict=True)
            apart = torch.stack([(a[-1] != b[0]).reshape(len(b[0]), -1).any(1) for a, b in pairs]).any(0)
            last.truncated[-1] |= apart & ~last.terminated[-1]
        self._gathered.append((batch, rewards))

    def state_dict(self) -> dict[str, Any]:
        """All that later answers depend on. Steps of an unfinished rollout are not kept."""
        held = [[*vars(batch).values(), rewards] for batch, rewards in self._gathered]
        last = {"heard": self._heard, "factor": self._factor, "centre": self._centre}
        return {
            "bonus": self.bonus.state_dict(),
            "shaper": self.shaper.state_dict(),
            "gathered": held,
            "last": last,
            "counts": {"steps": self.steps, "seen": self.seen, "news": self._news},
            "metrics": dict(self.metrics),
            "ended": self._ended,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was called."""
        self.bonus.load_state_dict(state["bonus"])
        self.shaper.load_state_dict(state["shaper"])
        self._gathered = [(Batch(*parts), rewards) for *parts, rewards in state["gathered"]]
        self._heard, self._factor, self._centre = (float(state["last"][name]) for name in ("heard", "factor", "centre"))
        counts = state["counts"]
        self.steps, self.seen, self._news = int(counts["steps"]), int(counts["seen"]), bool(counts["news"])
        self.metrics = dict(state["metrics"])
        self.reset()
        self._ended = state["ended"]


def _stacked(parts: tuple[Any, ...]) -> Any:
    """Observations of several steps, [N, ...] each, as [T, N, ...]; dicts and tuples part by part."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {key: _stacked(tuple(part[key] for part in parts)) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked(some) for some in zip(*parts, strict=True))
    return np.stack(parts)


def _put(into: Any, index: int, one: Any) -> None:
    """Writes one observation, [1, ...], at an index of several."""
    for key in into if isinstance(into, Mapping) else range(len(into)) if isinstance(into, tuple) else ():
        _put(into[key], index, one[key])
    if isinstance(into, np.ndarray):
        into[index] = one[0]
