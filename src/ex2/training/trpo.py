"""sb3-contrib's TRPO with a cheaper Fisher matrix: for policies on images it is nearly all of an update's cost.

The Fisher matrix is J^T M J, with J the Jacobian of the policy's outputs by its parameters and M the curvature of the KL
divergence by those outputs, which is known: diag(p) - p p^T for logits, 1 / sigma^2 for means and 2 for log sigma. A product
with it takes one pass forwards and one backwards, where differentiating the KL divergence twice takes several; and it needs no
more than a share of the states: the line search that follows holds the trust region on all of them.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from sb3_contrib import TRPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import preprocess_obs
from torch import Tensor, nn
from torch.func import functional_call, jvp

Gradients = tuple[list[nn.Parameter], Tensor, Tensor, list[tuple[int, ...]]]


class Outputs(nn.Module):
    """Observations -> what a policy's distribution is made of: logits, or means. Its parameters are the actor's."""

    def __init__(self, policy: ActorCriticPolicy) -> None:
        super().__init__()
        self.features, self.body, self.head = policy.pi_features_extractor, policy.mlp_extractor.policy_net, policy.action_net

    def forward(self, observations: Tensor) -> Tensor:
        return self.head(self.body(self.features(observations)))


class CurvatureTRPO(TRPO):
    """TRPO with the Fisher matrix from `curvature_share` of the states of a rollout; None leaves it to sb3-contrib."""

    def __init__(self, *args: Any, curvature_share: float | None = None, **settings: Any) -> None:
        if curvature_share is not None and not 0.0 < curvature_share <= 1.0:
            raise ValueError(f"curvature_share={curvature_share} must be above 0 and at most 1")
        self.curvature_share = curvature_share
        super().__init__(*args, **settings)

    def train(self) -> None:
        """An update; where all advantages are 0 there is nothing to learn, and nothing changes."""
        if self.rollout_buffer.advantages.any():
            super().train()
            self.__dict__.pop("_seen", None)  # a share of the rollout, and its way through the network
            self.__dict__.pop("_linked", None)
        else:
            self._n_updates += 1
            self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def _compute_actor_grad(self, kl_div: Tensor, policy_objective: Tensor) -> Gradients:
        if self.curvature_share is None:
            return super()._compute_actor_grad(kl_div, policy_objective)
        self._link(self.curvature_share)
        actor = list(self._outputs.parameters())
        if isinstance(self.action_space, spaces.Box):
            actor.insert(0, self.policy.log_std)
        gradients = torch.autograd.grad(policy_objective, actor, retain_graph=True)
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        return actor, flat, flat, [value.shape for value in actor]

    def _link(self, share: float) -> None:
        """Runs the actor on a share of the states, and keeps what products with the Fisher matrix need."""
        states = self.rollout_buffer.buffer_size * self.rollout_buffer.n_envs
        rows = torch.arange(0, states, 1.0 / share).long().clamp_max(states - 1)
        observations = self.rollout_buffer._get_samples(rows.numpy()).observations
        policy = self.policy
        self._seen = preprocess_obs(observations, policy.observation_space, normalize_images=policy.normalize_images)
        self._outputs = Outputs(policy)
        self._weights = {name: value.detach().clone() for name, value in self._outputs.named_parameters()}
        self._linked = self._outputs(self._seen)

    def hessian_vector_product(
        self, params: list[nn.Parameter], grad_kl: Tensor, vector: Tensor, retain_graph: bool = True
    ) -> Tensor:
        if self.curvature_share is None:
            return super().hessian_vector_product(params, grad_kl, vector, retain_graph)
        parts = [part.view_as(value) for part, value in zip(vector.split([p.numel() for p in params]), params, strict=True)]
        first = len(parts) - len(self._weights)  # behind log sigma, where there is one
        tangents = dict(zip(self._weights, parts[first:], strict=True))
        outputs, change = jvp(lambda w: functional_call(self._outputs, w, (self._seen,)), (self._weights,), (tangents,))  # type: ignore[misc]
        spread = []
        if isinstance(self.action_space, spaces.Discrete):
            chances = outputs.softmax(1)
            bent = chances * (change - (chances * change).sum(1, keepdim=True)) / len(outputs)
        else:  # sb3-contrib takes the mean of the divergence over the dimensions of an action, too
            bent = change * (-2.0 * self.policy.log_std.detach()).exp() / outputs.numel()
            spread = [2.0 * parts[0] / outputs.shape[1]]
        products = torch.autograd.grad(self._linked, params[first:], bent, retain_graph=True)
        return torch.cat([part.reshape(-1) for part in (*spread, *products)]) + self.cg_damping * vector
