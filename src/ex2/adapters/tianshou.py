"""Tianshou 2: wrappers that add any bonus to an on- or off-policy algorithm, as its ICM wrappers add theirs.

Off-policy returns are computed from the rewards of the replay buffer, not from those of the sample that was drawn, so a bonus
added to the sample alone is never learned from. Here an algorithm sees the buffer with the bonus in it; the buffer itself keeps
the environment's rewards, and what was novel once loses its bonus as it becomes familiar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ex2.adapters.steps import check_seen, in_a_row, side_by_side
from ex2.arrays import Array
from ex2.batch import Batch
from ex2.bonus import Bonus
from ex2.choices import check_gather, check_length
from ex2.errors import UsageError, missing_extra
from ex2.explorer import Explorer
from ex2.shaping import Shaped, Weight

try:
    from tianshou.algorithm.algorithm_base import (
        OffPolicyAlgorithm,
        OffPolicyWrapperAlgorithm,
        OnPolicyAlgorithm,
        OnPolicyWrapperAlgorithm,
        TrainingStats,
        TrainingStatsWrapper,
    )
    from tianshou.data import Batch as TianshouBatch
    from tianshou.data import ReplayBuffer
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "tianshou":
        raise
    raise missing_extra("tianshou", "tianshou") from None


class BonusTrainingStats(TrainingStatsWrapper):
    """The algorithm's own, and what there is to report of the bonus, `exploration/...`."""

    def __init__(self, wrapped_stats: TrainingStats, metrics: dict[str, float]) -> None:
        self.__dict__.update(metrics)
        super().__init__(wrapped_stats)


def plain(observations: Any) -> Any:
    """Dict observations, which Tianshou keeps as batches, as dicts."""
    if isinstance(observations, TianshouBatch):
        return {key: plain(observations[key]) for key in observations.get_keys()}
    return observations


def check_rewards(rewards: Array) -> None:
    """Refuses those of several agents."""
    if rewards.ndim != 1:
        raise UsageError(f"Rewards have the shape {rewards.shape}: bonuses take one reward a step, of one agent.")


def check_algorithm(algorithm: Any, kind: type, name: str, such_as: str) -> None:
    """Refuses what is no algorithm of this kind, or has a bonus already."""
    given = type(algorithm).__name__
    if isinstance(algorithm, BonusMixin):
        raise UsageError("The algorithm has a bonus already: wrap it once, 'kernel-exemplar+rnd' is two in one.")
    if isinstance(algorithm, OnPolicyAlgorithm | OffPolicyAlgorithm) and not isinstance(algorithm, kind):
        other = "BonusOffPolicyWrapper" if name == "on-policy" else "BonusOnPolicyWrapper"
        raise UsageError(f"{given} is not {name}: use {other}.")
    if not isinstance(algorithm, kind):
        raise UsageError(f"A bonus is for an {name} algorithm, such as {such_as}(policy=...), not for {given}.")


class BonusMixin:
    """What both wrappers do: build the bonus, count the training's steps, save and load."""

    def begin(
        self,
        wrapped: Any,
        bonus: Bonus | str,
        weight: float | str | Weight,
        observation_space: spaces.Space[Any] | None,
        gamma: float | None,
        settings: dict[str, Any],
    ) -> None:
        check_seen(settings, "say what the bonus sees by entries=..., or wrap the environment")
        policy = wrapped.policy
        space = observation_space or (bonus if isinstance(bonus, Bonus) else policy).observation_space
        if space is None:
            raise UsageError(
                f"The {type(policy).__name__} does not know what it observes: pass observation_space=env.observation_space."
            )
        gamma = getattr(wrapped, "gamma", None) if gamma is None else gamma
        if gamma is None:
            raise UsageError(f"{type(wrapped).__name__} does not say its discount: pass gamma=... as you passed it there.")
        self.own_length = settings.get("total_steps") is None
        self.trainers = 0
        self.explorer = Explorer(space, policy.action_space, bonus, weight, gamma=gamma, **settings)
        self.lr_schedulers = wrapped.lr_schedulers  # Tianshou steps those of the outermost algorithm only

    def train(self, mode: bool = True) -> Any:
        """As of any module, but the policy, which the wrapped algorithm holds as well, is told once."""
        self.training = mode
        self.wrapped_algorithm.train(mode)  # type: ignore[attr-defined]
        return self

    def create_trainer(self, params: Any) -> Any:
        """Takes the length of the training from the trainer's parameters, unless it was said; a further trainer of the same
        algorithm is a further training, in which the weight falls anew."""
        if self.own_length:
            self.explorer.total_steps = params.max_epochs * params.epoch_num_steps
            self.explorer.steps = 0 if self.trainers else self.explorer.steps
        self.trainers += 1
        return super().create_trainer(params)  # type: ignore[misc]

    def transitions(self, buffer: ReplayBuffer, batch: Any, indices: Array, related: bool = True) -> Batch:
        """Transitions of a buffer: stretch behind stretch, or, if they are not related, each for itself."""
        check_rewards(batch.rew)
        action = self.policy.map_action(batch.act)  # type: ignore[attr-defined]
        obs, after, terminated = plain(batch.obs), plain(batch.obs_next), batch.terminated.astype(bool)
        kept = not buffer.options["ignore_obs_next"]
        if kept and not related:
            return side_by_side(obs, action, after, terminated)
        following = buffer.next(indices)
        # Where next observations are not kept, there is none behind the last transition of an episode.
        mask = None if kept else following != indices
        if not related:
            return side_by_side(obs, action, after, terminated, mask)
        ends = np.append(following[:-1] != indices[1:], True) | batch.truncated.astype(bool)
        return in_a_row(obs, action, after, terminated, ends, mask)

    def shape(self, buffer: ReplayBuffer, batch: Any, indices: Array) -> Shaped:
        """Shows transitions of a buffer to the bonus, stretch behind stretch."""
        check_length(self.explorer.shaper.weight, self.explorer.total_steps)
        return self.explorer.shape(self.transitions(buffer, batch, indices), batch.rew[:, None])

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """That of the wrapped algorithm, with the bonus beside it."""
        state = self.wrapped_algorithm.state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)  # type: ignore[attr-defined]
        state[f"{prefix}bonus"] = self.bonus_state()
        return state

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        state = dict(state_dict)
        if "bonus" not in state:
            raise UsageError("The state has no bonus in it: it is of an algorithm without one; load it before you wrap that.")
        self.load_bonus_state(state.pop("bonus"))
        return self.wrapped_algorithm.load_state_dict(state, strict=strict, assign=assign)  # type: ignore[attr-defined]

    def bonus_state(self) -> dict[str, Any]:
        return self.explorer.state_dict()

    def load_bonus_state(self, state: dict[str, Any]) -> None:
        self.explorer.load_state_dict(state)


class BonusOnPolicyWrapper(BonusMixin, OnPolicyWrapperAlgorithm[Any]):
    """Adds a bonus to the rewards that an on-policy algorithm (PPO, A2C, TRPO, NPG) learns from, before it computes returns.

    Args:
        wrapped_algorithm: the algorithm.
        bonus: a built bonus, or the name of one; the spaces then come from the policy, the settings from `settings`.
        weight: beta, a number or a schedule; "auto" by default, which needs none (`ex2.shaping`).
        observation_space: where the policy does not know it.
        gamma: where the algorithm does not say it as `gamma`.
        settings: `total_steps`, what the weight falls over, by default that of the trainer; `centre`, `scaled`, `gather` and so
            on as of `ex2.Explorer`; and the settings of the bonus, `seed` and `device` among them.
    """

    def __init__(
        self,
        wrapped_algorithm: OnPolicyAlgorithm[Any],
        bonus: Bonus | str = "kernel-exemplar",
        weight: float | str | Weight = "auto",
        *,
        observation_space: spaces.Space[Any] | None = None,
        gamma: float | None = None,
        **settings: Any,
    ) -> None:
        check_algorithm(wrapped_algorithm, OnPolicyAlgorithm, "on-policy", "PPO")
        super().__init__(wrapped_algorithm)
        self.begin(wrapped_algorithm, bonus, weight, observation_space, gamma, settings)

    def _preprocess_batch(self, batch: Any, buffer: ReplayBuffer, indices: Array) -> Any:
        shaped = self.shape(buffer, batch, indices)
        batch.rew = (shaped.rewards + shaped.bonuses)[:, 0]
        return super()._preprocess_batch(batch, buffer, indices)

    def _wrapper_update_with_batch(
        self, batch: Any, batch_size: int | None, repeat: int, original_stats: TrainingStats
    ) -> TrainingStats:
        return BonusTrainingStats(original_stats, self.explorer.metrics)


class Relabelled:
    """A replay buffer whose rewards are what an agent learns from now, at `indices` and where `next` leads from there.

    They are written into `rewards`, as long as the buffer and used again and again; what it has elsewhere is not looked at.
    """

    def __init__(
        self, buffer: ReplayBuffer, batch: Any, indices: Array, wrapper: BonusOffPolicyWrapper, rewards: Array
    ) -> None:
        self.buffer, self.wrapper, self.rew = buffer, wrapper, rewards
        self.relabel(batch.rew, indices, lambda: batch)

    def relabel(self, rewards: Array, indices: Array, batch: Callable[[], Any]) -> None:
        check_rewards(rewards)
        transitions = self.wrapper.transitions
        shaped = self.wrapper.explorer.rate(lambda: transitions(self.buffer, batch(), indices, related=False), rewards[None])
        self.rew[indices] = (shaped.rewards + shaped.bonuses)[0]

    def next(self, index: Array) -> Array:
        following: Array = self.buffer.next(index)
        self.relabel(self.buffer.rew[following], following, lambda: self.buffer[following])
        return following

    def __getitem__(self, index: Any) -> Any:
        return self.buffer[index]

    def __len__(self) -> int:
        return len(self.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.buffer, name)


class BonusOffPolicyWrapper(BonusMixin, OffPolicyWrapperAlgorithm[Any]):
    """Adds a bonus to the rewards that an off-policy algorithm (DQN and its kin, DDPG, TD3, SAC) learns from.

    The bonus sees transitions once, as they arrive. It is added to a sample when it is drawn, as it is then; the buffer keeps
    the environment's rewards.

    Args:
        wrapped_algorithm: the algorithm.
        gather: transitions that are gathered for a fit of the bonus.
        bonus, weight, observation_space, gamma, settings: as of `BonusOnPolicyWrapper`.
    """

    def __init__(
        self,
        wrapped_algorithm: OffPolicyAlgorithm[Any],
        bonus: Bonus | str = "kernel-exemplar",
        weight: float | str | Weight = "auto",
        *,
        gather: int = 500,
        observation_space: spaces.Space[Any] | None = None,
        gamma: float | None = None,
        **settings: Any,
    ) -> None:
        check_algorithm(wrapped_algorithm, OffPolicyAlgorithm, "off-policy", "DQN")
        check_gather(gather)
        super().__init__(wrapped_algorithm)
        own = {"gather": 1, "episode_counts": False}  # what is gathered here is shown at once
        self.begin(wrapped_algorithm, bonus, weight, observation_space, gamma, own | settings)
        self.gather = gather
        self._rewards = np.zeros(0)
        self._reported: dict[str, float] = {}
        self._looked: list[int] = []  # where the buffer's parts ended at the last look
        self.shown: list[tuple[int, int]] = []  # of each part of the buffer: where it ended, and how many it held

    def update(self, buffer: ReplayBuffer, sample_size: int | None) -> TrainingStats:
        """Shows to the bonus what is new, then does what the algorithm does."""
        self.look(buffer)
        return super().update(buffer, sample_size)

    def look(self, buffer: ReplayBuffer) -> None:
        """Shows the transitions to the bonus that have arrived since the last time, if there are enough of them."""
        ends = buffer.last_index.tolist()
        if ends == self._looked:
            return
        self._looked, parts = ends, list(getattr(buffer, "buffers", [buffer]))
        before = self.shown if len(self.shown) == len(parts) else [(0, 0)] * len(parts)
        now = [(int(part.last_index[0]), len(part)) for part in parts]
        fresh = [
            count if not held or count < held else (last - ended) % part.maxsize
            for part, (ended, held), (last, count) in zip(parts, before, now, strict=True)
        ]
        if sum(fresh) < min(self.gather, buffer.maxsize // 2):
            return
        stretches = zip(parts, buffer.subbuffer_edges, now, fresh, strict=False)
        indices = np.concatenate(
            [offset + (last - np.arange(count)[::-1]) % part.maxsize for part, offset, (last, _), count in stretches]
        )
        batch = buffer[indices]
        self.shape(buffer, batch, indices)
        self.shown = now

    def _preprocess_batch(self, batch: Any, buffer: ReplayBuffer, indices: Array) -> Any:
        if len(self._rewards) != buffer.maxsize:
            self._rewards = np.full(buffer.maxsize, np.nan)
        seen: Any = Relabelled(buffer, batch, indices, self, self._rewards)
        batch.rew = seen.rew[indices]
        return super()._preprocess_batch(batch, seen, indices)

    def _wrapper_update_with_batch(self, batch: Any, original_stats: TrainingStats) -> TrainingStats:
        if self.explorer.metrics is self._reported:  # Tianshou averages over what it is given again and again
            return original_stats
        self._reported = self.explorer.metrics
        return BonusTrainingStats(original_stats, self._reported)

    def bonus_state(self) -> dict[str, Any]:
        return super().bonus_state() | {"shown": list(self.shown)}

    def load_bonus_state(self, state: dict[str, Any]) -> None:
        super().load_bonus_state(state)
        self.shown, self._looked = [(int(last), int(held)) for last, held in state["shown"]], []
