"""What adapters share that see transitions in any order: rows of them as a batch, and a shaper that counts its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ex2.arrays import Array
from ex2.batch import Batch, mapped
from ex2.bonus import Bonus, as_bonus, check_bonus, name_of
from ex2.errors import UsageError
from ex2.explorer import as_weight, check_state, check_training, reported
from ex2.shaping import Shaped, Shaper, Weight


def in_a_row(obs: Any, action: Any, next_obs: Any, terminated: Array, ends: Array, mask: Array | None = None) -> Batch:
    """Stretches of episodes [T, ...], one behind the other, as a batch of one environment.

    `ends` says where a stretch does, for whatever reason. An end that is not a terminal one counts as truncated, also where
    only the rollout ended: it keeps stretches apart, and says nothing else to a bonus.
    """
    obs, action, next_obs = (mapped(lambda x: x[:, None], x) for x in (obs, action, next_obs))
    happened = None if mask is None else mask[:, None]
    return Batch.of(obs, action, next_obs, terminated[:, None], (ends & ~terminated)[:, None], happened)


def side_by_side(obs: Any, action: Any, next_obs: Any, terminated: Array, mask: Array | None = None) -> Batch:
    """Transitions [N, ...] that have nothing to do with each other, as a step of so many environments."""
    obs, action, next_obs = (mapped(lambda x: x[None], x) for x in (obs, action, next_obs))
    return Batch.of(obs, action, next_obs, terminated[None], mask=None if mask is None else mask[None])


def check_length(weight: Weight, total_steps: int | None) -> None:
    """Refuses a weight that falls over nobody knows how many steps."""
    if total_steps is None and (weight.auto or weight.schedule != "constant"):
        raise UsageError(
            "The weight falls as the training goes on, and how long that is was not said: "
            "pass total_steps=..., or a constant number as weight."
        )


class StepShaper:
    """A `Shaper` of a training of `total_steps`, which counts them itself: what it has seen is how far the training has come.

    Args:
        bonus: a built bonus, or the name of one; then settings go with it.
        weight: beta, a number or a schedule, or "auto" (`ex2.shaping`).
        gamma: the agent's discount.
        episode_counts: whether what recurs within an episode counts less: not where transitions are rated in no order.
        total_steps: of the training; needed where the weight depends on it.
    """

    def __init__(
        self,
        bonus: Bonus | str,
        weight: float | str | Weight,
        gamma: float,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        centre: str = "median",
        scaled: bool = True,
        episode_counts: bool = True,
        total_steps: int | None = None,
        **settings: Any,
    ) -> None:
        check_training(centre, total_steps, gamma)
        check_bonus(bonus, settings, StepShaper.__init__)
        self.bonus = as_bonus(bonus, observation_space, action_space, **settings)
        self.shaper = Shaper(self.bonus, as_weight(weight), gamma, centre, scaled, episode_counts=episode_counts)
        self.total_steps = total_steps
        self.seen = 0
        self.began = 0  # how many had been seen when the training began
        self.metrics: dict[str, float] = {}

    @property
    def progress(self) -> float:
        """The share of the training that is done."""
        check_length(self.shaper.weight, self.total_steps)
        return min((self.seen - self.began) / self.total_steps, 1.0) if self.total_steps else 0.0

    def observe(self, batch: Batch, rewards: Array, anew: bool = False) -> Shaped:
        """Shows new transitions to the bonus, with their rewards [T, N]; bad ones are named before anything is changed.

        `anew` says that no episode goes on which ran at the end of the batch before.
        """
        if not np.isfinite(rewards[batch.mask.numpy()]).all():
            step, env = np.argwhere(~np.isfinite(np.where(batch.mask.numpy(), rewards, 0.0)))[0]
            raise UsageError(
                f"The reward of environment {env} at step {step} of the batch is {rewards[step, env]}: "
                "environments must give finite numbers; the batch was not used."
            )
        if anew:
            self.bonus.check(batch)
            self.shaper.restart()
        shaped = self.shaper(batch, rewards, self.progress)
        self.seen += int(batch.mask.sum())
        self.metrics = reported(shaped.metrics)
        return Shaped(shaped.rewards, shaped.bonuses, self.metrics)

    def again(self, batch: Batch | Callable[[], Batch], rewards: Array) -> Shaped:
        """What is learned now from transitions that were shown before; changes nothing (`ex2.shaping.Shaper.again`)."""
        return self.shaper.again(batch, rewards)

    def state_dict(self) -> dict[str, Any]:
        name = name_of(self.bonus)
        counts = {"seen": self.seen, "began": self.began}
        return {"name": name, "bonus": self.bonus.state_dict(), "shaper": self.shaper.state_dict(), **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_state(state, self.bonus)
        self.bonus.load_state_dict(state["bonus"])
        self.shaper.load_state_dict(state["shaper"])
        self.seen, self.began = int(state["seen"]), int(state.get("began", 0))
