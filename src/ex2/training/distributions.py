"""How an actor's outputs make a distribution of actions: around means for Box, over choices for Discrete.

An actor gives parameters [M, P]; what is done with them is a function of them alone: drawing, log-probabilities, divergences,
and the curvature of the divergence, which TRPO's Fisher matrix is made of.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ex2.errors import UsageError

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Distribution(Protocol):
    """A kind of distribution over the actions of a space; `width` is the number of an actor's outputs."""

    width: int

    def noise(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        """What `sample` needs for a whole rollout, [T, N, ...], drawn at once on the CPU."""

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Actions, one for each row."""

    def mode(self, parameters: Tensor) -> Tensor:
        """The most likely action of each row."""

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        """log pi(a|s), [M]."""

    def entropy(self, parameters: Tensor) -> Tensor:
        """[M]."""

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(new || old), [M], the order that sb3-contrib's TRPO has; of a Gaussian, the mean over its dimensions."""

    def curvature(self, parameters: Tensor, change: Tensor) -> Tensor:
        """The second derivative of `kl` by the new parameters, where both are the same, times a change of them."""

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Actions as an environment takes them."""


class Categorical:
    """Over the choices of a Discrete space; the parameters are logits."""

    def __init__(self, space: spaces.Discrete[Any]) -> None:
        self.width, self.start = int(space.n), int(space.start)

    def noise(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        exponential = torch.empty(steps, envs, self.width).exponential_(generator=generator)
        return -exponential.clamp_min(torch.finfo(torch.float32).tiny).log()  # Gumbel's distribution

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        return (parameters + noise).argmax(1)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters.argmax(1)

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        return parameters.log_softmax(1).gather(1, actions.long()[:, None]).squeeze(1)

    def entropy(self, parameters: Tensor) -> Tensor:
        log_probs = parameters.log_softmax(1)
        return -(log_probs.exp() * log_probs).sum(1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        log_new, log_old = new.log_softmax(1), old.log_softmax(1)
        return (log_new.exp() * (log_new - log_old)).sum(1)

    def curvature(self, parameters: Tensor, change: Tensor) -> Tensor:
        probs = parameters.softmax(1)
        return probs * (change - (probs * change).sum(1, keepdim=True))

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        return actions + self.start if self.start else actions


class Gaussian:
    """Over a Box, each number by itself; the parameters are means and log deviations. Environments get what lies in the Box."""

    def __init__(self, space: spaces.Box) -> None:
        if len(space.shape) != 1:
            raise UsageError(f"Actions of {space} cannot be drawn: a Box of actions must be a vector.")
        self.size = int(space.shape[0])
        self.width = 2 * self.size
        self.low, self.high, self.dtype = space.low, space.high, space.dtype

    def noise(self, steps: int, envs: int, generator: torch.Generator) -> Tensor:
        return torch.randn(steps, envs, self.size, generator=generator)

    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = parameters.chunk(2, 1)
        return torch.addcmul(mean, log_std.exp(), noise)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters[:, : self.size]

    def log_prob(self, parameters: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = parameters.chunk(2, 1)
        return (-0.5 * ((actions - mean) * (-log_std).exp()).square() - log_std - HALF_LOG_TWO_PI).sum(1)

    def entropy(self, parameters: Tensor) -> Tensor:
        return (parameters[:, self.size :] + 0.5 + HALF_LOG_TWO_PI).sum(1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        (mean, log_std), (old_mean, old_log_std) = new.chunk(2, 1), old.chunk(2, 1)
        narrower = (2.0 * (log_std - old_log_std)).exp()
        apart = ((mean - old_mean) * (-old_log_std).exp()).square()
        return (0.5 * (narrower + apart - 1.0) + old_log_std - log_std).mean(1)

    def curvature(self, parameters: Tensor, change: Tensor) -> Tensor:
        precision = (-2.0 * parameters[:, self.size :]).exp()
        by_mean, by_log_std = change.chunk(2, 1)
        return torch.cat([by_mean * precision, 2.0 * by_log_std], 1) / self.size

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        within: np.ndarray = np.minimum(np.maximum(actions, self.low), self.high)
        return within.astype(self.dtype, copy=False)


def distribution_of(space: spaces.Space[Any]) -> Distribution:
    """The distribution for a space of actions."""
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Gaussian(space)
    raise UsageError(f"Actions of {space} cannot be drawn: use Box (of floats) or Discrete, or an adapter for your own agent.")
