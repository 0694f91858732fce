"""The paper's propositions as plain functions: what an optimal discriminator says, and the density read off it.

With positives distributed as q1 and negatives as q0, in equal numbers, the cross-entropy is least for

    D(x) = q1(x) / (q1(x) + q0(x)).

Everything here is this formula: q1 is a delta, a uniform choice of K states, or either of them smoothed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

CLIP = 1e-5
"""D is kept in [CLIP, 1 - CLIP] before it is turned into a density, as in the authors' code."""


def optimal_discriminator(log_positive: Tensor, log_negative: Tensor) -> Tensor:
    """D(x) = q1 / (q1 + q0), from log densities (Noisy Optimal Discriminator)."""
    return torch.sigmoid(log_positive - log_negative)


def optimal_discriminator_at_exemplar(probability: Tensor, k: int = 1) -> Tensor:
    """D(x*) = 1 / (1 + K P(x*)) (Optimal Discriminator, K-Exemplar Optimal Discriminator).

    >>> optimal_discriminator_at_exemplar(torch.tensor(0.25), k=4)
    tensor(0.5000)
    """
    return 1.0 / (1.0 + k * probability)


def log_density(discriminator: Tensor, k: int = 1) -> Tensor:
    """log P(x*) = log((1 - D) / D) - log K, with D clipped: the inverse of `optimal_discriminator_at_exemplar`.

    With smoothing by a kernel q, what is found is log (P * q)(x*) - log q(0): relative to the kernel's peak, so P(x*) is the
    probability of a kernel's volume around x*. Subtract `log_kernel_peak` the other way round for a density.
    """
    clipped = discriminator.double().clamp(CLIP, 1.0 - CLIP)
    return (torch.log1p(-clipped) - clipped.log() - math.log(k)).float()


def log_kernel_peak(sigma: float, dimensions: int) -> float:
    """log q(0) of the Gaussian kernel N(0, sigma^2 I)."""
    return -0.5 * dimensions * math.log(2.0 * math.pi * sigma**2)
