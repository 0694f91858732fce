"""Stable-Baselines3, off-policy (DQN, QR-DQN, SAC, TD3, TQC): a replay buffer that adds the bonus when a sample is drawn.

The buffer holds the environment's own rewards. A transition that is drawn is rated by the bonus as it is then, so what was new
once and is familiar now has lost its bonus:

    r' = R / sigma_R  +  c (1 - t)^2 (f(p_now(s)) - centre) / sigma_B

with the weight "auto"; with a number, R + beta (f(p_now(s)) - centre) / sigma_B. The bonus is fitted to transitions as they
arrive, at the end of the rollout that completes a thousand (`ex2.explorer`). sigma_R and sigma_B are of the discounted sums
along them, in the order that they came in and with the scores that they had then: the returns of the agent as it behaves, not
of what the buffer holds. The centre is the median score of the latest of them, so a state is paid for what it is newer than
where the agent goes now, and nothing is paid for staying alive. t is the share of the training at the last fit, not when a
transition was made: when the training ends, the bonus is gone from all that the buffer holds. Before the first fit there is no
bonus. Scales move, and a Q-function follows them as it follows its targets.

Ends of episodes are the buffer's own: behind a time limit values go on, and with them those of the bonus.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from ex2.arrays import Array
from ex2.batch import Batch, mapped
from ex2.errors import UsageError, missing_extra
from ex2.explorer import Explorer
from ex2.rows import seems_finite

try:
    from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
    from stable_baselines3.common.vec_env import VecNormalize
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "stable_baselines3":
        raise
    raise missing_extra("sb3", "stable_baselines3") from None


OURS = ("explorer", "normalizer", "arrived", "clock", "attended")  # what is not saved with a buffer


class BonusReplayBuffer(ReplayBuffer):
    """A replay buffer that tells an explorer what arrives, and rates transitions with it when they are drawn.

    `BonusCallback` puts one in place of the model's own. Pickled (`model.save_replay_buffer`), it holds the transitions only;
    `BonusCallback.save` keeps the bonus.
    """

    explorer: Explorer | None = None
    normalizer: VecNormalize | None = None
    """What rewards are normalised by when they are drawn; their scale is that of what the agent hears."""
    arrived: list[tuple[Any, ...]]
    """What the explorer was not told yet: some steps at once cost less than each for itself."""
    clock: Callable[[], int]
    """The model's steps so far."""
    attended: int
    """The same when a callback saw the latest step."""

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: Array,
        reward: Array,
        done: Array,
        infos: list[dict[str, Any]],
    ) -> None:
        if self.explorer is not None and not 0 <= self.clock() - self.attended <= self.n_envs:
            self.explorer = None  # the training that had a callback was broken off, and this one has none
        if self.explorer is not None and not seems_finite(next_obs):  # to be named before a policy stumbles over it
            self.tell()
            self.explorer.check_finite(self.explorer.view(next_obs))
        super().add(obs, next_obs, action, reward, done, infos)
        if self.explorer is not None:
            self.arrived.append((obs, next_obs, action, reward.copy(), *_ends(done, infos)))
            if len(self.arrived) * len(reward) >= self.explorer.gather:  # in one long rollout
                self.tell()
                self.explorer.learn()

    def tell(self) -> None:
        """Tells the explorer what has arrived since the last time."""
        if self.explorer is None:
            return
        view, everyone = self.explorer.view, np.ones(self.n_envs, bool)
        arrived, self.arrived = self.arrived, []
        for obs, next_obs, action, reward, *ends in arrived:
            heard = reward if self.normalizer is None else self.normalizer.normalize_reward(reward)
            if not seems_finite(heard):
                self.explorer.check_finite(heard, "reward")
            self.explorer.take((view(obs), self._unscaled(action), view(next_obs), *ends, everyone, heard))

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Transitions as the buffer draws them, with the bonus of now in their rewards."""
        if self.explorer is None:
            return super().sample(batch_size, env)
        drawn: Any = super().sample(batch_size)
        rewards = drawn.rewards.cpu().numpy()
        if env is not None:
            rewards = env.normalize_reward(rewards)
        shaped = self.explorer.rate(lambda: self._batch(drawn), rewards.reshape(1, -1))
        drawn.rewards.copy_(torch.as_tensor((shaped.rewards + shaped.bonuses).reshape(-1, 1)))  # a sample is a copy
        if env is None:
            return drawn
        before, after = (
            mapped(self.to_torch, env.normalize_obs(_arrays(some))) for some in (drawn.observations, drawn.next_observations)
        )
        return type(drawn)(before, drawn.actions, after, drawn.dones, drawn.rewards)

    def _batch(self, drawn: Any) -> Batch:
        """A sample as what the bonus sees."""
        assert self.explorer is not None
        before, after = (self._shaped_as(_arrays(some)) for some in (drawn.observations, drawn.next_observations))
        return self.explorer.batch(before, self._unscaled(drawn.actions.cpu().numpy()), after)

    def _shaped_as(self, observations: Any) -> Any:
        """Observations [B, ...] in the shape of their space: a buffer gives numbers a dimension."""
        if isinstance(observations, dict):
            assert isinstance(self.observation_space, spaces.Dict)
            shapes = {key: space.shape or () for key, space in self.observation_space.spaces.items()}
            return {key: values.reshape(len(values), *shapes[key]) for key, values in observations.items()}
        return observations.reshape(len(observations), *(self.observation_space.shape or ()))

    def _unscaled(self, actions: Array) -> Array:
        """Actions [B, ...] in the units of their space: buffers hold those of a Box from -1 to 1."""
        actions = actions.reshape(len(actions), *(self.action_space.shape or ()))
        if isinstance(self.action_space, spaces.Box):
            low, high = self.action_space.low, self.action_space.high
            actions = low + 0.5 * (actions + 1.0) * (high - low)
        return actions

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in OURS}


class BonusDictReplayBuffer(BonusReplayBuffer, DictReplayBuffer):
    """The same of Dict observations."""


def _ends(dones: Array, infos: list[dict[str, Any]]) -> tuple[Array, Array]:
    """Where episodes terminated, and where they were cut."""
    ended = dones.astype(bool)
    if True not in dones.tolist():  # of a few, this is the quickest
        return ended, ended
    truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
    return ended & ~truncated, truncated


def _arrays(observations: Any) -> Any:
    return mapped(lambda values: values.cpu().numpy(), observations)


def with_bonus(
    buffer: ReplayBuffer | None, explorer: Explorer, normalizer: VecNormalize | None, clock: Callable[[], int]
) -> BonusReplayBuffer:
    """A model's replay buffer with all that it holds, as one that adds a bonus."""
    if not isinstance(buffer, BonusReplayBuffer):
        kinds: dict[Any, type[BonusReplayBuffer]] = {ReplayBuffer: BonusReplayBuffer, DictReplayBuffer: BonusDictReplayBuffer}
        if type(buffer) not in kinds:
            raise UsageError(
                f"A bonus works with ReplayBuffer and DictReplayBuffer, not with {type(buffer).__name__}: leave out n_steps "
                "and replay_buffer_class, or derive yours from ex2.adapters.sb3_replay.BonusReplayBuffer."
            )
        held, kind = vars(buffer), kinds[type(buffer)]
        buffer = kind.__new__(kind)
        vars(buffer).update(held)
    vars(buffer).update(zip(OURS, (explorer, normalizer, [], clock, clock()), strict=True))
    return buffer
