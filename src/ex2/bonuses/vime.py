"""Variational information maximising exploration (Houthooft et al. 2016): novel is what teaches a model of the world something.

The model is a Bayesian network: weights have a factorised Gaussian q(w; mu, rho), sigma = log(1 + exp(rho)), and the network
says how a state will change under an action. What a transition teaches is the KL divergence between q after learning from it
and q before. To second order that needs no learning at all: with g the gradient of E_q[log p(transition | w)] by mu and rho, H
the Hessian of the divergence at its minimum, diagonal and known (1 / sigma^2 for mu, 2 sigmoid(rho)^2 / sigma^2 for rho),

    gain = 1/2 g^T H^-1 g = 1/2 sum over weights of sigma^2 (g_w^2 + 1/2 (g_w eps)^2),

where g_w is the gradient by a weight w = mu + sigma eps, and g_w and g_w eps are means over draws of eps. The gradient by the
weights of a layer is the outer product of what comes back to it and what went into it, so a whole batch is done at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from ex2.batch import Batch
from ex2.bonus import EntrySettings, Metrics
from ex2.bonuses.exemplar.features import Features
from ex2.bonuses.learned import LearnedBonus, LearnedSettings
from ex2.inputs import LARGEST_NUMBER
from ex2.networks import CLIPPED_AT, Moments
from ex2.replay import Fifo
from ex2.settings import setting

MEDIAN_SAMPLE = 512  # transitions of a batch
MEDIANS = 10  # of the newest batches, that gains are divided by the mean of
GRADIENTS_AT_ONCE = 4_000_000  # numbers
INITIAL = 0.05  # sigma of the weights at the start, as a share of the prior's


class BayesianNetwork(nn.Module):
    """Weights with a factorised Gaussian, layer by layer [out, in + 1], the last column a bias; relu between the layers."""

    def __init__(self, sizes: Sequence[int], prior: float, noise: float) -> None:
        super().__init__()
        self.prior, self.noise = prior, noise
        shapes = [(after, before + 1) for before, after in itertools.pairwise(sizes)]
        self.means = nn.ParameterList(torch.randn(shape) * shape[1] ** -0.5 for shape in shapes)
        begin = INITIAL * prior
        rho = begin + math.log(-math.expm1(-begin))  # so that softplus(rho) is that
        self.rhos = nn.ParameterList(torch.full(shape, rho) for shape in shapes)

    def deviations(self) -> list[Tensor]:
        return [softplus(rho) for rho in self.rhos]

    def draw(self, samples: int, generator: torch.Generator) -> list[Tensor]:
        """eps of so many draws of all weights: [S, out, in + 1] for each layer."""
        device = self.means[0].device
        return [torch.randn(samples, *mean.shape, generator=generator).to(device) for mean in self.means]

    def run(self, points: Tensor, noise: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """What goes into each layer [S, M, in + 1], and what comes out [S, M, out], for points [M, D]."""
        entering: list[Tensor] = []
        leaving: list[Tensor] = []
        value = points.expand(len(noise[0]), *points.shape)
        for mean, deviation, eps in zip(self.means, self.deviations(), noise, strict=True):
            value = pad(value if not leaving else value.relu(), (0, 1), value=1.0)
            entering.append(value)
            value = value @ (mean + deviation * eps).transpose(1, 2)
            leaving.append(value)
        return entering, leaving

    def divergence(self) -> Tensor:
        """KL(q || prior)."""
        total = torch.zeros((), device=self.means[0].device)
        for mean, deviation in zip(self.means, self.deviations(), strict=True):
            ratio = (deviation / self.prior).square()
            total = total + 0.5 * (ratio + (mean / self.prior).square() - 1.0 - ratio.log()).sum()
        return total

    def bound(self, points: Tensor, answers: Tensor, noise: list[Tensor], held: int) -> Tensor:
        """Minus the variational bound of a transition, of `held` in all, up to a constant."""
        _, leaving = self.run(points, noise)
        misfit = 0.5 * (leaving[-1] - answers).square().sum(2) / self.noise**2
        return misfit.mean() + self.divergence() / held

    @torch.no_grad()
    def information_gain(self, points: Tensor, answers: Tensor, noise: list[Tensor]) -> Tensor:
        """What points [M, D] with their answers [M, out] teach, each alone, in nats, [M]."""
        samples, deviations = len(noise[0]), self.deviations()
        entering, leaving = self.run(points, noise)
        back = (answers - leaving[-1]) / self.noise**2
        gain = torch.zeros(len(points), device=points.device)
        for layer in reversed(range(len(noise))):
            mean, deviation, eps = self.means[layer], deviations[layer], noise[layer]
            by_mean = torch.zeros(len(points), *mean.shape, device=points.device)
            by_draw = torch.zeros_like(by_mean)
            for sample in range(samples):
                product = back[sample, :, :, None] * entering[layer][sample, :, None, :]
                by_mean += product
                by_draw += product * eps[sample]
            by_weight = (by_mean.square() + 0.5 * by_draw.square()) / samples**2
            gain += 0.5 * (by_weight * deviation.square()).sum((1, 2))
            if layer:
                through = back @ (mean + deviation * eps)[..., :-1]
                back = through * (leaving[layer - 1] > 0)
        return gain


class Dynamics(nn.Module):
    """The Bayesian network, the moments of what it sees and answers, and, for images, the features it sees."""

    def __init__(
        self, width: int, actions: int, hidden: Sequence[int], prior: float, noise: float, features: Features | None
    ) -> None:
        super().__init__()
        self.features = features
        self.seen, self.changes = Moments(width), Moments(width)
        self.model = BayesianNetwork([width + actions, *hidden, width], prior, noise)


@dataclass(frozen=True, kw_only=True)
class InformationGainSettings(LearnedSettings, EntrySettings):
    hidden: tuple[int, ...] = setting((32,), "units of the hidden layers; with none it is Bayesian linear regression", least=1)
    prior: float = setting(0.5, "standard deviation of the weights", above=0.0)
    noise: float = setting(0.5, "standard deviation of the dynamics, in those of the changes of a state", above=0.0)
    samples: int = setting(10, "draws of the weights when gains are computed", least=1)
    steps: int = setting(100, "gradient steps for each batch, each with a draw of the weights of its own", least=1)
    replay_capacity: int = setting(100_000, "transitions held to train on", least=1)
    components: int = setting(32, "of an image's features", least=1)


class InformationGain(LearnedBonus):
    """The information that a transition gives about a Bayesian model of the dynamics, divided by a running median.

    For images, the model is of a fixed feature map's output (`ex2.bonuses.exemplar.features`), projected as the first
    batch suggests.
    """

    Settings = InformationGainSettings
    settings: InformationGainSettings
    networks: Dynamics

    def setup(self) -> None:
        super().setup()
        self.replay = Fifo(self.settings.replay_capacity, 2 * self.width + self.inputs.actions, torch.float32)
        self.medians: list[float] = []

    def check(self, batch: Batch) -> None:
        self.inputs.check(batch, transitions=True)

    def build(self) -> nn.Module:
        chosen = self.settings
        features = Features(self.inputs, components=chosen.components) if self.inputs.pictures else None
        self.width = features.width if features else self.inputs.width
        return Dynamics(self.width, self.inputs.actions, chosen.hidden, chosen.prior, chosen.noise, features)

    def loss(self, *fields: Tensor) -> Tensor:
        model = self.networks.model
        return model.bound(*self._standardised(fields[0]), model.draw(1, self.generator), len(self.replay))

    def _triples(self, batch: Batch) -> Tensor:
        """States or features, actions, and how the states changed, [M, 2 width + actions], on the CPU."""
        before, action, after = self.inputs.transitions(batch)
        if self.networks.features is not None:
            before, after = (self.networks.features(rows.to(self.device)).cpu() for rows in (before, after))
        change = (after.double() - before).clamp(-LARGEST_NUMBER, LARGEST_NUMBER).float()
        return torch.cat([before, action, change], dim=1)

    def _standardised(self, triples: Tensor) -> tuple[Tensor, Tensor]:
        """What the model sees and what it should answer. One number far outside what was seen must not be all that counts."""
        before, action, change = triples.split([self.width, self.inputs.actions, self.width], dim=1)
        before, change = (
            moments(values).clamp(-CLIPPED_AT, CLIPPED_AT)
            for moments, values in ((self.networks.seen, before), (self.networks.changes, change))
        )
        return torch.cat([before, action], dim=1), change

    def _gains(self, triples: Tensor) -> Tensor:
        """[M, 2 width + actions] -> [M]."""
        model = self.networks.model
        noise = model.draw(self.settings.samples, self.scoring_generator())
        chunk = max(GRADIENTS_AT_ONCE // sum(mean.numel() for mean in model.means), 1)
        parts = [self._standardised(part.to(self.device)) for part in triples.split(chunk)]
        return torch.cat([model.information_gain(*part, noise).cpu() for part in parts])

    def prepare(self, batch: Batch) -> Metrics:
        """Takes the batch into the running moments and median; the model learns when the batch is remembered."""
        rows, _, _ = self.inputs.transitions(batch)
        if len(rows) == 0:
            return {}
        if self.networks.features is not None and not self.networks.features.fitted:
            self.networks.features.fit(rows.to(self.device), rows[:0, None].expand(-1, 2, -1).to(self.device), self.generator)
        triples = self._triples(batch)
        self.networks.seen.update(triples[:, : self.width].to(self.device))
        self.networks.changes.update(triples[:, -self.width :].to(self.device))
        median = self._gains(triples[:: max(len(triples) // MEDIAN_SAMPLE, 1)]).median().item()
        self.medians = [*self.medians, median][-MEDIANS:]
        return {"median_gain": median, "divergence": self.networks.model.divergence().item()}

    def score(self, batch: Batch) -> Tensor:
        self.check(batch)
        scores = torch.zeros(batch.shape)
        if batch.mask.any():
            typical = sum(self.medians) / len(self.medians) if self.medians else 1.0
            scores[batch.mask] = self._gains(self._triples(batch)) / max(typical, 1e-12)
        return scores

    def remember(self, batch: Batch) -> None:
        self.check(batch)
        if not batch.mask.any():
            return
        self.replay.add(self._triples(batch))
        for _ in range(self.settings.steps):
            self.descend(self.replay.sample(self.settings.minibatch, self.generator))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"replay": self.replay.state_dict(), "medians": self.medians}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.replay.load_state_dict(state["replay"])
        self.medians = list(state["medians"])
