"""How much discriminators are kept from telling states apart: noise in state space (fixed) or a latent space (learned),
and how much of it, chosen from the data.

**The amount of smoothing as an information rate.** Noise q turns a state x* into x = x* + eps. What x still says of x* is the
mutual information

    I(x; x*) = E[log q(x - x*) - log (P * q)(x)],

in nats: the expected logit of the optimal discriminator at its own exemplar. I = 0 is collapse, D = 1/2 everywhere; I = log n
means that each of n states seen is told from every other, D = 1 everywhere. In between, exp(I) is the number of states that
can be told apart, "cells", and n / exp(I) the number of visits that each is judged by. `"auto"` asks for exp(I) = n ** 0.4
cells and finds the noise that gives them: it becomes finer as more is seen, and reaches neither end. Two corrections: where few
states fill many dimensions that would be too coarse, so d / (d + 2) of log n is asked for, up to 100 cells; and never more
than 0.8 of all the nats there are. d is how many dimensions the states really fill (`dimensions_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal

import torch
from torch import Tensor

AUTO: Final[Literal["auto"]] = "auto"
NOTHING = -60.0  # an exponent that adds nothing; smaller ones are slow
CELLS_POWER = 0.4
"""exp(I) = n ** CELLS_POWER. For Gaussian data in d dimensions the bandwidth of least error has about d / (d + 4)."""
CELLS = 100  # that are asked for in many dimensions, where n ** CELLS_POWER is fewer
CENTRES, QUERIES = 2_048, 128  # states that an information rate is estimated from
SMALLEST_NOISE = 1e-3  # that is ever chosen
LARGEST_NOISE = 100.0  # the same, in standard deviations of the data
PLACE = 0.2  # of the distance between places that their noise is
FOLLOWING = 0.2  # how far automatic noise moves towards what the newest batch asks for, in logarithms
MOST = 0.8  # of the nats that states have without noise


def noise_like(values: Tensor, generator: torch.Generator) -> Tensor:
    """Unit Gaussian noise of the shape of `values`, drawn on the CPU so that every device sees the same."""
    return torch.randn(values.shape, generator=generator).to(values.device)


def sample_latent(mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
    """z ~ q(z|x) = N(mean, exp(log_variance)) from unit noise, differentiable in both."""
    return mean + (0.5 * log_variance).exp() * noise


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(mean, exp(log_variance)) || N(0, I)) of each row, [M, L] -> [M]."""
    return 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(-1)


def dimensions_of(points: Tensor) -> float:
    """How many dimensions points [M, D] fill: of the variances c along their principal directions, (sum c)^2 / sum c^2.

    >>> points = torch.randn(10_000, 3, generator=torch.Generator().manual_seed(0))
    >>> round(dimensions_of(points * torch.tensor([1.0, 1.0, 0.01])), 1)
    2.0
    """
    apart = (points - points.mean(0)).double()
    spread = (apart.T @ apart).square().sum()  # the squares of a matrix's eigenvalues sum up to that of its entries
    return (apart.square().sum().square() / spread).item() if spread > 0 else 1.0


def target_rate(count: int, dimensions: float = 1.0) -> float:
    """The information rate in nats to aim for when `count` states of so many dimensions have been seen.

    >>> [round(target_rate(count, 6.0), 2) for count in (100, 1_000, 100_000, 1_000_000)]
    [3.45, 4.61, 4.61, 5.53]
    """
    every = math.log(max(count, 2))
    return max(CELLS_POWER * every, min(dimensions / (dimensions + 2) * every, math.log(CELLS)))


def information_rate(points: Tensor, sigma: float, noise: Tensor) -> float:
    """I(x; x*) in nats for N(0, sigma^2 I) around points [M, D], from the first rows of `noise` [Q, D].

    P is the points themselves, so it is at most log M (7.6 for the 2,048 that automatic smoothing looks at).

    >>> apart = torch.arange(8.0)[:, None]
    >>> [round(information_rate(apart, sigma, torch.zeros(8, 1)), 2) for sigma in (1e-2, 1e3)]
    [2.08, 0.0]
    """
    return rate_by_sigma(points, noise)(sigma)


def rate_by_sigma(points: Tensor, noise: Tensor) -> Callable[[float], float]:
    """`information_rate` as a function of sigma: what does not depend on it is computed once.

    With y = x + sigma e around x, -|y - x_i|^2 / 2 sigma^2 is -|x - x_i|^2 / 2 sigma^2 - e.(x - x_i) / sigma, but for
    |e|^2 / 2, which log q(y | x) has, too. It is 0 for x_i = x, so that a sum of exponentials is at least 1.
    """
    points, noise = points - points.mean(0), noise.to(points)
    own = points[: len(noise)]
    squares = torch.cdist(own, points, compute_mode="donot_use_mm_for_euclid_dist").square_()
    along = (noise * own).sum(1, keepdim=True) - noise @ points.T

    def rate(sigma: float) -> float:
        exponents = torch.add(squares * (-0.5 / sigma**2), along, alpha=-1.0 / sigma)
        sums = exponents.clamp_(min=NOTHING).exp_().sum(1)
        return (math.log(len(points)) - sums.log()).mean().item()

    return rate


def sigma_of_places(points: Tensor) -> float:
    """The noise scale at which different points of a table [M, D] keep apart: a fifth of the way to the nearest, for most.

    >>> round(sigma_of_places(torch.tensor([[0.0], [0.0], [5.0], [15.0]])), 3)
    1.0
    """
    places = points[:CENTRES]
    apart = torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")
    same = apart < SMALLEST_NOISE * places.std(0, unbiased=False).norm()
    nearest = apart.masked_fill(same, math.inf).min(1).values
    nearest = nearest[nearest < math.inf]
    return max(PLACE * torch.quantile(nearest, 0.05).item(), 1e-6) if len(nearest) else SMALLEST_NOISE


def sigma_of_rate(points: Tensor, rate: float, generator: torch.Generator, rounds: int = 10) -> float:
    """The noise scale at which points [M, D] have this information rate, by bisection on its logarithm.

    No more than `MOST` of the nats that they have with the smallest noise: of few places, each seen often, that is most of
    their entropy, and of points that are all different most of log M. Points that are all the same have none; the smallest
    noise is returned.
    """
    points = points[:CENTRES]
    noise = torch.randn(min(QUERIES, len(points)), points.shape[1], generator=generator)
    rate_at = rate_by_sigma(points, noise)
    rate = min(rate, MOST * rate_at(SMALLEST_NOISE))
    spread = points.std(0).square().mean().sqrt().item() if len(points) > 1 else 0.0
    if rate <= 0.0 or spread < SMALLEST_NOISE:
        return SMALLEST_NOISE
    low, high = math.log(SMALLEST_NOISE), math.log(LARGEST_NOISE * spread)
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rate_at(math.exp(middle)) > rate else (low, middle)
    return math.exp(low)


def adapted(
    sigma: float, before: int, points: Tensor, now: int, rate: float | None, table: bool, generator: torch.Generator
) -> float:
    """The noise scale that follows `sigma`, of `before` states held (0: of none), when `now` are held; points are some of them.

    It is that of the information rate (the target's, if none is asked for), of a table's places that of one place, and moves
    towards it slowly. It becomes finer only as fast as more states justify: cells shrink like n ** -CELLS_POWER, and their
    width in d dimensions like the d-th root of that. An agent that has settled on one path would otherwise make it finer and
    finer, until every place beside the path looked the same.

    >>> adapted(0.1, 1_000, 1e-4 * torch.randn(500, 2), 1_000, None, False, torch.Generator())
    0.1
    """
    if table:
        return sigma_of_places(points)
    dimensions = dimensions_of(points)
    found = sigma_of_rate(points, target_rate(now, dimensions) if rate is None else rate, generator)
    if not before:
        return found
    return sigma * max(math.pow(found / sigma, FOLLOWING), math.pow(before / now, CELLS_POWER / max(dimensions, 1.0)))
