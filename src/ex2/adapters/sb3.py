"""Stable-Baselines3: a callback that adds any bonus to on-policy training, and Gymnasium's vector environments as VecEnv."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_normalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ex2.adapters.stream import Stream
from ex2.batch import Batch, mapped
from ex2.bonus import Bonus, as_bonus
from ex2.errors import UsageError, unknown
from ex2.shaping import CENTRES, Weight, centred


def stacked(observations: Sequence[Any]) -> Any:
    """Observations of several steps, [N, ...] each, as [T, N, ...]; dicts key by key."""
    if isinstance(observations[0], dict):
        return {key: stacked([observation[key] for observation in observations]) for key in observations[0]}
    return np.stack(observations)


class BonusCallback(BaseCallback):
    """Adds a bonus to the rewards of an on-policy algorithm (TRPO, PPO, A2C), and computes returns and advantages anew.

    The environment's own reward is left alone everywhere but in the rollout buffer, so the scores that Stable-Baselines3
    reports stay the environment's.

    Args:
        bonus: a built bonus, or the name of one; the spaces then come from the model, the settings from `settings`.
        weight: beta, a number or a schedule.
        centre: what is subtracted from the bonuses of a batch: "median", "mean" or "none".
        total_steps: what the weight's schedule runs over; by default, what `learn` was asked for.
        last_frame: observations are stacks of frames [frames, height, width], and the bonus sees the last one only.
        episodic: whether the bonus's returns end with an episode; if not, they have a value function of their own
            (`ex2.adapters.stream`).
        entropy: a reward for acting at random, entropy * -log pi(a|s), which keeps a policy from settling too soon.

    After each rollout `metrics` holds what there is to report, and `bonuses` the weighted bonus of each transition [T, N].
    """

    def __init__(
        self,
        bonus: Bonus | str,
        weight: float | Weight = 1.0,
        *,
        centre: str = "median",
        total_steps: int | None = None,
        last_frame: bool = False,
        episodic: bool = True,
        entropy: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__()
        if centre not in CENTRES:
            raise unknown("centre", centre, CENTRES)
        self._bonus, self._settings = bonus, settings
        self.weight = weight if isinstance(weight, Weight) else Weight(weight)
        self.centre = centre
        self.total_steps = total_steps
        self.last_frame = last_frame
        self.episodic, self.entropy = episodic, entropy
        self.stream: Stream | None = None
        self.metrics: dict[str, float] = {}
        self.bonuses = np.zeros((0, 0), np.float32)
        self.batch: Batch | None = None

    @property
    def bonus(self) -> Bonus:
        """The bonus, once it is built: at the start of training at the latest."""
        assert isinstance(self._bonus, Bonus)
        return self._bonus

    def _init_callback(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm):
            raise UsageError(
                f"BonusCallback works with on-policy algorithms (TRPO, PPO, A2C), not with {type(self.model).__name__}."
            )
        self._normalizer = self._find_normalizer()
        space = self.model.observation_space if self._normalizer is None else self._normalizer.venv.observation_space
        if self.last_frame:
            if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 3:
                raise UsageError(
                    f"last_frame=True is for stacks of frames [frames, height, width], not for {space}: leave it out."
                )
            space = gymnasium.spaces.Box(space.low[-1:], space.high[-1:], dtype=space.low.dtype.type)
        self._bonus = as_bonus(self._bonus, space, self.model.action_space, **self._settings)
        if not self.episodic and (self.stream is None or self.stream.model is not self.model):
            self.stream = Stream(self.model, self._bonus.generator.initial_seed())
        self._settings = {}

    def _find_normalizer(self) -> VecNormalize | None:
        """The wrapper that normalises observations, if one does: the bonus then looks below it."""
        found = unwrap_vec_normalize(self.training_env)
        if found is None or not found.norm_obs:
            return None
        if found is not self.training_env:
            raise UsageError(
                f"{type(self.training_env).__name__} is wrapped around a VecNormalize that normalises observations: "
                "put VecNormalize outermost, or pass it norm_obs=False."
            )
        return found

    def _on_rollout_start(self) -> None:
        self._obs: list[Any] = []
        self._finals: list[tuple[int, int, Any]] = []  # step, environment and observation of each end of an episode
        self._terminated: list[Any] = []
        self._truncated: list[Any] = []
        assert isinstance(self.model, OnPolicyAlgorithm)
        self._current = self._original(self.model._last_obs)

    def _original(self, observation: Any) -> Any:
        """Observations as the environment gave them: a running normaliser must not move what has been visited.

        Only the last observation of an episode has to be computed back from its normalised form, so it is exact up to
        VecNormalize's own clipping.
        """
        seen: Any = observation if self._normalizer is None else self._normalizer.get_original_obs()
        return seen[:, -1:].copy() if self.last_frame else seen

    def _on_step(self) -> bool:
        done, infos = self.locals["dones"], self.locals["infos"]
        after = self._original(self.locals["new_obs"])
        self._refuse_non_finite(after, "observation")
        truncated = np.zeros_like(done)
        for index in np.flatnonzero(done):
            final: Any = infos[index]["terminal_observation"]
            final = final if self._normalizer is None else self._normalizer.unnormalize_obs(final)
            self._refuse_non_finite(stacked([final]), "observation", int(index))
            self._finals.append((len(self._obs), int(index), final[-1:] if self.last_frame else final))
            truncated[index] = infos[index].get("TimeLimit.truncated", False)
        self._refuse_non_finite(self.locals["rewards"], "reward")
        self._obs.append(self._current)
        self._truncated.append(truncated)
        self._terminated.append(done & ~truncated)
        self._current = after
        return True

    def _refuse_non_finite(self, values: Any, name: str, first: int = 0) -> None:
        """Names the environment, from `first` on, that gave a number no agent can learn from, before the policy stumbles."""
        if isinstance(values, dict):
            for key, part in values.items():
                self._refuse_non_finite(part, f"{name}[{key!r}]", first)
            return
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            index = int(np.argwhere(~np.isfinite(values))[0][0])
            raise UsageError(
                f"The {name} of environment {first + index} at step {len(self._obs)} of the rollout, {self.num_timesteps:,} "
                f"steps into training, is {values[index]}: environments must give finite numbers."
            )

    def _on_rollout_end(self) -> None:
        started = time.perf_counter()
        assert isinstance(self.model, OnPolicyAlgorithm)
        buffer = self.model.rollout_buffer
        actions = buffer.actions.reshape(*buffer.actions.shape[:2], *(self.model.action_space.shape or ()))
        seen = stacked([*self._obs, self._current])
        before, after = mapped(lambda x: x[:-1], seen), mapped(lambda x: x[1:].copy() if self._finals else x[1:], seen)
        for step, index, final in self._finals:
            for key in final if isinstance(final, dict) else [...]:
                part, last = (after, final) if key is ... else (after[key], final[key])
                part[step, index] = last
        self.batch = Batch.of(before, actions, after, np.stack(self._terminated), np.stack(self._truncated))
        self._obs, self._finals = [], []
        raw, fitted = self.bonus.observe(self.batch)
        total = self.total_steps or self.model._total_timesteps
        weight = self.weight.at(min(self.model.num_timesteps / total, 1.0))
        scores = centred(raw, self.batch.mask, self.centre)
        self.bonuses = (weight * scores).numpy()
        buffer.rewards += (self.bonuses if self.stream is None else 0.0) - self.entropy * buffer.log_probs
        buffer.compute_returns_and_advantage(last_values=self.locals["values"], dones=self.locals["dones"])
        if self.stream is not None:
            buffer.advantages += weight * self.stream.take(scores.numpy())
        self.metrics = {
            "bonus/mean": float(raw.mean()),
            "bonus/std": float(raw.std(unbiased=False)),
            "bonus/weight": weight,
            "entropy": -float(buffer.log_probs.mean()),
            "bonus/seconds": time.perf_counter() - started,
        } | {f"bonus/{name}": value for name, value in fitted.items()}
        for name, value in self.metrics.items():
            self.logger.record(name, value)


class GymnasiumVecEnv(VecEnv):
    """A Gymnasium vector environment as a Stable-Baselines3 VecEnv, with the episode statistics that Monitor would add.

    The environment must reset in the same step (AutoresetMode.SAME_STEP): only then does every step hand over a real
    transition, with the last observation of an ended episode in the infos. With `clip_reward` rewards are clipped to [-1, 1];
    the episode statistics are of the rewards as they were.
    """

    def __init__(self, env: VectorEnv, clip_reward: bool = False) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise UsageError(
                f"{env} has the autoreset mode {mode}: Stable-Baselines3 needs AutoresetMode.SAME_STEP, "
                "make it with vector_kwargs={'autoreset_mode': AutoresetMode.SAME_STEP}."
            )
        self.env = env
        self.clip_reward = clip_reward
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._actions: np.ndarray | None = None

    def reset(self) -> np.ndarray:
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        observation, _ = self.env.reset(seed=seeds)  # type: ignore[arg-type]
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        observation, reward, terminated, truncated, infos = self.env.step(self._actions)
        done = terminated | truncated
        self._returns += reward
        self._lengths += 1
        listed: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        died = infos.get("died")
        for index in np.flatnonzero(done):
            listed[index] = {
                "terminal_observation": infos["final_obs"][index],
                "TimeLimit.truncated": bool(truncated[index] and not terminated[index]),
            }
            if not (died is not None and died[index]):  # an episode that a crash has cut short is no score
                listed[index]["episode"] = {"r": float(self._returns[index]), "l": int(self._lengths[index])}
        self._returns[done] = 0.0
        self._lengths[done] = 0
        learned = np.clip(reward, -1.0, 1.0) if self.clip_reward else reward
        return observation, learned.astype(np.float32), done, listed

    def get_state(self) -> dict[str, Any]:
        """Everything that the next step depends on; the environment must offer `get_state`."""
        return {"env": self.env.unwrapped.get_state(), "returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.env.unwrapped.set_state(state["env"])
        self._returns, self._lengths = np.array(state["returns"]), np.array(state["lengths"])

    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        return self.env.render() or [None] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise UsageError(f"{attr_name} cannot be set on single environments of {self.env}: they are stepped as one batch.")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        raise UsageError(f"{method_name} cannot be called on single environments of {self.env}: they are stepped as one batch.")

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))
