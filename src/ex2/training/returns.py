"""Generalised advantage estimation (Schulman et al. 2016), for streams of rewards that end with episodes and for those that
go on; and a critic's fit to the returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ex2.arrays import Array
from ex2.shaping import discounted
from ex2.training.rollout import Rollout
from ex2.training.seen import Observations

STREAM_EPOCHS, STREAM_BATCH, STREAM_RATE = 4, 500, 1e-3  # of the critic of a stream that does not end


@torch.no_grad()
def values_of(critic: nn.Module, rollout: Rollout) -> tuple[Array, Array]:
    """What a critic expects: at each step and behind the last one [T + 1, N], and behind time limits [T, N] (else 0)."""
    found = torch.cat([rollout.observations.through(critic), critic(rollout.last)])
    final = np.zeros(rollout.rewards.shape, np.float32)
    if rollout.cut is not None:
        final[rollout.batch.truncated.numpy()] = critic(rollout.cut).flatten().cpu().numpy()
    return found.cpu().numpy().reshape(len(final) + 1, -1), final


def advantages(
    rewards: Array, values: Array, gamma: float, gae_lambda: float, ends: Array | None = None, final_values: Array | None = None
) -> Array:
    """The advantages of each step [T, N], from rewards [T, N] and values [T + 1, N].

    Where an episode ends, [T, N], nothing follows but `final_values`: what is expected behind a time limit. Without `ends`
    the stream goes on over them.

    >>> advantages(np.ones((2, 1)), np.zeros((3, 1)), gamma=0.5, gae_lambda=1.0).ravel().tolist()
    [1.5, 1.0]
    """
    goes_on = np.ones_like(rewards) if ends is None else 1.0 - ends.astype(rewards.dtype)
    errors = rewards + gamma * goes_on * values[1:] - values[:-1]
    if final_values is not None:
        errors = errors + gamma * final_values
    return discounted(errors, gamma * gae_lambda, ends)


def fit_critic(
    critic: nn.Module,
    optimizer: torch.optim.Optimizer,
    observations: Observations,
    returns: Array,
    orders: Sequence[Tensor],
    batch_size: int,
) -> float:
    """Fits a critic to the returns [T, N] of a rollout, a pass for each of the orders [T * N] that its rows are taken in.

    Returns its mean squared error on the way.
    """
    weights, errors, gradient_of = list(critic.parameters()), list[Tensor](), gradients(critic)
    targets = torch.as_tensor(returns, dtype=torch.float32, device=observations.held.device).flatten()
    for order in orders:
        for rows in order.to(targets.device).split(batch_size):
            found: list[Tensor] = []
            for some, seen in observations.chunks(rows):
                error, parts = gradient_of(seen, targets[some], len(rows))
                found = [a + b for a, b in zip(found, parts, strict=True)] if found else list(parts)
                errors.append(error)
            for weight, gradient in zip(weights, found, strict=True):
                weight.grad = gradient.contiguous()  # a fused Adam wants it laid out as its weight is
            optimizer.step()
    return torch.stack(errors).sum().item() / (len(orders) * len(observations)) if errors else 0.0


Gradient = Callable[[Tensor, Tensor, int], tuple[Tensor, Sequence[Tensor]]]


def gradients(critic: nn.Module) -> Gradient:
    """(observations, targets, count) -> a critic's summed squared error, and its gradient over the count by each parameter.

    Of dense layers by hand: with networks as small as these, autograd's bookkeeping takes a third of the time.
    """
    layers = list(critic) if isinstance(critic, nn.Sequential) else [critic]
    first = next((index for index, layer in enumerate(layers) if isinstance(layer, nn.Linear)), len(layers))
    front, dense = layers[:first], layers[first:]
    linear, between = [layer for layer in dense[::2] if isinstance(layer, nn.Linear)], dense[1::2]
    kinds = {type(layer) for layer in between}
    plain = len(linear) == len(dense[::2]) == len(between) + 1
    if plain and kinds in ({nn.ReLU}, {nn.Tanh}) and not any(list(layer.parameters()) for layer in front):
        return partial(_by_hand, front, linear, kinds == {nn.ReLU})
    return partial(_by_autograd, critic)


def _by_autograd(critic: nn.Module, seen: Tensor, targets: Tensor, count: int) -> tuple[Tensor, Sequence[Tensor]]:
    error = (critic(seen).squeeze(1) - targets).square().sum()
    return error.detach(), torch.autograd.grad(error / count, list(critic.parameters()))


@torch.no_grad()
def _by_hand(
    front: list[nn.Module], linear: list[nn.Linear], relu: bool, seen: Tensor, targets: Tensor, count: int
) -> tuple[Tensor, Sequence[Tensor]]:
    for layer in front:
        seen = layer(seen)
    entering = [seen]
    for layer in linear[:-1]:
        left = torch.addmm(layer.bias, entering[-1], layer.weight.T)
        entering.append(left.relu_() if relu else left.tanh_())
    apart = torch.addmm(linear[-1].bias, entering[-1], linear[-1].weight.T).squeeze(1) - targets
    back, found = (2.0 / count * apart)[:, None], list[Tensor]()
    for index in reversed(range(len(linear))):
        found = [back.T @ entering[index], back.sum(0), *found]
        if index:
            back = back @ linear[index].weight
            back = back.mul_(entering[index] > 0) if relu else back.mul_(1.0 - entering[index].square())
    return apart.square().sum(), found


def orders(count: int, epochs: int, generator: torch.Generator) -> list[Tensor]:
    """A random order of so many rows for each epoch."""
    return [torch.randperm(count, generator=generator) for _ in range(epochs)]


def explained_variance(values: Array, returns: Array) -> float:
    """The share of the returns' variance that the values foresaw; NaN where there was none."""
    spread = float(np.var(returns))
    return float("nan") if spread == 0 else float(1.0 - np.var(returns - values) / spread)


class Stream:
    """Returns of a bonus that do not end with an episode, with a critic of their own (Burda et al. 2018, section 2.3).

    What an agent has learned of the world is not lost when it dies, so neither should be what it may still find: with returns
    that go on into the next episode, a risk on the way to something new costs no more than the way back.
    """

    def __init__(self, critic: nn.Module, gamma: float, gae_lambda: float, seed: int) -> None:
        self.critic, self.gamma, self.gae_lambda = critic, gamma, gae_lambda
        self.optimizer = torch.optim.Adam(critic.parameters(), STREAM_RATE)
        self.generator = torch.Generator().manual_seed(seed)
        self.scale = 0.0  # of the values: the deviation of the first rollout's returns, which may be in the hundreds

    def advantages(self, bonuses: Array, observations: Observations, last: Tensor) -> Array:
        """The advantages of a rollout's bonuses [T, N], and a fit of the critic to their returns.

        `last` is what a network sees of the observations that the next rollout begins with, [N, ...].
        """
        if not self.scale:  # the critic's values are 0, whatever their scale
            self.scale = float(discounted(bonuses.astype(np.float64), self.gamma).std())
        with torch.no_grad():
            raw = torch.cat([observations.through(self.critic), self.critic(last)])
        values = self.scale * raw.cpu().numpy().reshape(len(bonuses) + 1, -1)
        found = advantages(bonuses, values, self.gamma, self.gae_lambda)
        fit_critic(
            self.critic,
            self.optimizer,
            observations,
            (found + values[:-1]) / (self.scale or 1.0),
            orders(len(observations), STREAM_EPOCHS, self.generator),
            STREAM_BATCH,
        )
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "critic": self.critic.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scale = float(state["scale"])
        self.critic.load_state_dict(state["critic"])
        load_moments(self.optimizer, state["optimizer"])
        self.generator.set_state(state["generator"])


def load_moments(optimizer: torch.optim.Optimizer, moments: dict[int, Any]) -> None:
    """Adam's moments as they were saved; its settings stay those it was made with."""
    copied = {index: {name: value.clone() for name, value in own.items()} for index, own in moments.items()}
    optimizer.load_state_dict(optimizer.state_dict() | {"state": copied})
