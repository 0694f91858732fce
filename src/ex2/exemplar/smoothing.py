"""Noise that keeps discriminators from telling every state apart: in state space (fixed) or in a latent space (learned)."""

from __future__ import annotations

import torch
from torch import Tensor

from ex2.networks import Stem


def noise_like(values: Tensor, generator: torch.Generator) -> Tensor:
    """Unit Gaussian noise of the shape of `values`, drawn on the CPU so that every device sees the same."""
    return torch.randn(values.shape, generator=generator).to(values.device)


def with_noise(values: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """values + N(0, sigma^2 I); `values` itself for sigma = 0."""
    return values + sigma * noise_like(values, generator) if sigma else values


def noisy_states(rows: Tensor, sigma: float, stem: Stem, generator: torch.Generator) -> Tensor:
    """Rows with Gaussian noise of `sigma` in the units that `stem` standardises them to; rows themselves for sigma = 0."""
    return rows + sigma * stem.spread().to(rows.device) * noise_like(rows, generator) if sigma else rows


def sample_latent(mean: Tensor, log_variance: Tensor, generator: torch.Generator) -> Tensor:
    """z ~ q(z|x) = N(mean, exp(log_variance)), differentiable in both."""
    return mean + (0.5 * log_variance).exp() * noise_like(mean, generator)


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, exp(log_variance)) || N(0, I)) of each row, [M, L] -> [M]."""
    return 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(-1)
