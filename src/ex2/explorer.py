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
episode, one larger than any return before) does not wait: the bonus is fitted at once. Counts within an episode
(`ex2.episodic`) are for rollouts that are rated as a whole: with shorter ones, or where transitions are rated later, there are
none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from ex2.arrays import Array
from ex2.batch import Batch, mapped
from ex2.bonus import Bonus, as_bonus, check_bonus, name_of
from ex2.choices import GATHER, check_choices, check_length, check_state, check_training, listed
from ex2.errors import UsageError
from ex2.rows import Row, apart, arrays_of, batch_of, put, rewards_of, seems_finite, stacked, tensors_of
from ex2.shaping import Shaped, Shaper, Weight
from ex2.view import See, View, copied


def reported(metrics: dict[str, float]) -> dict[str, float]:
    """What a shaper reports, under the names that all adapters have: `bonus/` is often taken there."""
    return {f"exploration/{name.removeprefix('bonus/')}": value for name, value in metrics.items()}


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
        episode_counts: whether what recurs within an episode counts less.
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
        episode_counts: bool = True,
        gather: int = GATHER,
        autoreset: AutoresetMode | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        **settings: Any,
    ) -> None:
        beta = check_choices(weight, scaled, gather, episodic=episodic, episode_counts=episode_counts)
        check_training(centre, total_steps, gamma)
        if autoreset is not None and not isinstance(autoreset, AutoresetMode):
            modes = ", ".join(str(mode) for mode in AutoresetMode)
            raise UsageError(f"autoreset={autoreset!r} is no mode of gymnasium.vector.AutoresetMode: use {modes}, or None.")
        check_bonus(bonus, settings, Explorer.__init__)
        self.view = View(observation_space, see, last_frame)
        built = {} if isinstance(bonus, Bonus) else {"seed": seed, "device": device}
        self.bonus = as_bonus(bonus, self.view.space, action_space, **built, **settings)
        self.shaper = Shaper(self.bonus, beta, gamma, centre, scaled, episodic, episode_counts)
        self.action_space, self.gather, self.autoreset, self.total_steps = action_space, gather, autoreset, total_steps
        self.steps = 0  # of all environments, those before the training included
        self.metrics: dict[str, float] = {}
        self._rows: list[Row] = []  # steps since the last fit
        self._told = 0  # of these, those of rollouts that are done
        self._seams: list[int] = []  # rows that need not begin where the one before ended
        self._news = False
        self._ended: Array | None = None  # environments whose next step is a reset
        self._all: Array | None = None  # a mask of all environments
        self._latest: list[Row] = []  # the last rollout
        self.rewards: Array = np.zeros((0, 0))
        """The environments' own rewards of the last rollout, [T, N]."""
        self._last: tuple[Any, Array] | None = None  # what the last fit's steps ended with, and where episodes did

    @classmethod
    def of(cls, envs: VectorEnv[Any, Any, Any], *positional: Any, **keywords: Any) -> Self:
        """An explorer for the environments of a Gymnasium vector; it reads their spaces and their autoreset mode."""
        if not isinstance(envs, VectorEnv):
            raise UsageError(
                f"Explorer.of takes a vector of environments, gymnasium.make_vec(...), not {type(envs).__name__}: pass the "
                "spaces of others to Explorer itself."
            )
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
        self.check_length()
        return min(self.steps / self.total_steps, 1.0) if self.total_steps else 0.0

    def check_length(self) -> None:
        """Refuses a schedule that falls over nobody knows how many steps; "auto" then falls with what is known alone."""
        if not self.shaper.weight.auto:
            check_length(self.shaper.weight, self.total_steps)

    @property
    def unit(self) -> float:
        """What bonuses are multiplied by to be in units of the reward."""
        return self.shaper.unit if self.shaper.weight.auto else 1.0

    @property
    def latest(self) -> Batch:
        """The transitions of the last rollout."""
        if not self._latest:
            raise UsageError("There was no rollout yet: its transitions are here after Explorer.rollout.")
        return batch_of(self._latest)

    @property
    def begun(self) -> bool:
        """Whether it was told anything."""
        return bool(self.steps or self._rows)

    @property
    def running(self) -> int:
        """How many steps the rollout that runs has."""
        return len(self._rows) - self._told

    def begin(self) -> None:
        """What follows need not go on where the last step ended."""
        self._seams.append(len(self._rows))

    def reset(self, mask: Any = None) -> None:
        """Environments were reset by hand, all or those in a mask [N]: their next step is none of their own resets."""
        self._ended = None if mask is None or self._ended is None else self._ended & ~np.asarray(mask, bool)
        self.begin()

    def drop(self) -> None:
        """Forgets the steps of a rollout that was broken off."""
        del self._rows[self._told :]
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
        *,
        copy: bool = True,
    ) -> None:
        """Takes one step of all environments, [N, ...], as they returned it; without `copy`, observations and actions are not
        written over later."""
        before, after = self.view(obs), self.view(next_obs)
        if copy:
            before, action, after = copied(before), copied(action), copied(after)
        rewards = np.asarray(copied(rewards))
        terminated, truncated = np.asarray(copied(terminated), bool), np.asarray(copied(truncated), bool)
        mask = self._all
        if mask is None or not mask.shape == rewards.shape == terminated.shape == truncated.shape:
            mask = self._all = self._mask_of(rewards, terminated, truncated)
            self._ended = None  # these are other environments
        if self.autoreset is AutoresetMode.NEXT_STEP:
            mask = mask if self._ended is None else ~self._ended
            self._ended = terminated | truncated
        elif self.autoreset is AutoresetMode.SAME_STEP and (terminated | truncated).any():
            after = self._with_finals(after, infos or {}, terminated | truncated)
        if not (seems_finite(after) and seems_finite(rewards)):
            self.check_finite(after)
            self.check_finite(rewards, "reward")
        self.take((before, action, after, terminated, truncated, mask, rewards))

    def take(self, row: Row) -> None:
        """Takes one step of all environments as it is: checked, nobody writes over it, observations as the bonus sees them."""
        self._rows.append(row)

    def _mask_of(self, rewards: Any, terminated: Array, truncated: Array) -> Array:
        """One of all environments, if these are numbers of as many as before."""
        shape, before = np.shape(rewards), [len(row[-1]) for row in self._rows[self._told :][:1]]
        for name, values in (("terminated", terminated), ("truncated", truncated), ("rewards", rewards)):
            if len(shape) != 1 or np.shape(values) != shape:
                raise UsageError(
                    f"{name} has the shape {np.shape(values)} where rewards have {shape}: each must be one number for each "
                    "environment, [N], also of a single one, [1]."
                )
        if before and before[0] != shape[0]:
            raise UsageError(
                f"There were {before[0]} environments and now are {shape[0]}: call Explorer.rollout or drop before."
            )
        return np.ones(shape, bool)

    def check_finite(self, values: Any, name: str = "observation", step: int | None = None) -> None:
        """Names the environment that gave numbers [N, ...] no agent can learn from, before a policy stumbles over them."""
        if isinstance(values, np.ndarray):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                index, step = int(np.argwhere(~np.isfinite(values))[0][0]), self.running if step is None else step
                raise UsageError(
                    f"The {name} of environment {index} at step {step} of the rollout, {self.steps + step * len(values):,} "
                    f"steps into training, is {values[index]}: environments must give finite numbers."
                )
        elif isinstance(values, Mapping):
            for key, part in values.items():
                self.check_finite(part, f"{name}[{key!r}]", step)
        elif isinstance(values, tuple):
            for index, part in enumerate(values):
                self.check_finite(part, f"{name}[{index}]", step)

    def _check_rewards(self, rewards: Array, mask: Array) -> None:
        """Names the environment whose reward [T, N] is no finite number."""
        for step, row in enumerate(np.where(mask, rewards, 0.0)):
            self.check_finite(row, "reward", step)

    def _with_finals(self, after: Any, infos: Mapping[str, Any], ended: Array) -> Any:
        """Where an episode ended, the observation it ended with in place of the one that the next begins with."""
        finals = infos.get("final_obs", infos.get("final_observation"))
        if finals is None:
            raise UsageError(
                "An episode has ended and infos hold no final_obs, as they do with SAME_STEP autoreset: pass step the infos of "
                "the environments."
            )
        return self.with_finals(after, {int(index): mapped(itemgetter(index), finals) for index in np.flatnonzero(ended)})

    def with_finals(self, after: Any, finals: Mapping[int, Any]) -> Any:
        """Observations [N, ...] as the bonus sees them, with those that these environments' episodes ended with."""
        after = mapped(np.array, after)
        for index, final in finals.items():
            put(after, index, self.view(mapped(lambda values: np.asarray(values)[None], final)))
        return after

    def rollout(self) -> Shaped:
        """What the agent learns from the steps since the last call, [T, N]."""
        self._latest = self._rows[self._told :]
        if not self._latest:
            raise UsageError("There is no step to learn from: call Explorer.step after each step of the environments.")
        rewards = self.rewards = rewards_of(self._latest)
        whole = self._learn(rewards, counted=rewards.size >= self.gather and not self._told)
        if whole is not None:
            return Shaped(self.shaper.last["heard"] * rewards, whole.bonuses[-len(rewards) :], self.metrics)
        return self.rate(lambda: self.latest, rewards)

    def shape(self, batch: Batch, rewards: Array, anew: bool = False) -> Shaped:
        """What the agent learns from a rollout [T, N] that comes as a whole, its observations as the bonus sees them; `anew`
        says that no episode goes on which ran at the end of the one before."""
        self.bonus.check(batch)
        if rewards.shape != batch.shape:
            raise UsageError(f"rewards have the shape {rewards.shape} where the batch has [T, N] = {batch.shape}.")
        if not seems_finite(rewards):
            self._check_rewards(rewards, batch.mask.numpy())
        progress = self.progress
        if not self._rows and rewards.size >= self.gather:
            if anew:
                self.shaper.restart()
            self.steps += rewards.size
            shaped = self._fit(batch, np.array(rewards), progress, counted=True)
            return Shaped(shaped.rewards, shaped.bonuses, self.metrics)
        self.begin()
        if anew and self._rows:
            *before, terminated, _, mask, own = self._rows[-1]
            self._rows[-1] = (*before, terminated, ~terminated, mask, own)
        elif anew:
            self.shaper.restart()
        fields = [mapped(lambda values: values.numpy().copy(), field) for field in vars(batch).values()]  # memory is used again
        for index, row in enumerate(np.array(rewards)):
            self._rows.append((*(mapped(itemgetter(index), field) for field in fields), row))
        return self.rollout()

    def learn(self) -> None:
        """Fits the bonus to the steps since the last fit, if they are enough; for who rates later."""
        if self.running:
            self._learn(rewards_of(self._rows[self._told :]), counted=False)

    def _learn(self, rewards: Array, counted: bool) -> Shaped | None:
        """Takes the rows that are new, with these rewards; fits the bonus to all, if they are enough or say something new.
        Those that are `counted` are a rollout that is rated as a whole."""
        told, progress = self._told, self.progress  # before these
        width = rewards.shape[1]
        if not seems_finite(rewards):
            self._check_rewards(rewards, np.array([row[5] for row in self._rows[told:]]))
        if len(self._rows[0][-1]) != width:  # there were more environments, or fewer
            self._fit(batch_of(self._rows[:told], self._seams), rewards_of(self._rows[:told]), progress, counted=False)
            self._rows, self._seams, told = self._rows[told:], [], 0
        self._told = len(self._rows)
        self.steps += rewards.size
        if self._told * width < self.gather:
            rows = self._rows[told:]
            real = [one for row in rows for one, happened in zip(row[-1].tolist(), row[5].tolist(), strict=True) if happened]
            self._news = self._news or self._is_news(real, lambda: any((row[3] & row[5]).any() for row in rows))
            if not self._news:
                return None
        rows, seams = self._rows, self._seams
        self._rows, self._seams, self._told, self._news = [], [], 0, False
        return self._fit(batch_of(rows, seams), rewards_of(rows), progress, counted)

    def _fit(self, batch: Batch, rewards: Array, progress: float, counted: bool) -> Shaped:
        """Shows steps to the bonus."""
        if self._last is not None:
            others, first = len(self._last[1]) != rewards.shape[1], mapped(lambda values: values[0].numpy(), batch.obs)
            if others or (apart(self._last[0], first, rewards[0].shape) & ~self._last[1]).any():
                self.shaper.restart()  # environments were reset in between, or are others
        ended = (batch.terminated | batch.truncated | ~batch.mask)[-1].numpy().copy()
        self._last = mapped(lambda values: values[-1].numpy().copy(), batch.next_obs), ended
        shaped = self.shaper(batch, rewards, progress, counted)
        self.metrics = reported(shaped.metrics)
        return shaped

    def rate(self, batch: Batch | Callable[[], Batch], rewards: Array) -> Shaped:
        """What the agent would learn from transitions now, by what the last fit left. Changes nothing.

        A function that makes the batch is called only if there is a bonus now.
        """
        shaped = self.shaper.again(batch, rewards)
        return Shaped(shaped.rewards, shaped.bonuses, self.metrics)

    def batch(self, obs: Any, action: Any, next_obs: Any, terminated: Any = None, truncated: Any = None) -> Batch:
        """Transitions [B, ...] of no order in time, as a batch [1, B] of what the bonus sees."""
        before, after = (mapped(lambda values: np.asarray(values)[None], self.view(some)) for some in (obs, next_obs))
        flags = [None if flag is None else np.asarray(flag)[None] for flag in (terminated, truncated)]
        return Batch.of(before, np.asarray(action)[None], after, *flags)

    def _is_news(self, rewards: list[float], terminated: Callable[[], bool]) -> bool:
        """Whether rewards say what they have not said before, or are no numbers to learn from; whether an episode terminated is
        only asked if need be. These are few, and arrays would take longer."""
        shaper = self.shaper
        if not math.isfinite(sum(rewards)):
            return True
        if not shaper.weight.auto or not shaper.reward_scale.count or not rewards:  # else rewards are heard as they are
            return False
        if max(max(rewards), -min(rewards)) > shaper.reward_scale.largest:
            return True
        heard = shaper.heard
        return not heard.telling and (any(one != heard.only for one in rewards) or terminated())

    def state_dict(self) -> dict[str, Any]:
        """All that later answers depend on."""
        return {
            "name": name_of(self.bonus),
            "settings": listed(self.bonus.settings.as_dict()),
            "bonus": self.bonus.state_dict(),
            "shaper": self.shaper.state_dict(),
            "rows": tensors_of(stacked(self._rows)) if self._rows else None,
            "counts": {"steps": self.steps, "told": self._told, "news": self._news, "seams": list(self._seams)},
            "metrics": dict(self.metrics),
            "ended": tensors_of(self._ended),
            "last_step": tensors_of(self._last),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was called."""
        check_state(state, self.bonus)
        self.bonus.load_state_dict(state["bonus"])
        self.shaper.load_state_dict(state["shaper"])
        rows, counts = arrays_of(state["rows"]), state["counts"]
        held = range(0 if rows is None else len(rows[-1]))
        self._rows = [tuple(mapped(itemgetter(step), field) for field in rows) for step in held]
        self.steps, self._told, self._news = int(counts["steps"]), int(counts["told"]), bool(counts["news"])
        self._seams, self.metrics, self._ended = list(counts["seams"]), dict(state["metrics"]), arrays_of(state["ended"])
        self._last = arrays_of(state["last_step"])
        self._all = None if self._ended is None else np.ones(self._ended.shape, bool)
