"""TRPO (Schulman et al. 2015): the best step by a linear objective within a trust region of the KL divergence.

What an update does is sb3-contrib's, its words too. The Fisher matrix is J^T M J, with J the Jacobian of the actor's outputs
by its parameters and M the curvature of the KL divergence by those outputs, which is known (`ex2.training.distributions`). J
times a vector is the derivative, by u, of J^T u: so a product with the Fisher matrix takes two passes backwards through graphs
that are built once, and it needs no more than a share of the states: the line search that follows holds the trust region on
all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ex2.arrays import Array
from ex2.settings import setting
from ex2.training.algorithm import Algorithm, AlgorithmSettings, Metrics, standardised
from ex2.training.distributions import Distribution
from ex2.training.policy import Policy
from ex2.training.returns import fit_critic, orders
from ex2.training.rollout import Rollout
from ex2.training.seen import Observations

SOLVED = 1e-10  # the squared residual at which conjugate gradients stop


@dataclass(frozen=True, kw_only=True)
class TRPOSettings(AlgorithmSettings):
    """The settings of TRPO."""

    target_kl: float = setting(0.01, "The KL divergence that an update may come to.", above=0)
    final_kl: float | None = setting(None, "What `target_kl` falls to, linearly, over the training; None if it stays.", least=0)
    cg_max_steps: int = setting(15, "Steps of conjugate gradients.", least=1, most=10_000)
    cg_damping: float = setting(0.1, "What is added to the Fisher matrix's diagonal.", least=0)
    curvature_share: float = setting(1.0, "Of the states of a rollout, for the Fisher matrix.", above=0, most=1)
    line_search_shrinking_factor: float = setting(0.8, "Of the step, each time it was too long.", above=0, below=1)
    line_search_max_iter: int = setting(10, "Steps that are tried.", least=0, most=10_000)
    n_critic_updates: int = setting(10, "Passes over the rollout in which the critic is fitted.", least=0, most=10_000)


class TRPO(Algorithm):
    """The actor steps within its trust region, the critic is fitted by Adam."""

    Settings = TRPOSettings
    settings: TRPOSettings

    def __init__(self, policy: Policy, settings: TRPOSettings, generator: torch.Generator) -> None:
        super().__init__(policy, settings, generator)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="critic")
        self._fitting: Future[float] | None = None
        self._value_loss: float | None = None  # of a fit that went on in the background, until it is reported

    def trained(self) -> list[torch.nn.Parameter]:
        return list(self.policy.critic.parameters())

    def update(self, rollout: Rollout, advantages: Array, returns: Array, progress: float = 0.0) -> Metrics:
        if not advantages.any():
            return {}
        settings = self.settings
        target_kl = settings.target_kl
        if settings.final_kl is not None:
            target_kl += (settings.final_kl - target_kl) * min(progress, 1.0)
        observations, gains = rollout.observations, torch.as_tensor(advantages, device=self.policy.device).flatten()
        passes = orders(len(observations), settings.n_critic_updates, self.generator)
        curved = self.some(len(observations))
        fit = partial(fit_critic, self.policy.critic, self.optimizer, observations, returns, passes, settings.batch_size)
        # Where PyTorch has one thread, the critic is fitted beside the actor's step and the next rollout, which need it not.
        beside = gains.device.type == "cpu" and torch.get_num_threads() == 1
        if beside:
            self._fitting = self._pool.submit(fit)
        metrics = self.step(rollout, gains, curved, target_kl)
        return metrics if beside else metrics | {"train/value_loss": fit()}

    def finish(self) -> Metrics:
        self._wait()
        found, self._value_loss = self._value_loss, None
        return {} if found is None else {"train/value_loss": found}

    def _wait(self) -> None:
        if self._fitting is not None:
            self._value_loss, self._fitting = self._fitting.result(), None

    def state_dict(self) -> dict[str, Any]:
        self._wait()
        return super().state_dict() | {"value_loss": self._value_loss}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._value_loss = state["value_loss"]

    def step(self, rollout: Rollout, advantages: Tensor, curved: Tensor | None, target_kl: float) -> Metrics:
        """The actor's step; the Fisher matrix is of the rows `curved`."""
        settings, actor, actions = self.settings, self.policy.actor, self.policy.actions
        parameters = list(actor.parameters())
        observations, old = rollout.observations, rollout.parameters
        if settings.normalize_advantage:
            advantages = standardised(advantages)
        old_log_probs = actions.log_prob(old, rollout.actions)

        before = flat(parameters).detach()
        objective, gradient = 0.0, torch.zeros_like(before)
        for rows, seen in observations.chunks():
            ratio = (actions.log_prob(actor(seen), rollout.actions[rows]) - old_log_probs[rows]).exp()
            part = (advantages[rows] * ratio).sum() / len(observations)
            gradient += flat(torch.autograd.grad(part, parameters))
            objective += part.item()

        fisher = Fisher(actor, actions, observations, curved, settings.cg_damping)
        direction = conjugate_gradients(fisher, gradient, settings.cg_max_steps)
        length = direction @ fisher(direction)
        step = (2.0 * target_kl / length).sqrt() * direction

        found, reached, divergence = False, objective, 0.0
        with torch.no_grad():
            for trial in range(settings.line_search_max_iter):
                put(before + settings.line_search_shrinking_factor**trial * step, parameters)
                now = observations.through(actor)
                ratio = (actions.log_prob(now, rollout.actions) - old_log_probs).exp()
                reached, divergence = (advantages * ratio).mean().item(), actions.kl(old, now).mean().item()
                found = divergence < target_kl and reached > objective
                if found:
                    break
            else:
                put(before, parameters)
                reached, divergence = objective, 0.0
        metrics = {"policy_objective": reached, "kl_divergence_loss": divergence, "is_line_search_success": float(found)}
        std = getattr(actor[-1], "log_std", None)
        if std is not None:
            metrics["std"] = std.exp().mean().item()
        return {f"train/{name}": value for name, value in metrics.items()}

    def some(self, count: int) -> Tensor | None:
        """The states that the Fisher matrix is of; None for all."""
        if self.settings.curvature_share == 1.0:
            return None
        chosen = torch.randperm(count, generator=self.generator)[: max(round(self.settings.curvature_share * count), 1)]
        return chosen.to(self.policy.device)


def flat(parts: Iterable[Tensor]) -> Tensor:
    """All of them as one vector."""
    return torch.cat([part.reshape(-1) for part in parts])


def put(vector: Tensor, parameters: list[torch.nn.Parameter]) -> None:
    """Copies a vector into parameters. As views of it, as PyTorch's own function leaves them, they would compute other last
    bits than those that a checkpoint is loaded into."""
    for value, part in zip(parameters, vector.split([value.numel() for value in parameters]), strict=True):
        value.copy_(part.view_as(value))


class Fisher:
    """Vectors -> the Fisher matrix of an actor on some observations, plus damping, times the vector."""

    def __init__(
        self,
        actor: torch.nn.Module,
        actions: Distribution,
        observations: Observations,
        rows: Tensor | None,
        damping: float,
    ) -> None:
        self.actions, self.damping = actions, damping
        self.parameters = list(actor.parameters())
        self.count = len(observations) if rows is None else len(rows)
        self.graphs = []
        for _, seen in observations.chunks(rows):
            outputs = actor(seen)
            u = torch.zeros_like(outputs, requires_grad=True)
            back = torch.autograd.grad(outputs, self.parameters, u, create_graph=True)  # J^T u
            self.graphs.append((outputs, u, back))

    def __call__(self, vector: Tensor) -> Tensor:
        parts = vector.split([value.numel() for value in self.parameters])
        shaped = [part.view_as(value) for part, value in zip(parts, self.parameters, strict=True)]
        product = self.damping * vector
        for outputs, u, back in self.graphs:
            (change,) = torch.autograd.grad(back, u, shaped, retain_graph=True)  # J v
            bent = self.actions.curvature(outputs.detach(), change) / self.count
            product += flat(torch.autograd.grad(outputs, self.parameters, bent, retain_graph=True))
        return product


def conjugate_gradients(product: Callable[[Tensor], Tensor], target: Tensor, steps: int) -> Tensor:
    """x with A x = target, A being given by its products with vectors, in so many steps at the most.

    >>> conjugate_gradients(lambda x: torch.tensor([2.0, 4.0]) * x, torch.tensor([2.0, 8.0]), 5)
    tensor([1., 2.])
    """
    found = torch.zeros_like(target)
    residual = target.clone()
    direction = residual.clone()
    left = residual @ residual
    for _ in range(steps):
        bent = product(direction)
        along = left / (direction @ bent)
        found += along * direction
        residual -= along * bent
        now = residual @ residual
        if now < SOLVED:
            break
        direction = residual + now / left * direction
        left = now
    return found
