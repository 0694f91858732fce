"""The closed-form exemplar model: with a known kernel half of every discriminator is known, and the rest is one function.

Smooth the exemplar x* by Gaussian noise q = N(0, sigma^2 I) and the background alike. The paper's optimal discriminator (Noisy
Optimal Discriminator, section 4.2) then is

    D_{x*}(x) = q(x - x*) / (q(x - x*) + (P * q)(x)),    with the logit    log q(x - x*) - log (P * q)(x).

The first term needs no learning. The second does not depend on x*: it is one function of x, the same for every exemplar. So
instead of a classifier for each exemplar, or a network of pairs, train a single u inside

    logit(x, x*) = log q(x - x*) - u(x) - log nu

with the paper's cross-entropy, each exemplar of a minibatch against each background state of it: a matrix of distances and
one pass through the network. Its optimum is u = log (P * q), whatever exemplars it was trained with; u(x*) is the smoothed log
density at x*, normalised: no constant is lost.

**Balanced odds.** With a narrow kernel q(0) is far above (P * q)(x*), D is near 1 at every exemplar, and cross-entropy says
little about u. So a background state counts nu times, and the odds shift by as much:

    maximise  E_{x = x* + eps}[log D] + nu E_{x ~ P * q}[log(1 - D)],    D = q / (q + nu (P * q)).

nu enters the logit, so the optimum stays where it was; log nu is a running mean of log q(x - x*) - u(x) at the positives, which
keeps D around 1/2 there. That mean is also the information rate of `ex2.exemplar.smoothing`: how many nats a smoothed state
tells of where it came from.

**The network.** (P * q) has no detail finer than the kernel, so u gets, beside x, sines and cosines with wavelengths down to a
few sigma, and learns the difference to the logarithm of a smoothed Gaussian, which makes u fall off where nothing was seen.

For images, x is a fixed feature map's output (`ex2.exemplar.features`), and densities are of features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import softplus

from ex2.batch import Batch
from ex2.bonus import Metrics
from ex2.errors import UsageError
from ex2.exemplar.features import Features
from ex2.exemplar.model import ExemplarModel
from ex2.exemplar.propositions import log_kernel_peak
from ex2.exemplar.smoothing import AUTO, CENTRES, QUERIES, information_rate
from ex2.networks import Stem, mlp
from ex2.shaping import FEWEST

FREQUENCY = 0.2  # of the sines, in units of 1 / sigma: their standard deviation
ODDS_MEMORY = 0.9  # of the running mean that the odds are balanced by
POOL = {False: 65_536, True: 8_192}  # background states that a fit draws from: vectors, and images, whose features cost
SCORE_CHUNK = 8_192  # rows scored at a time
LATER = 0.3  # of the learning rate, for the batches after the first
GROWTH = 2  # u begins anew when the kernel is so many times as wide or narrow, or so many times as many images were seen
LARGEST_ODDS = 15.0  # in logarithms


class LogDensity(nn.Module):
    """u(x), points [M, D] -> [M]: the logarithm of a Gaussian, plus a network of x and of sines and cosines of it."""

    frequencies: Tensor
    whiten: Tensor
    volume: Tensor
    log_odds: Tensor
    held_odds: Tensor

    def __init__(self, dimensions: int, hidden: int, layers: int, waves: int) -> None:
        super().__init__()
        self.body = mlp([dimensions + 2 * waves] + [hidden] * layers, nn.SiLU)
        self.head = nn.Linear(hidden, 1)
        self.register_buffer("whiten", torch.eye(dimensions))  # [D, D], makes the Gaussian a unit one
        self.register_buffer("volume", torch.zeros(()))  # log of how much it shrinks volumes
        self.register_buffer("frequencies", torch.randn(dimensions, waves))
        self.register_buffer("log_odds", torch.zeros(()))
        self.register_buffer("held_odds", torch.zeros(()))  # those at which held-out losses are compared

    def forward(self, points: Tensor) -> Tensor:
        phases = points @ self.frequencies
        scaled = points @ self.whiten
        learned = self.head(self.body(torch.cat([scaled, phases.cos(), phases.sin()], dim=1))).squeeze(1)
        return learned - 0.5 * scaled.square().sum(1) - self.volume - 0.5 * points.shape[1] * math.log(2.0 * math.pi)


class Networks(nn.Module):
    """The feature map, which nothing trains, and u on top of it."""

    def __init__(self, features: Features, hidden: int, layers: int, waves: int) -> None:
        super().__init__()
        self.features = features
        self.log_density = LogDensity(features.width, hidden, layers, waves)


class KernelExemplar(ExemplarModel):
    """The closed-form exemplar model as a bonus. p is relative to the kernel's peak, as everywhere: see `propositions`.

    Args:
        exemplars, negatives: states in a gradient step; each exemplar is compared with each negative.
        remembered: share of the exemplars that are drawn from the background instead of from the new batch.
        scatter: share of the exemplars that are moved away from visited states, by Gaussian noise of one standard deviation
            (half the reach of a bounded space). It teaches u what is low where nobody has been.
        learning_rate: of Adam, at its peak in the first fit; later ones take 0.3 of it.
        hidden, layers, waves: units and layers of the network, and how many sines it is given.
        features, components, projection: for images, see `ex2.exemplar.features.Features`.
    """

    networks: Networks
    smooths_features, later = True, LATER

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        steps: int = 40,
        first_steps: int | None = 1_000,
        state_noise: float | str = AUTO,
        schedule: str = "one-cycle",
        exemplars: int = 256,
        negatives: int = 256,
        remembered: float = 0.25,
        scatter: float = 0.25,
        learning_rate: float = 0.01,
        hidden: int = 64,
        layers: int = 2,
        waves: int = 64,
        features: str = "convolutions",
        components: int = 16,
        projection: str | None = None,
        **settings: Any,
    ) -> None:
        if min(exemplars, negatives, hidden, layers, waves) < 1:
            raise UsageError("exemplars, negatives, hidden, layers and waves must all be at least 1.")
        if min(remembered, scatter) < 0.0 or remembered + scatter > 1.0 or round(scatter * exemplars) == exemplars:
            raise UsageError(
                f"remembered={remembered} and scatter={scatter} are shares: from 0 to 1 together, scatter below 1."
            )
        self.exemplars, self.negatives, self.learning_rate = exemplars, negatives, learning_rate
        self.remembered, self.scatter = remembered, scatter
        self.sizes = {"hidden": hidden, "layers": layers, "waves": waves}
        self.feature_settings = {"kind": features, "components": components, "projection": projection}
        self.seen = self.seen_at_projection = 0
        self.sigma_begun = 0.0  # that the wavelengths were set by
        settings |= {"steps": steps, "first_steps": first_steps, "state_noise": state_noise, "schedule": schedule}
        super().__init__(observation_space, action_space, **settings)
        if not state_noise:
            raise UsageError(f"state_noise={state_noise}: the kernel needs a width above 0, or {AUTO!r}.")

    def build(self) -> nn.Module:
        return Networks(Features(self.inputs, **self.feature_settings), **self.sizes)  # type: ignore[arg-type]

    @property
    def stem(self) -> Stem | None:
        return self.networks.features.stem

    def parameter_groups(self) -> Iterable[dict[str, Any]]:
        return [{"params": self.networks.log_density.parameters(), "lr": self.learning_rate, "betas": (0.9, 0.99)}]

    def loss(self, exemplars: Tensor, positives: Tensor, negatives: Tensor, sigma: Tensor) -> tuple[Tensor, ...]:
        """Cross-entropy over x* [B, D], x = x* + eps [B, D] and noisy background states [N, D]; and the logits, with odds."""
        u = self.networks.log_density
        own, other = u(torch.cat([positives, negatives])).split([len(positives), len(negatives)])
        peak = -0.5 * exemplars.shape[1] * torch.log(2.0 * math.pi * sigma.square())
        scale = -0.5 / sigma.square()
        positive = peak + scale * (positives - exemplars).square().sum(1) - own
        negative = peak + scale * torch.cdist(exemplars, negatives, compute_mode="use_mm_for_euclid_dist").square() - other
        if torch.is_grad_enabled():
            with torch.no_grad():
                visited = positive[round(self.scatter * len(positive)) :]  # the scattered ones come first
                u.log_odds.lerp_(visited.mean(), 1.0 - ODDS_MEMORY).clamp_(-LARGEST_ODDS, LARGEST_ODDS)
        log_odds = u.log_odds.clone() if torch.is_grad_enabled() else u.held_odds
        positive, negative = positive - log_odds, negative - log_odds
        cross_entropy = softplus(-positive).mean() + log_odds.exp() * softplus(negative).mean()
        return cross_entropy, positive, negative

    def fit(self, batch: Batch) -> Metrics:
        rows = self.inputs.rows(batch)[batch.mask]
        self.seen += len(rows)
        if not self.ready or not len(rows):
            return {}
        features = self.networks.features
        features.update(rows)
        self.fit_projection(batch)
        self.adapt_noise(features)
        if self.fitted and abs(math.log(self.sigma / self.sigma_begun)) > math.log(GROWTH):
            self.begin_anew()
        new = features(rows.to(self.device)).cpu()
        pool = min(self.steps_now() * self.negatives, POOL[self.inputs.image_shape is not None])
        background = features(self.replay.sample(pool, self.generator).to(self.device)).cpu()
        if not self.fitted:
            self._begin(background)
        self.networks.log_density.held_odds.copy_(self.networks.log_density.log_odds)
        train, held = self.split(new)
        held_draw = self.draw(held, background) if len(held) else None
        loss, positive, negative = self.descend(lambda: self.draw(train, background), self.loss, held_draw)
        rate = self.networks.log_density.log_odds.item()
        return {"information_rate": rate, **self.report(loss, positive, negative, log_odds=rate)}

    def fit_projection(self, batch: Batch) -> None:
        """Fits the projection of the features to what has been seen, when that has doubled; u then begins anew.

        Where neighbours are needed and the batch has none, the projection stays as it is.
        """
        if not self.networks.features.projection or (self.fitted and self.seen < GROWTH * self.seen_at_projection):
            return
        every = self.inputs.rows(batch).flatten(0, 1)
        pairs = batch.groups(2)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        if self.networks.features.projection == "neighbours" and not len(pairs):
            if self.fitted:
                return
            raise UsageError("projection='neighbours' needs states adjacent in time: batches of at least 2 steps.")
        rows = torch.cat([every[batch.mask.flatten()], self.replay.sample(min(len(self.replay), 4_096), self.generator)])
        self.networks.features.fit(rows.to(self.device), every[pairs].to(self.device))
        self.seen_at_projection = self.seen
        if self.fitted:
            self.begin_anew()

    @torch.no_grad()
    def _begin(self, points: Tensor) -> None:
        """Sets the sines' wavelengths by the kernel's width, the Gaussian by points [M, D], and odds and level by their rate.

        In a box the Gaussian is a wide one: an agent's first states say little of where it will go.
        """
        u, width = self.networks.log_density, points.shape[1]
        u.frequencies.copy_(torch.randn(u.frequencies.shape, generator=self.generator) * FREQUENCY / self.sigma)
        covariance = torch.eye(width, dtype=torch.float64)
        if self.inputs.image_shape or not self.inputs.bounded or not isinstance(self.inputs.observation_space, spaces.Box):
            covariance = torch.cov(points.double().T).reshape(width, width) if len(points) > 1 else covariance
        covariance = covariance + self.sigma**2 * torch.eye(width, dtype=torch.float64)
        factor = torch.linalg.cholesky(covariance)
        u.whiten.copy_(torch.linalg.inv(factor).T)
        u.volume.fill_(factor.diagonal().log().sum().item())
        some = points[:CENTRES]
        noise = torch.randn(min(QUERIES, len(some)), width, generator=self.generator)
        rate = information_rate(some, self.sigma, noise)
        level = log_kernel_peak(self.sigma, width) - 0.5 * width - rate  # the mean of log (P * q) at smoothed states
        u.head.bias.add_(level - u((some[: len(noise)] + self.sigma * noise).to(self.device)).mean())
        u.log_odds.fill_(rate)
        self.sigma_begun = self.sigma

    def draw(self, new: Tensor, background: Tensor) -> tuple[Tensor, ...]:
        """What `loss` takes, for one step: exemplars from `new`, with noise, and noisy background states."""
        count, width = self.exemplars, new.shape[1]
        exemplars = new[torch.randint(len(new), (count,), generator=self.generator)]
        far, old = round(self.scatter * count), round(self.remembered * count)
        if old:
            exemplars[-old:] = background[torch.randint(len(background), (old,), generator=self.generator)]
        if far:
            self.scatter_rows(exemplars[:far], 0.5 if self.inputs.bounded and not self.inputs.image_shape else 1.0)
        negatives = background[torch.randint(len(background), (self.negatives,), generator=self.generator)]
        noise = self.sigma * torch.randn(count + self.negatives, width, generator=self.generator)
        return exemplars, exemplars + noise[:count], negatives + noise[count:], torch.tensor(self.sigma)

    @torch.no_grad()
    def log_density(self, rows: Tensor) -> Tensor:
        if not self.fitted:
            return torch.zeros(len(rows))
        parts = [
            self.networks.log_density(self.networks.features(part.to(self.device))).cpu() for part in rows.split(SCORE_CHUNK)
        ]
        return torch.cat(parts) - log_kernel_peak(self.sigma, self.networks.features.width)

    def log_density_of_batch(self, batch: Batch) -> Tensor:
        """A state counts as at least 0.01 visits: so far out, u was never trained and says no more than that."""
        return super().log_density_of_batch(batch).clamp_min(math.log(FEWEST / max(len(self.replay), 1)))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"seen": [self.seen, self.seen_at_projection], "sigma_begun": self.sigma_begun}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.seen, self.seen_at_projection = state["seen"]
        self.sigma_begun = float(state["sigma_begun"])
