"""Rollouts with one pass of the actor a step: the critic sees them once they are complete, all at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from ex2.training.frames import FrameRolloutBuffer

CHUNK = {"cpu": 4_000_000, "cuda": 200_000_000}
"""Numbers in the observations that go through a network at once, by device: a processor does more in its caches."""


def prepared(policy: ActorCriticPolicy, observations: Any) -> Tensor:
    """Observations as environments give them -> what networks take, on the policy's device: floats, images from 0 to 1."""
    found = torch.as_tensor(observations, device=policy.device)
    if not isinstance(policy.observation_space, spaces.Box):
        return preprocess_obs(found, policy.observation_space)  # type: ignore[return-value]
    if found.dtype == torch.uint8 and found.ndim == 4 and policy.normalize_images:
        return found.float().mul_(1.0 / 255.0)
    return found.float()


def actor_of(policy: ActorCriticPolicy) -> nn.Sequential:
    """Prepared observations [M, ...] -> logits, or means, [M, A]."""
    return nn.Sequential(policy.pi_features_extractor, policy.mlp_extractor.policy_net, policy.action_net)


def critic_of(policy: ActorCriticPolicy) -> nn.Sequential:
    """Prepared observations [M, ...] -> values [M, 1]."""
    return nn.Sequential(policy.vf_features_extractor, policy.mlp_extractor.value_net, policy.value_net)


def distribution(outputs: Tensor, log_std: Tensor | None) -> Normal | Categorical:
    """The distribution of actions that an actor's outputs make: around means, or over choices."""
    if log_std is None:
        return Categorical(logits=outputs, validate_args=False)
    return Normal(outputs, log_std.exp(), validate_args=False)


def log_chances(choice: Normal | Categorical, actions: Tensor) -> Tensor:
    """The log-likelihood of each of the actions [M] or [M, A] -> [M]."""
    found = choice.log_prob(actions)
    return found if found.ndim == 1 else found.sum(1)


class Observations:
    """The observations of a rollout by their rows in [T * N], prepared when asked for; each frame is held once."""

    def __init__(self, buffer: RolloutBuffer, policy: ActorCriticPolicy) -> None:
        held = buffer.observations.reshape(buffer.buffer_size * buffer.n_envs, *buffer.observations.shape[2:])
        self._policy = policy
        self._held = torch.as_tensor(held, device=policy.device)
        self._frames = None
        if isinstance(buffer, FrameRolloutBuffer):
            self._frames = torch.as_tensor(buffer.frames, device=policy.device)
            self._held = self._held.long()
        self._chunk = max(CHUNK.get(policy.device.type, CHUNK["cpu"]) // math.prod(buffer.obs_shape), 1)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def rows(self) -> Tensor:
        """All of them."""
        return torch.arange(len(self), device=self._held.device)

    def chunks(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """As many rows at once as a network should see, and their observations."""
        for some in rows.split(self._chunk):
            found = self._held[some]
            yield some, prepared(self._policy, found if self._frames is None else self._frames[found])

    @torch.no_grad()
    def through(self, network: nn.Module) -> Tensor:
        """What a network makes of all of them."""
        return torch.cat([network(seen) for _, seen in self.chunks(self.rows)])


def actions_of(buffer: RolloutBuffer) -> Tensor:
    """The actions of a rollout, [T * N] or [T * N, A], on the policy's device."""
    actions = torch.as_tensor(buffer.actions, device=buffer.device).flatten(0, 1)
    return actions.squeeze(1) if isinstance(buffer.action_space, spaces.Discrete) else actions


def fit_critic(
    critic: nn.Module,
    optimiser: torch.optim.Optimizer,
    seen: Observations,
    returns: Any,
    *,
    epochs: int,
    batch_size: int,
    generator: torch.Generator | None = None,
) -> float:
    """Fits a critic to the returns [T, N] of a rollout; returns its mean squared error on the way."""
    weights, errors = list(critic.parameters()), []
    targets = torch.as_tensor(returns, dtype=torch.float32, device=seen.rows.device).flatten()
    for _ in range(epochs):
        for rows in torch.randperm(len(seen), generator=generator).to(targets.device).split(batch_size):
            optimiser.zero_grad()
            for some, observations in seen.chunks(rows):
                error = (critic(observations).squeeze(1) - targets[some]).square().sum()
                (error / len(rows)).backward(inputs=weights)
                errors.append(error.detach())
            optimiser.step()
    return torch.stack(errors).sum().item() / (epochs * len(seen)) if errors else 0.0


class Rollouts(OnPolicyAlgorithm):
    """An on-policy algorithm of Stable-Baselines3 that collects rollouts faster; for Box and Discrete actions."""

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        policy, space, buffer = self.policy, self.action_space, rollout_buffer
        policy.set_training_mode(False)
        actor, log_std = actor_of(policy), getattr(policy, "log_std", None)
        later = torch.zeros(env.num_envs)  # values and log chances of a step, which come when the rollout is complete
        outputs: list[Tensor] = []
        ends: list[tuple[int, int, Any]] = []  # step, environment and last observation of episodes cut short by a time limit
        buffer.reset()
        callback.on_rollout_start()
        for step in range(n_rollout_steps):
            with torch.no_grad():
                outputs.append(actor(prepared(policy, self._last_obs)))
                actions = distribution(outputs[-1], log_std).sample().cpu().numpy()
            clipped = np.clip(actions, space.low, space.high) if isinstance(space, spaces.Box) else actions
            new_obs, rewards, dones, infos = env.step(clipped)
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            for index in np.flatnonzero(dones).tolist():
                if infos[index].get("TimeLimit.truncated", False):
                    ends.append((step, index, infos[index]["terminal_observation"]))
            shaped = actions.reshape(env.num_envs, -1)
            buffer.add(self._last_obs, shaped, rewards, self._last_episode_starts, later, later)  # type: ignore[arg-type]
            self._last_obs, self._last_episode_starts = new_obs, dones  # type: ignore[assignment]
        values = self._complete(torch.cat(outputs), ends)
        buffer.compute_returns_and_advantage(last_values=values, dones=dones)
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    @torch.no_grad()
    def _complete(self, outputs: Tensor, ends: list[tuple[int, int, Any]]) -> Tensor:
        """Adds values, log chances and what the critic expects behind a time limit; returns the values behind the last step."""
        policy, buffer, critic = self.policy, self.rollout_buffer, critic_of(self.policy)
        buffer.values[:] = Observations(buffer, policy).through(critic).cpu().numpy().reshape(buffer.values.shape)
        chances = log_chances(distribution(outputs, getattr(policy, "log_std", None)), actions_of(buffer))
        buffer.log_probs[:] = chances.cpu().numpy().reshape(buffer.log_probs.shape)
        if ends:
            last = critic(prepared(policy, np.stack([observation for _, _, observation in ends])))
            for (step, index, _), value in zip(ends, last.flatten().tolist(), strict=True):
                buffer.rewards[step, index] += self.gamma * value
        return critic(prepared(policy, self._last_obs))
