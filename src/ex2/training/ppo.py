"""PPO (Schulman et al. 2017): many small steps of Adam on a rollout, with ratios clipped so that none pays for going far."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ex2.arrays import Array
from ex2.settings import setting
from ex2.training.algorithm import Algorithm, AlgorithmSettings, Metrics, standardised
from ex2.training.rollout import Rollout


@dataclass(frozen=True, kw_only=True)
class PPOSettings(AlgorithmSettings):
    """The settings of PPO, in Stable-Baselines3's words and with its defaults."""

    gae_lambda: float = setting(0.95, "Of generalised advantage estimation: 1 for returns, 0 for one step.", least=0, most=1)
    learning_rate: float = setting(3e-4, "Of Adam.", above=0)
    n_epochs: int = setting(10, "Passes over the rollout.", least=1, most=10_000)
    clip_range: float = setting(0.2, "How far the ratio of new to old probabilities pays.", above=0)
    ent_coef: float = setting(0.0, "What entropy counts in the loss.", least=0)
    vf_coef: float = setting(0.5, "What the critic's squared error counts in the loss.", least=0)
    max_grad_norm: float = setting(0.5, "What the gradient is cut to.", above=0)
    target_kl: float | None = setting(None, "An update ends once the KL divergence is 1.5 times this.", above=0)


class PPO(Algorithm):
    """Actor and critic are trained together."""

    Settings = PPOSettings
    settings: PPOSettings

    def trained(self) -> list[nn.Parameter]:
        return [*self.policy.actor.parameters(), *self.policy.critic.parameters()]

    def update(self, rollout: Rollout, advantages: Array, returns: Array, progress: float = 0.0) -> Metrics:
        if not advantages.any():
            return {}
        settings, policy, parameters = self.settings, self.policy, self.trained()
        observations, actions, device = rollout.observations, policy.actions, policy.device
        all_advantages, all_returns = (torch.as_tensor(part, device=device).flatten() for part in (advantages, returns))
        with torch.no_grad():
            old_log_probs = actions.log_prob(rollout.parameters, rollout.actions)
        losses: list[torch.Tensor] = []
        for _ in range(settings.n_epochs):
            for rows in torch.randperm(len(observations), generator=self.generator).to(device).split(settings.batch_size):
                seen = observations[rows]
                outputs = policy.actor(seen)
                log_ratio = actions.log_prob(outputs, rollout.actions[rows]) - old_log_probs[rows]
                ratio, gain = log_ratio.exp(), all_advantages[rows]
                if settings.normalize_advantage and len(rows) > 1:
                    gain = standardised(gain)
                clipped = ratio.clamp(1.0 - settings.clip_range, 1.0 + settings.clip_range)
                policy_loss = -torch.minimum(gain * ratio, gain * clipped).mean()
                value_loss = (policy.critic(seen).squeeze(1) - all_returns[rows]).square().mean()
                entropy = actions.entropy(outputs).mean()
                loss = policy_loss + settings.vf_coef * value_loss - settings.ent_coef * entropy
                with torch.no_grad():
                    divergence = (ratio - 1.0 - log_ratio).mean()
                losses.append(torch.stack([policy_loss, value_loss, entropy, divergence]).detach())
                if settings.target_kl is not None and divergence > 1.5 * settings.target_kl:
                    return _report(losses)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, settings.max_grad_norm)
                self.optimizer.step()
        return _report(losses)


def _report(losses: list[torch.Tensor]) -> Metrics:
    names = ("policy_loss", "value_loss", "entropy", "approx_kl")
    return {f"train/{name}": value for name, value in zip(names, torch.stack(losses).mean(0).tolist(), strict=True)}
