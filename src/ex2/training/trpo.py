"""TRPO (Schulman et al. 2015): the best step by a linear objective within a trust region of the KL divergence.

The settings, and what an update does, are sb3-contrib's; three things make it cheaper:

- The Fisher matrix is J^T M J, with J the Jacobian of the policy's outputs by its parameters and M the curvature of the KL
  divergence by those outputs, which is known: diag(p) - p p^T for logits, 1 / sigma^2 for means and 2 for log sigma. A product
  with it takes one pass forwards and one backwards, where differentiating the KL divergence twice takes several; and it needs
  no more than a share of the states: the line search that follows holds the trust region on all of them.
- Observations stay on the policy's device, in the form they are stored in, and go through the networks in chunks; only those of
  the Fisher matrix are held as a network sees them.
- The critic's steps do nothing else (`torch.optim.Adam` as one kernel, no gradients for the actor).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import sb3_contrib
import torch
from sb3_contrib.common.utils import conjugate_gradient_solver
from stable_baselines3.common.utils import explained_variance
from torch import Tensor, nn
from torch.distributions import kl_divergence
from torch.func import functional_call, jvp
from torch.nn.utils import parameters_to_vector

from ex2.training.rollout import Observations, Rollouts, actions_of, actor_of, critic_of, distribution, fit_critic, log_chances


class TRPO(Rollouts, sb3_contrib.TRPO):
    """sb3-contrib's TRPO, leaner.

    Args:
        curvature_share: of the states of a rollout, for the Fisher matrix.
        final_kl: what `target_kl` falls to, linearly, over `total_steps`; by default it stays.
    """

    def __init__(
        self,
        *args: Any,
        curvature_share: float = 1.0,
        final_kl: float | None = None,
        total_steps: int | None = None,
        **settings: Any,
    ) -> None:
        if not 0.0 < curvature_share <= 1.0:
            raise ValueError(f"curvature_share={curvature_share} must be above 0 and at most 1")
        if final_kl is not None and (not 0.0 <= final_kl < math.inf or not total_steps):
            raise ValueError(f"final_kl={final_kl} must be at least 0, and total_steps={total_steps} be given with it")
        if settings.get("sub_sampling_factor", 1) != 1:
            raise ValueError("sub_sampling_factor is not for this TRPO: curvature_share does its work")
        for name, least in (("batch_size", 1), ("n_critic_updates", 0), ("cg_max_steps", 1), ("line_search_max_iter", 0)):
            if type(settings.get(name, least)) is not int or settings.get(name, least) < least:
                raise ValueError(f"{name}={settings[name]} must be a whole number of at least {least}")
        self.curvature_share, self.final_kl, self.total_steps = curvature_share, final_kl, total_steps
        super().__init__(*args, **settings)

    def _setup_model(self) -> None:
        super()._setup_model()
        if set(actor_of(self.policy).parameters()) & set(critic_of(self.policy).parameters()):
            raise ValueError("actor and critic share layers, which no trust region would hold: share_features_extractor=False")

    def train(self) -> None:
        """An update; where all advantages are 0 there is nothing to learn, and nothing changes."""
        if self.rollout_buffer.advantages.any():
            self.policy.set_training_mode(True)
            self._update_learning_rate(self.policy.optimizer)
            seen = Observations(self.rollout_buffer, self.policy)
            self._improve(seen)
            self._evaluate(seen)
            if hasattr(self.policy, "log_std"):
                self.logger.record("train/std", self.policy.log_std.exp().mean().item())
        self._n_updates += 1
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    @property
    def trust(self) -> float:
        """The KL divergence that an update may come to."""
        if self.final_kl is None:
            return self.target_kl
        assert self.total_steps
        return self.target_kl + (self.final_kl - self.target_kl) * min(self.num_timesteps / self.total_steps, 1.0)

    def _improve(self, seen: Observations) -> None:
        """The actor's step."""
        buffer, actor, log_std = self.rollout_buffer, actor_of(self.policy), getattr(self.policy, "log_std", None)
        parameters = [*actor.parameters()] if log_std is None else [log_std, *actor.parameters()]
        actions = actions_of(buffer)
        worth, chances = (torch.as_tensor(part, device=self.device).flatten() for part in (buffer.advantages, buffer.log_probs))
        if self.normalize_advantage:
            worth = (worth - worth.mean()) / (worth.std() + 1e-8)

        before = parameters_to_vector(parameters).detach()
        objective, gradient, outputs = 0.0, torch.zeros_like(before), []
        for rows, observations in seen.chunks(seen.rows):
            outputs.append(actor(observations))
            ratio = (log_chances(distribution(outputs[-1], log_std), actions[rows]) - chances[rows]).exp()
            part = (worth[rows] * ratio).sum() / len(seen)
            gradient += parameters_to_vector(torch.autograd.grad(part, parameters))
            objective += part.item()
        old = distribution(torch.cat(outputs).detach(), None if log_std is None else log_std.detach().clone())

        some = torch.randperm(len(seen))[: max(round(self.curvature_share * len(seen)), 1)]
        fisher = Fisher(actor, log_std, [part for _, part in seen.chunks(some.to(self.device))], self.cg_damping)
        direction = conjugate_gradient_solver(fisher, gradient, max_iter=self.cg_max_steps)
        step = (2.0 * self.trust / (direction @ fisher(direction))).sqrt() * direction

        found = False
        with torch.no_grad():
            for trial in range(self.line_search_max_iter):
                put(before + self.line_search_shrinking_factor**trial * step, parameters)
                now = distribution(seen.through(actor), log_std)
                reached = (worth * (log_chances(now, actions) - chances).exp()).mean().item()
                divergence = kl_divergence(now, old).mean().item()
                found = divergence < self.trust and reached > objective
                if found:
                    break
            else:
                put(before, parameters)
                reached, divergence = objective, 0.0
        self.logger.record("train/policy_objective", reached)
        self.logger.record("train/kl_divergence_loss", divergence)
        self.logger.record("train/is_line_search_success", float(found))

    def _evaluate(self, seen: Observations) -> None:
        """The critic's steps."""
        buffer, epochs = self.rollout_buffer, self.n_critic_updates
        error = fit_critic(
            critic_of(self.policy), self.policy.optimizer, seen, buffer.returns, epochs=epochs, batch_size=self.batch_size
        )
        self.logger.record("train/value_loss", error)
        self.logger.record("train/explained_variance", explained_variance(buffer.values.flatten(), buffer.returns.flatten()))


def put(vector: Tensor, parameters: list[Tensor]) -> None:
    """Copies a vector into parameters. As views of it, as PyTorch's own function leaves them, they would compute other last
    bits than those that a checkpoint is loaded into."""
    for value, part in zip(parameters, vector.split([value.numel() for value in parameters]), strict=True):
        value.copy_(part.view_as(value))


class Fisher:
    """Vectors -> the Fisher matrix of an actor on some observations, plus damping, times the vector; log sigma comes first."""

    def __init__(self, actor: nn.Module, log_std: Tensor | None, observations: list[Tensor], damping: float) -> None:
        self.actor, self.damping, self.parameters = actor, damping, list(actor.parameters())
        self.weights = {name: value.detach().clone() for name, value in actor.named_parameters()}
        self.passes = [(seen, actor(seen)) for seen in observations]
        self.count = sum(len(seen) for seen in observations)
        self.precision = None if log_std is None else (-2.0 * log_std.detach()).exp()

    def __call__(self, vector: Tensor) -> Tensor:
        first = 0 if self.precision is None else len(self.precision)
        parts = vector[first:].split([value.numel() for value in self.parameters])
        tangents = {name: part.view_as(value) for (name, value), part in zip(self.weights.items(), parts, strict=True)}
        product = self.damping * vector
        if self.precision is not None:  # the mean over the dimensions of an action, too, as sb3-contrib has it
            product[:first] += 2.0 * vector[:first] / first
        for seen, outputs in self.passes:
            _, change = jvp(partial(self._act, seen), (self.weights,), (tangents,))  # type: ignore[misc]
            if self.precision is None:
                chances = outputs.detach().softmax(1)
                bent = chances * (change - (chances * change).sum(1, keepdim=True)) / self.count
            else:
                bent = change * self.precision / (first * self.count)
            slopes = torch.autograd.grad(outputs, self.parameters, bent, retain_graph=True)
            product[first:] += parameters_to_vector(slopes)
        return product

    def _act(self, seen: Tensor, weights: dict[str, Tensor]) -> Tensor:
        return functional_call(self.actor, weights, (seen,))
