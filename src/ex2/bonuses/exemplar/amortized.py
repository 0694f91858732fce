"""The amortized exemplar model (paper, sections 4.3 and 6.1): one classifier D(z, z*), conditioned on the exemplar.

Two encoders that share nothing map a state x and an exemplar x* to Gaussian latents, z ~ q(z|x) and z* ~ q*(z*|x*). A small
network reads both and says whether x was the exemplar (y = 1) or came from the background (y = 0). Maximised is

    E_{x = x*}[log D(z, z*)] + E_{x ~ replay}[log(1 - D(z, z*))]
        - kl_weight * (KL(q(z|x) || N(0, I)) + KL(q*(z*|x*) || N(0, I)))

and the density of a state follows from how surely it is told from the background as its own exemplar:
p(x) is proportional to (1 - D(x)) / D(x), with D(x) = E[D(z, z*)] at x = x* (or D at the latent means).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ex2.batch import Batch
from ex2.bonus import Metrics
from ex2.bonuses.exemplar import propositions
from ex2.bonuses.exemplar.held import Points
from ex2.bonuses.exemplar.model import SCHEDULES, ExemplarModel, ExemplarSettings
from ex2.bonuses.exemplar.smoothing import AUTO, gaussian_kl, noise_like, sample_latent
from ex2.errors import UsageError
from ex2.networks import Stem, mlp
from ex2.settings import setting

VECTOR_SIZES = {"hidden": 32, "latent": 16}  # paper, appendix
IMAGE_SIZES = {"hidden": 64, "latent": 32}
FIRST_KL_WEIGHT = 1e-3  # where an automatic one begins
KL_WEIGHTS = (math.log(1e-6), math.log(1.0))  # logarithms between which it stays
KL_SPEED = 0.02  # how far its logarithm moves in a step at most
RELIEF = math.log(10.0)  # how far it falls after a collapse
QUIET = 4.0  # how much lower log variances begin in a fixed metric: states are noisy there, and latents need not be
SCATTER = 0.25  # of exemplars, where nothing is said and noise on states means something
RATED_AT_ONCE = 8_192  # rows


class Encoder(nn.Module):
    """q(z|x): rows -> mean and log variance of a Gaussian latent, both from this encoder's own features."""

    def __init__(self, stem: Stem | Points, hidden: int, latent: int, gain: float) -> None:
        super().__init__()
        self.stem = stem
        self.trunk = mlp([self.stem.width, hidden, hidden], gain=gain)
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        features = self.trunk(self.stem(rows))
        return self.mean(features), self.log_variance(features)


class Pair(nn.Module):
    """Both encoders, and the discriminator on the pair of latents.

    With `difference` it reads the squares of their differences, too, and both encoders begin with the same weights and little
    noise: what is near is called the same from the start, and need not be discovered.
    """

    log_kl_weight: Tensor
    kl_target: Tensor
    discriminator: nn.Sequential

    def __init__(self, stem: Callable[[], Stem | Points], hidden: int, latent: int, gain: float, difference: bool) -> None:
        super().__init__()
        self.state = Encoder(stem(), hidden, latent, gain)
        self.exemplar = Encoder(stem(), hidden, latent, gain)
        if difference:
            with torch.no_grad():
                self.state.log_variance.bias.sub_(QUIET)
            self.exemplar.load_state_dict(self.state.state_dict())
        self.difference = difference
        self.discriminator = nn.Sequential(*mlp([(3 if difference else 2) * latent, hidden, hidden]), nn.Linear(hidden, 1))
        self.register_buffer("log_kl_weight", torch.tensor(math.log(FIRST_KL_WEIGHT)))
        self.register_buffer("kl_target", torch.ones(()))

    def logit(self, z: Tensor, own_z: Tensor) -> Tensor:
        """The log odds that x is the exemplar, [M], from z and z* [M, latent]."""
        pieces = [z, own_z, (z - own_z).square()] if self.difference else [z, own_z]
        logits: Tensor = self.discriminator(torch.cat(pieces, dim=1))
        return logits.squeeze(1)

    def logits(self, z: Tensor, own_z: Tensor) -> Tensor:
        """The log odds of every pair, [N, M] from z [N, latent] and z* [M, latent]: the first layer runs once for each side."""
        first, latent = self.discriminator[0], z.shape[1]
        assert isinstance(first, nn.Linear)
        mine, other = z @ first.weight[:, :latent].T, own_z @ first.weight[:, latent : 2 * latent].T + first.bias
        seen = mine[:, None] + other[None]
        if self.difference:
            seen = seen + (z[:, None] - own_z[None]).square() @ first.weight[:, 2 * latent :].T
        logits: Tensor = self.discriminator[1:](seen)
        return logits.squeeze(2)


@dataclass(frozen=True, kw_only=True)
class AmortizedExemplarSettings(ExemplarSettings):
    kl_weight: float | Literal["auto"] = setting(
        1e-5,
        "how dearly information through the latents is paid for; more smooths more. Little by default, since noise is on the "
        'states already (0.01). "auto" holds the encoders\' KL, their mean, at the information rate aimed for, see '
        "`ex2.bonuses.exemplar.smoothing`",
        least=0.0,
    )
    pairs: int = setting(
        512,
        "exemplars in a gradient step, each shown once with itself and once with a negative: fewer are noisier, and cost "
        "almost as much (128)",
        least=1,
    )
    all_pairs: bool = setting(
        False,
        "show each exemplar with every negative of the step instead, positives and negatives still in equal weight; the "
        "encoders run as often as before. For its cost, more `pairs` were better where the metric is fixed",
    )
    scatter: float | None = setting(
        None,
        "share of those exemplars that are moved away from visited states, by Gaussian noise of 1 to 10 deviations in a fixed "
        "metric, and of 1 in a learned one, not out of a bounded space; not for pictures in a learned one. None is 0.25 "
        "wherever it can be (0). An exemplar may be any point: what D says of it is the density there. Without this, states "
        "that nobody visited are strange to the comparison itself, which then calls them familiar as often as novel",
        least=0.0,
        most=1.0,
    )
    samples: int = setting(
        0, "draws of (z, z*) that D(x) is averaged over; 0 uses the latent means, which have no noise (8)", least=0
    )
    learning_rate: float = setting(
        5e-3, "of Adam, for few steps; with 1e-2 some fits collapsed on one-hot codes (1e-4)", above=0.0
    )
    hidden: int | None = setting(None, "units of the hidden layers; the paper's unless said", least=1)
    latent: int | None = setting(None, "numbers of a latent; the paper's unless said", least=1)
    gain: float = setting(
        2.0, "multiplies the encoders' initial weights; more tells near states apart from the start (1)", above=0.0
    )
    steps: int = setting(120, "gradient steps for each batch; few, since networks live on from batch to batch (1,000)", least=1)
    first_steps: int | None = setting(
        400, "gradient steps for the first batch or a new metric; as many as for others, unless more is said (1,000)", least=1
    )
    information_rate: float | None = setting(
        3.0,
        "of automatic noise, in nats, up to 6.1: with more, hardly a pair of a step is hard to tell apart, and the network "
        "learns little. None for 0.4 log n, with n the states held",
        above=0.0,
    )
    schedule: str = setting(
        "one-cycle",
        'of the learning rate within a fit: "one-cycle" rises and falls to 2 %, so that a fit ends with small steps '
        '("constant")',
        among=SCHEDULES,
    )


class AmortizedExemplar(ExemplarModel):
    """The paper's amortized model as a bonus.

    Its defaults are not the paper's, which are nearly blind: they are those that order states by how rare they are, in vectors
    and pictures alike. The paper's are in brackets; `metric="learned"` with them is its model to the letter.

    What it cannot do: with noise in a learned latent only, D does not count visits, whatever the training. Encoders spend their
    room where states are many, until all that were visited are about equally easy to tell apart, and p is in proportion to
    (1 - D) / D only where noise is alike around every exemplar. Such a model says what was never seen, not what is rare. Noise
    on states in a fixed metric is alike everywhere; what is left then is the error of a network that compares.
    """

    Settings = AmortizedExemplarSettings
    settings: AmortizedExemplarSettings
    networks: Pair

    def setup(self) -> None:
        super().setup()
        asked = self.settings.scatter
        if asked and not self.vectors:
            raise UsageError(f"scatter={asked} must be 0 for images in a learned metric.")
        self.scatter = (SCATTER if self.vectors else 0.0) if asked is None else asked

    def build(self) -> nn.Module:
        paper = VECTOR_SIZES if self.vectors else IMAGE_SIZES
        hidden, latent = self.settings.hidden or paper["hidden"], self.settings.latent or paper["latent"]
        return Pair(self.make_stem, hidden, latent, self.settings.gain, difference=self.held is not None)

    @property
    def stem(self) -> Stem | Points:
        return self.networks.state.stem

    @property
    def learning_rate(self) -> float:
        return self.settings.learning_rate

    def draw(self, rows: Tensor) -> tuple[Tensor, ...]:
        """What `loss` takes, for one step: exemplars and as many negatives [B, D], and unit noise for states and latents."""
        exemplars = self.draw_exemplars(rows)
        negatives = self.background.sample(self.settings.pairs, self.generator)
        return exemplars, negatives, *self.draw_noise(len(exemplars), rows.shape[1])

    def draw_noise(self, count: int, width: int) -> tuple[Tensor, ...]:
        latent = self.networks.state.mean.out_features
        shapes = ((2 * count, width if self.sigma else 0), (2 * count, latent), (count, latent))
        return *(torch.randn(shape, generator=self.generator) for shape in shapes), torch.tensor(self.sigma)

    def loss(self, exemplars: Tensor, negatives: Tensor, *noise: Tensor) -> tuple[Tensor, ...]:
        """The negative objective over exemplars and as many negatives [B, D]: loss, KL, positive and negative logits."""
        state_noise, latent_noise, own_noise, sigma = noise or self.draw_noise(*exemplars.shape)
        states = torch.cat([exemplars, negatives])
        if state_noise.shape[1]:
            states = states + sigma * self.networks.state.stem.spread() * state_noise
        mean, log_variance = self.networks.state(states)
        own_mean, own_log_variance = self.networks.exemplar(exemplars)
        z = sample_latent(mean, log_variance, latent_noise)
        own_z = sample_latent(own_mean, own_log_variance, own_noise)
        divergence = gaussian_kl(mean, log_variance).mean() + gaussian_kl(own_mean, own_log_variance).mean()
        if self.settings.all_pairs:
            positive = self.networks.logit(z[: len(exemplars)], own_z)
            negative = self.networks.logits(z[len(exemplars) :], own_z)
        else:
            positive, negative = self.networks.logit(z, own_z.repeat(2, 1)).chunk(2)
        cross_entropy = softplus(-positive).mean() + softplus(negative).mean()
        return cross_entropy + self.kl_price(divergence) * divergence, divergence, positive, negative

    def kl_price(self, divergence: Tensor) -> float | Tensor:
        """The KL weight; an automatic one first moves so that the encoders' mean KL stays near the information rate."""
        chosen = self.settings.kl_weight
        if chosen != AUTO:
            return chosen
        weight = self.networks.log_kl_weight
        if torch.is_grad_enabled():
            with torch.no_grad():
                excess = (0.5 * divergence / self.networks.kl_target - 1.0).clamp(-1.0, 1.0)
                weight.add_(KL_SPEED * excess).clamp_(*KL_WEIGHTS)
        return weight.exp()

    def prepare(self, batch: Batch) -> Metrics:
        rows = self.inputs.rows(batch)[batch.mask]
        if not self.ready or not len(rows):
            return {}
        self.update_metric(batch, [self.networks.state.stem, self.networks.exemplar.stem])
        self.adapt_noise()
        self.networks.kl_target.fill_(self.rate_now())
        train, held = self.split(self.view(rows))
        held_draw = self.draw(held) if len(held) else None
        loss, divergence, positive, negative = self.descend(lambda: self.draw(train), self.loss, held_draw)
        chosen = self.settings.kl_weight
        weight = self.networks.log_kl_weight.exp().item() if chosen == AUTO else float(chosen)
        return {"kl": divergence.item(), "kl_weight": weight} | self.report(loss, positive, negative)

    @property
    def automatic(self) -> bool:
        return super().automatic or self.settings.kl_weight == AUTO

    def recover(self) -> None:
        super().recover()
        self.networks.log_kl_weight.sub_(RELIEF).nan_to_num_(math.log(FIRST_KL_WEIGHT)).clamp_(*KL_WEIGHTS)

    def draw_exemplars(self, rows: Tensor) -> Tensor:
        """Exemplars of a gradient step, [pairs, D], from the rows of the batch; a share of them scattered."""
        exemplars = rows[torch.randint(len(rows), (self.settings.pairs,), generator=self.generator)]
        far = round(self.scatter * self.settings.pairs)
        if far:
            self.scatter_rows(exemplars[:far])
        return exemplars

    @torch.no_grad()
    def discriminate(self, rows: Tensor) -> Tensor:
        """D(x) of each state seen [M, D] as its own exemplar, [M]."""
        generator = self.scoring_generator()
        rows = rows.to(self.device)
        mean, log_variance = self.networks.state(rows)
        own_mean, own_log_variance = self.networks.exemplar(rows)
        if self.settings.samples == 0:
            return torch.sigmoid(self.networks.logit(mean, own_mean))
        total = torch.zeros(len(rows), device=self.device)
        for _ in range(self.settings.samples):
            z = sample_latent(mean, log_variance, noise_like(mean, generator))
            own_z = sample_latent(own_mean, own_log_variance, noise_like(own_mean, generator))
            total += torch.sigmoid(self.networks.logit(z, own_z))
        return total / self.settings.samples

    def log_density_of(self, seen: Tensor) -> Tensor:
        return torch.cat([propositions.log_density(self.discriminate(part).cpu()) for part in seen.split(RATED_AT_ONCE)])
