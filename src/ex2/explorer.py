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

from collections.abc import Mapping, Sequence
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
        self.metrics: dict[str, float] = {}
        self._heard, self._factor, self._centre = 1.0, 0.0, 0.0  # what the last fit left
        self._pieces: list[Piece] = []  # since the last fit
        self._told = 0  # pieces of rollouts that are done
        self._seams: list[int] = []  # pieces that need not begin where the one before ended
        self._pending = 0  # transitions since the last fit
        self._news = False
        self._ended: Array | None = None  # environments whose next step is a reset
        self._latest: list[Piece] = []  # those of the last rollout

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

    @property
    def latest(self) -> Batch:
        """The transitions of the last rollout."""
        return _batch(self._latest)

    def begin(self) -> None:
        """What follows need not go on where the last step ended."""
        self._seams.append(len(self._pieces))

    def reset(self) -> None:
        """All environments were reset: no step that follows is one of their own resets. Steps of no rollout are forgotten."""
        self._ended = None
        del self._pieces[self._told :]
        self._pending = sum(piece[-1].size for piece in self._pieces)
        self.begin()

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
        rewards, before, after = copied(rewards), copied(self.view(obs)), copied(self.view(next_obs))
        ended, mask = terminated | truncated, np.ones(terminated.shape, bool)
        if self.autoreset is AutoresetMode.NEXT_STEP:
            mask = mask if self._ended is None else ~self._ended
            self._ended = ended
        elif self.autoreset is AutoresetMode.SAME_STEP and ended.any():
            self._put_finals(after, infos or {}, ended)
        self._refuse_non_finite(after, "observation")
        self._refuse_non_finite(rewards, "reward")
        row = (before, copied(action), after, terminated, truncated, mask, rewards)
        self._add(tuple(mapped(lambda array: array[None], values) for values in row))

    def _add(self, piece: Piece) -> None:
        """Puts a piece behind those before it."""
        *_, terminated, _, mask, rewards = piece
        if self._pieces and self._pieces[-1][-1].shape[1] != rewards.shape[1]:
            before = self._pieces[-1][-1].shape[1]
            raise UsageError(f"There were {before} environments and now are {rewards.shape[1]}: keep to one number.")
        self._news = self._news or self._is_news(rewards[mask], terminated[mask])
        self._pending += rewards.size
        self._pieces.append(piece)

    def _refuse_non_finite(self, values: Any, name: str) -> None:
        """Names the environment that gave a number no agent can learn from, before a policy stumbles over it."""
        if isinstance(values, Mapping):
            for key, part in values.items():
                self._refuse_non_finite(part, f"{name}[{key!r}]")
        elif isinstance(values, np.ndarray) and values.dtype.kind == "f" and not np.isfinite(values).all():
            index = int(np.argwhere(~np.isfinite(values))[0][0])
            step = len(self._pieces) - self._told
            raise UsageError(
                f"The {name} of environment {index} at step {step} of the rollout, {self.steps + step * len(values):,} steps "
                f"into training, is {values[index]}: environments must give finite numbers."
            )

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
        self._latest = self._pieces[self._told :]
        if not self._latest:
            raise UsageError("There is no step to learn from: call Explorer.step after each step of the environments.")
        rewards = np.concatenate([piece[-1] for piece in self._latest])
        whole = self._learn(rewards.size)
        if whole is not None:
            return Shaped(self._heard * rewards, whole.bonuses[-len(rewards) :], self.metrics)
        self._told = len(self._pieces)
        if not self._factor:
            return Shaped(self._heard * rewards, np.zeros(rewards.shape, np.float32), self.metrics)
        return self.rate(self.latest, rewards)

    def shape(self, batch: Batch, rewards: Array) -> Shaped:
        """What the agent learns from a rollout [T, N] that comes as a whole, its observations as the bonus sees them."""
        self.bonus.check(batch)
        self._add((*(mapped(np.asarray, values) for values in vars(batch).values()), rewards))
        return self.rollout()

    def learn(self) -> None:
        """Fits the bonus to the steps since the last call, if they are enough; for who rates later."""
        if self.due:
            self._learn(self._pending)

    def _learn(self, new: int) -> Shaped | None:
        """Fits the bonus to all pieces, if they are enough, the last `new` transitions of which were not counted yet."""
        progress = self.progress
        self.steps += new
        if not self.due:
            return None
        pieces, self._pieces = self._pieces, []
        seams, self._seams, self._told, self._pending, self._news = self._seams, [], 0, 0, False
        batch, rewards = _batch(pieces, seams), np.concatenate([piece[-1] for piece in pieces])
        shaped = self.shaper(batch, rewards, progress)
        self._heard, self._factor, self._centre = shaped.heard, shaped.factor, shaped.centre
        self.metrics = {f"exploration/{name.removeprefix('bonus/')}": value for name, value in shaped.metrics.items()}
        return shaped

    def rate(self, batch: Batch, rewards: Array) -> Shaped:
        """What the agent would learn from transitions now, by what the last fit left. Changes nothing."""
        scores = (self.bonus.score(batch) - self._centre).numpy() if self._factor else np.zeros(rewards.shape)
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
        if not shaper.reward_scale.count or not len(rewards):
            return False
        if not shaper.telling and (terminated.any() or (rewards != shaper.only).any()):
            return True
        return bool(np.abs(rewards).max() > shaper.reward_scale.largest)

    def state_dict(self) -> dict[str, Any]:
        """All that later answers depend on."""
        told = self._told
        parts = (self._pieces[:told], self._seams), (self._pieces[told:], [seam - told for seam in self._seams])
        return {
            "bonus": self.bonus.state_dict(),
            "shaper": self.shaper.state_dict(),
            "last": {"heard": self._heard, "factor": self._factor, "centre": self._centre},
            "pieces": [list(_joined(pieces, seams)) if pieces else None for pieces, seams in parts],
            "counts": {"steps": self.steps, "news": self._news},
            "metrics": dict(self.metrics),
            "ended": self._ended,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was called."""
        self.bonus.load_state_dict(state["bonus"])
        self.shaper.load_state_dict(state["shaper"])
        self._heard, self._factor, self._centre = (float(state["last"][name]) for name in ("heard", "factor", "centre"))
        told, untold = state["pieces"]
        self._pieces = [tuple(piece) for piece in (told, untold) if piece is not None]
        self._told, self._seams = int(told is not None), list(range(len(self._pieces) + 1))
        self._pending = sum(piece[-1].size for piece in self._pieces)
        self.steps, self._news = int(state["counts"]["steps"]), bool(state["counts"]["news"])
        self.metrics, self._ended = dict(state["metrics"]), state["ended"]


Piece = tuple[Any, ...]
"""Steps [T, N, ...]: observations, actions, next observations, terminated, truncated, mask, rewards."""


def _batch(pieces: Sequence[Piece], seams: Sequence[int] = ()) -> Batch:
    return Batch.of(*_joined(pieces, seams)[:-1])


def _joined(pieces: Sequence[Piece], seams: Sequence[int]) -> Piece:
    """Pieces as one. Where one of the `seams` does not begin where the piece before ended, an episode was cut."""
    joined = tuple(_concatenated(parts) for parts in zip(*pieces, strict=True))
    before, _, after, terminated, truncated, *_ = joined
    lengths = np.cumsum([len(piece[-1]) for piece in pieces])
    places = lengths[[seam - 1 for seam in seams if 0 < seam < len(pieces)]]
    if len(places):
        pairs = zip(leaves(after), leaves(before), strict=True)
        apart = [(a[places - 1] != b[places]).reshape(*terminated[places].shape, -1).any(-1) for a, b in pairs]
        truncated[places - 1] |= np.any(apart, 0) & ~terminated[places - 1]
    return joined


def _concatenated(parts: Sequence[Any]) -> Any:
    """Arrays along their first dimension; dicts and tuples part by part."""
    first = parts[0]
    if isinstance(first, Mapping):
        return {key: _concatenated([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple):
        return tuple(_concatenated(some) for some in zip(*parts, strict=True))
    return np.concatenate(parts)


def _put(into: Any, index: int, one: Any) -> None:
    """Writes one observation, [1, ...], at an index of several."""
    for key in into if isinstance(into, Mapping) else range(len(into)) if isinstance(into, tuple) else ():
        _put(into[key], index, one[key])
    if isinstance(into, np.ndarray):
        into[index] = one[0]
