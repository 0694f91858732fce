"""Gymnasium: wrappers that add a bonus to the rewards of an environment, alone or in a vector.

    envs = BonusVectorWrapper(envs, total_steps=1_000_000)

`infos["env_reward"]` is the environment's own reward, and `infos["bonus"]` the weighted bonus of each step; the reward is their
sum, on the scale that `ex2.shaping` describes. A wrapper has to answer at once, so a step is rated by what the bonus learned at
its last fit (`ex2.explorer`). Steps that only reset an environment have no bonus and are not learned from.

Wrap the environments of the training only: an evaluation's have no bonus then. What counts episodes' returns
(`RecordEpisodeStatistics`) belongs inside of it. Off-policy agents store rewards, and those would keep their first bonus: for
Stable-Baselines3's there is `ex2.adapters.sb3`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv, VectorWrapper

from ex2.batch import mapped
from ex2.bonus import Bonus
from ex2.errors import UsageError
from ex2.explorer import Explorer
from ex2.shaping import Weight
from ex2.view import copied


class BonusVectorWrapper(VectorWrapper):
    """Adds a bonus to the rewards of a vector of environments, whatever its autoreset mode.

    `settings` are those of `ex2.Explorer` (gamma, total_steps, see, ...) and of the bonus.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        bonus: Bonus | str = "kernel-exemplar",
        weight: float | str | Weight = "auto",
        **settings: Any,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise UsageError(
                f"BonusVectorWrapper takes a vector of environments, gymnasium.make_vec(...), not {type(env).__name__}: "
                "BonusWrapper is for one."
            )
        check_once(env)
        super().__init__(env)
        self.explorer = Explorer.of(env, bonus, weight, **settings)
        self.explorer.check_length()
        self._before: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")  # which environments take out
        obs, infos = self.env.reset(seed=seed, options=options)
        self.explorer.reset(mask)
        self._before = copied(obs)  # a vector may write into the same memory
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self._before is None:
            raise UsageError("There is no observation to begin with: call reset before step.")
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        if not isinstance(infos, Mapping):
            raise UsageError(f"infos are a {type(infos).__name__}: put what makes them one outside of BonusVectorWrapper.")
        after = copied(obs)
        self.explorer.step(self._before, copied(actions), after, rewards, terminated, truncated, infos, copy=False)
        self._before = after
        shaped = self.explorer.rollout()
        infos = dict(infos) | {"env_reward": rewards, "bonus": shaped.bonuses[0]}
        return obs, shaped.rewards[0] + shaped.bonuses[0], terminated, truncated, infos


class BonusWrapper(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds a bonus to the rewards of one environment; a step behind the end of an episode is taken for its reset (`Autoreset`).

    `settings` are those of `ex2.Explorer` (gamma, total_steps, see, ...) and of the bonus.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        bonus: Bonus | str = "kernel-exemplar",
        weight: float | str | Weight = "auto",
        **settings: Any,
    ) -> None:
        if not isinstance(env, gymnasium.Env):
            raise UsageError(
                f"BonusWrapper takes one environment, gymnasium.make(...), not {type(env).__name__}: BonusVectorWrapper is for "
                "several."
            )
        check_once(env)
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, bonus=bonus, weight=weight, **settings)
        gymnasium.Wrapper.__init__(self, env)
        mode = gymnasium.vector.AutoresetMode.NEXT_STEP
        self.explorer = Explorer(env.observation_space, env.action_space, bonus, weight, autoreset=mode, **settings)
        self.explorer.check_length()
        self._before: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.explorer.reset()
        self._before = _one(obs)
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._before is None:
            raise UsageError("There is no observation to begin with: call reset before step.")
        obs, reward, terminated, truncated, info = self.env.step(action)
        after, own = _one(obs), np.array([float(reward)])
        ends = np.array([terminated]), np.array([truncated])
        self.explorer.step(self._before, _one(action), after, own, *ends, copy=False)
        shaped = self.explorer.rollout()
        self._before = after
        info = dict(info) | {"env_reward": reward, "bonus": float(shaped.bonuses[0, 0])}
        return obs, float(shaped.rewards[0, 0] + shaped.bonuses[0, 0]), terminated, truncated, info


def check_once(env: Any) -> None:
    """Refuses environments that have a bonus."""
    while env is not None:
        if isinstance(env, BonusVectorWrapper | BonusWrapper):
            raise UsageError("The environments have a bonus already: wrap them once, 'kernel-exemplar+rnd' is two in one.")
        env = getattr(env, "env", None)


def _one(observation: Any) -> Any:
    """One observation or action as several, [1, ...], in memory of its own."""
    return mapped(lambda values: np.array(values)[None], observation)
