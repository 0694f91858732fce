"""How much discriminators are kept from telling states apart: noise in state space (fixed) or a latent space (learned),
and how much of it, chosen from the data.

**The amount of smoothing as an information rate.** Noise q turns a state x* into x = x* + eps. What x still says of x* is the
mutual information

    I(x; x*) = E[log q(x - x*) - log (P * q)(x)],

in nats: the expected logit of the optimal discriminator at its own exemplar. I = 0 is collapse, D = 1/2 everywhere; I = log n
means that each of n states seen is told from every other, D = 1 everywhere. In between, exp(I) is the number of states that
can be told apart, "cells", and n / exp(I) the number of visits that each is judged by. `"auto"` asks for exp(I) = n ** 0.4
cells and finds the noise that gives as many: it becomes finer as more is seen, and can reach neither end.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

AUTO = "auto"
CELLS_POWER = 0.4
"""exp(I) = n ** CELLS_POWER. For Gaussian data in d dimensions the bandwidth of least error has about d / (d + 4)."""
CENTRES, QUERIES = 2_048, 128  # states that an information rate is estimated from
SCALES = (1e-3, 1e2)  # noise is looked for in between, in standard deviations of the data


def noise_like(values: Tensor, generator: torch.Generator) -> Tensor:
    """Unit Gaussian noise of the shape of `values`, drawn on the CPU so that every device sees the same."""
    return torch.randn(values.shape, generator=generator).to(values.device)


def with_noise(values: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """values + N(0, sigma^2 I); `values` itself for sigma = 0."""
    return values + sigma * noise_like(values, generator) if sigma else values


def sample_latent(mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
    """z ~ q(z|x) = N(mean, exp(log_variance)) from unit noise, differentiable in both."""
    return mean + (0.5 * log_variance).exp() * noise


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, exp(log_variance)) || N(0, I)) of each row, [M, L] -> [M]."""
    return 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(-1)


def target_rate(count: int) -> float:
    """The information rate in nats to aim for when `count` states have been seen.

    >>> round(target_rate(100_000), 2)
    4.61
    """
    return CELLS_POWER * math.log(max(count, 2))


def information_rate(points: Tensor, sigma: float, noise: Tensor) -> float:
    """I(x; x*) in nats for N(0, sigma^2 I) around points [M, D], from the first rows of `noise` [Q, D].

    P is the points themselves, so it is at most log M.

    >>> apart = torch.arange(8.0)[:, None]
    >>> [round(information_rate(apart, sigma, torch.zeros(8, 1)), 2) for sigma in (1e-2, 1e3)]
    [2.08, 0.0]
    """
    queries = points[: len(noise)] + sigma * noise
    exponents = torch.cdist(queries, points).square() * (-0.5 / sigma**2)
    background = torch.logsumexp(exponents, 1) - math.log(len(points))
    return (-0.5 * noise.square().sum(1) - background).mean().item()


def sigma_of_rate(points: Tensor, rate: float, generator: torch.Generator, rounds: int = 10) -> float:
    """The noise scale at which points [M, D] have this information rate, by bisection on its logarithm.

    Points that are all the same have no rate above 0 at any scale; the smallest scale is returned then.
    """
    points = points[:CENTRES]
    noise = torch.randn(min(QUERIES, len(points)), points.shape[1], generator=generator)
    rate = min(rate, 0.8 * math.log(len(points))) if len(points) > 1 else 0.0
    spread = points.std(0).square().mean().sqrt().item() if len(points) > 1 else 0.0
    low, high = (math.log(max(spread, 1e-6) * scale) for scale in SCALES)
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if information_rate(points, math.exp(middle), noise) > rate else (low, middle)
    return math.exp(low)
