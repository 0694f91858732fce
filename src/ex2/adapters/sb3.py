"""Stable-Baselines3: a callback that adds any bonus to on-policy training."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from ex2.arrays import Array
from ex2.batch import Batch, mapped
from ex2.bonus import Bonus, as_bonus
from ex2.errors import UsageError, missing_extra, unknown
from ex2.shaping import CENTRES, Shaper, Weight
from ex2.training.returns import Stream
from ex2.training.rollout import Observations

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.vec_env import VecNormalize, unwrap_vec_normalize
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "stable_baselines3":
        raise
    raise missing_extra("sb3", "stable_baselines3") from None


def stacked(observations: Sequence[Any]) -> Any:
    """Observations of several steps, [N, ...] each, as [T, N, ...]; dicts key by key."""
    if isinstance(observations[0], dict):
        return {key: stacked([observation[key] for observation in observations]) for key in observations[0]}
    return np.stack(observations)


class PolicyValues(nn.Module):
    """The critic of a Stable-Baselines3 policy, copied, and from 0."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.policy = copy.deepcopy(policy)
        nn.init.zeros_(self.policy.value_net.weight)
        nn.init.zeros_(self.policy.value_net.bias)
        asked, _ = self.policy.obs_to_tensor(self.policy.observation_space.sample())
        weights = list(self.policy.parameters())
        parts = torch.autograd.grad(self(asked).sum(), weights, allow_unused=True)
        self._used = [weight for weight, part in zip(weights, parts, strict=True) if part is not None]

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Those that values depend on: of an actor's own layers there is nothing to learn."""
        return iter(self._used)

    def forward(self, observations: Tensor) -> Tensor:
        return self.policy.predict_values(observations)


class BonusCallback(BaseCallback):
    """Adds a bonus to the rewards of an on-policy algorithm (TRPO, PPO, A2C), and computes returns and advantages anew.

    The environment's own reward is left alone everywhere but in the rollout buffer, so the scores that Stable-Baselines3
    reports stay the environment's.

    Args:
        bonus: a built bonus, or the name of one; the spaces then come from the model, the settings from `settings`.
        weight: beta, a number or a schedule; "auto" by default, which needs none (`ex2.shaping`).
        centre: what is subtracted from the bonuses of a batch: "median", "mean" or "none".
        total_steps: what the weight's schedule runs over; by default, what `learn` was asked for. Who calls `learn` again and
            again must say it, or the bonus ends with each call.
        last_frame: observations are stacks of frames [frames, height, width], and the bonus sees the last one only.
        episodic: whether the bonus's returns end with an episode; if not, they have a critic of their own
            (`ex2.training.returns.Stream`).
        scaled: whether scores are divided by the running deviation of their discounted sums.

    After each rollout `metrics` holds what there is to report, and `bonuses` the weighted bonus of each transition [T, N].
    """

    def __init__(
        self,
        bonus: Bonus | str = "kernel-exemplar",
        weight: float | str | Weight = "auto",
        *,
        centre: str = "median",
        total_steps: int | None = None,
        last_frame: bool = False,
        episodic: bool = True,
        scaled: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__()
        if centre not in CENTRES:
            raise unknown("centre", centre, CENTRES)
        self._bonus, self._settings = bonus, settings
        self.weight = weight if isinstance(weight, Weight) else Weight(start=weight)  # type: ignore[arg-type]
        self.scaled = scaled
        self.centre = centre
        self.total_steps = total_steps
        self.last_frame = last_frame
        self.episodic = episodic
        self.shaper: Shaper | None = None
        self.stream: Stream | None = None
        self.metrics: dict[str, float] = {}
        self.bonuses = np.zeros((0, 0), np.float32)
        self.batch: Batch | None = None
        self._asked = 0
        self._streamed: Any = None  # the model whose critic the stream's is a copy of

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
        self._settings = {}
        if self.shaper is None or self.shaper.bonus is not self._bonus:
            self.shaper = Shaper(self._bonus, self.weight, self.model.gamma, self.centre, self.scaled, self.episodic)
        if not self.episodic and (self.stream is None or self._streamed is not self.model):
            policy, self._streamed = self.model.policy, self.model
            if not isinstance(policy, ActorCriticPolicy) or hasattr(policy, "lstm_actor"):
                raise UsageError(
                    f"episodic=False does not work with {type(policy).__name__}: its values need more than observations."
                )
            seed = self._bonus.generator.initial_seed()
            self.stream = Stream(PolicyValues(policy), self.model.gamma, self.model.gae_lambda, seed)

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

    def _on_training_start(self) -> None:
        self._asked = self.locals["total_timesteps"]

    def _on_rollout_start(self) -> None:
        self._after: list[Any] = []
        self._finals: list[tuple[int, int, Any]] = []  # step, environment and observation of each end of an episode
        self._rewards: list[Array] = []
        self._terminated: list[Any] = []
        self._truncated: list[Any] = []
        self._first = None if self._normalizer is None else self._normalizer.get_original_obs()

    def _original(self, observation: Any) -> Any:
        """Observations as the environment gave them: a running normaliser must not move what has been visited.

        Only the last observation of an episode has to be computed back from its normalised form, so it is exact up to
        VecNormalize's own clipping.
        """
        return observation if self._normalizer is None else self._normalizer.get_original_obs()

    def _on_step(self) -> bool:
        done, infos = self.locals["dones"], self.locals["infos"]
        after = self._original(self.locals["new_obs"])
        self._refuse_non_finite(after, "observation")
        truncated = np.zeros_like(done)
        for index in np.flatnonzero(done):
            final: Any = infos[index]["terminal_observation"]
            final = final if self._normalizer is None else self._normalizer.unnormalize_obs(final)
            self._refuse_non_finite(stacked([final]), "observation", int(index))
            self._finals.append((len(self._after), int(index), final))
            truncated[index] = infos[index].get("TimeLimit.truncated", False)
        self._refuse_non_finite(self.locals["rewards"], "reward")
        self._rewards.append(self.locals["rewards"].copy())
        self._truncated.append(truncated)
        self._terminated.append(done & ~truncated)
        self._after.append(after)
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
                f"The {name} of environment {first + index} at step {len(self._after)} of the rollout, {self.num_timesteps:,} "
                f"steps into training, is {values[index]}: environments must give finite numbers."
            )

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, OnPolicyAlgorithm)
        model, buffer = self.model, self.model.rollout_buffer
        self.batch = self._transitions(buffer)
        progress = (model.num_timesteps - len(self._rewards) * model.n_envs) / (self.total_steps or self._asked)
        assert self.shaper is not None
        own = np.stack(self._rewards)
        shaped = self.shaper(self.batch, own, progress)
        self.bonuses = shaped.bonuses
        buffer.rewards[:] = shaped.rewards + (buffer.rewards - own)  # beside them, what is expected behind a time limit
        if self.stream is None:
            buffer.rewards += self.bonuses
        buffer.compute_returns_and_advantage(last_values=self.locals["values"], dones=self.locals["dones"])
        if self.stream is not None:
            buffer.advantages += self._stream_advantages(self.bonuses)
        self.metrics = shaped.metrics | {"entropy": -float(buffer.log_probs.mean())}
        for name, value in self.metrics.items():
            self.logger.record(name, value)

    def _transitions(self, buffer: Any) -> Batch:
        """The transitions of the rollout, as the environment gave them."""
        assert self.model is not None
        actions = buffer.actions.reshape(*buffer.actions.shape[:2], *(self.model.action_space.shape or ()))
        first = self._first if self._first is not None else self._held_first(buffer.observations, self._after[0])
        seen = stacked([first, *self._after])
        finals, self._after, self._finals = self._finals, [], []
        before, after = mapped(lambda x: x[:-1], seen), mapped(lambda x: x[1:].copy() if finals else x[1:], seen)
        for step, index, final in finals:
            for key in final if isinstance(final, dict) else [...]:
                part, last = (after, final) if key is ... else (after[key], final[key])
                part[step, index] = last
        if self.last_frame:
            before, after = before[:, :, -1:], after[:, :, -1:]
        return Batch.of(before, actions, after, np.stack(self._terminated), np.stack(self._truncated))

    def _held_first(self, held: Any, like: Any) -> Any:
        """The observations that the rollout began with, in the shape environments give them: a buffer adds a dimension."""
        if isinstance(held, Mapping):
            return {key: self._held_first(held[key], like[key]) for key in held}
        return held[0].reshape(like.shape)

    def _stream_advantages(self, bonuses: Array) -> Array:
        """The advantages of a bonus whose returns go on over the ends of episodes."""
        assert isinstance(self.model, OnPolicyAlgorithm)
        assert self.stream is not None
        policy, held = self.model.policy, self.model.rollout_buffer.observations
        last, _ = policy.obs_to_tensor(self.locals["new_obs"])
        if isinstance(held, dict) or isinstance(last, dict):
            raise UsageError("episodic=False does not take Dict observations: leave it out, or flatten them.")
        rows = torch.as_tensor(held.reshape(-1, *held.shape[2:]), device=policy.device)
        return self.stream.advantages(bonuses, Observations(rows, lambda some: some), last)
