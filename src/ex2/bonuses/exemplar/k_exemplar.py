"""The K-exemplar model (paper, section 6.2 and appendix): a linear head for each group of K states, over a shared trunk.

Head g tells its K positives, states adjacent in time, from the background B with positives and negatives in equal weight:

    maximise  E_{x in group g}[log D_g(x)] + E_{x ~ B}[log(1 - D_g(x))],    D_g(x) = sigmoid(w_g . phi(x) + b_g).

At its positives the optimum is D = 1 / (1 + K p), so log p = log((1 - D) / D) - log K. K = 1 is the single-exemplar model;
K = None gives one discriminator for the whole batch, as in a GAN.

The trunk phi lives on from batch to batch; heads belong to the states they were made for. `prepare` trains the trunk
together with the new batch's heads, by Adam, as the paper does. `score` needs the heads alone, and given the trunk each is a
small convex problem (logistic regression), so they are solved by Newton's method, all at once: a pure function of the trunk,
the replay and the states asked about, which is why any state can be scored, not only those of the last batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ex2.batch import Batch
from ex2.bonus import Metrics
from ex2.bonuses.exemplar import propositions
from ex2.bonuses.exemplar.held import Points
from ex2.bonuses.exemplar.model import ExemplarModel, ExemplarSettings
from ex2.networks import Stem, mlp
from ex2.settings import setting

HEADS_AT_ONCE = 1_024  # that are solved
STEP_LIMIT = 100.0  # the longest Newton step of a head; far above what is usual, so that none runs away


def with_one(features: Tensor) -> Tensor:
    """[M, F] -> [M, F + 1]: a constant 1 behind the features."""
    return nn.functional.pad(features, (0, 1), value=1.0)


@dataclass(frozen=True, kw_only=True)
class KExemplarSettings(ExemplarSettings):
    k: int | None = setting(
        1,
        "states that share a head, adjacent in one episode of one environment; None for all of the batch. The paper's 5 blur "
        "what is rare where states change from step to step (5 on most of its tasks)",
        least=1,
    )
    latent_noise: float = setting(
        0.0,
        "standard deviation of Gaussian noise on the trunk's features; none by default, since states are noisy (0.1)",
        least=0.0,
    )
    ridge: float = setting(
        1e-4,
        "penalty 0.5 * ridge * |w|^2 on each head; without it a group that can be told apart surely has no optimum",
        above=0.0,
    )
    groups: int = setting(128, "heads that are trained with the trunk on a batch", least=1)
    negatives: int = setting(256, "background states in a gradient step, shared by its heads", least=1)
    newton_steps: int = setting(
        5, "iterations when heads are solved: 5 order states as well as 8; without any noise, take 8", least=1
    )
    newton_negatives: int = setting(1_024, "background states when heads are solved", least=1)
    draws: int = setting(
        32, "of the smoothing noise for each positive when heads are solved: with fewer a head fits the draws", least=1
    )
    trunk_learning_rate: float = setting(5e-4, "of Adam on the trunk", above=0.0)
    head_learning_rate: float = setting(1e-3, "of Adam on the heads", above=0.0)
    hidden: int = setting(
        32, "units in each of the trunk's two layers: a linear head on so many tells more places apart (16)", least=1
    )
    gain: float = setting(1.0, "multiplies the trunk's initial weights; more tells near states apart from the start", above=0.0)
    steps: int = setting(
        100, "gradient steps for each batch; few, since heads are solved, and only the trunk needs them (1,000)", least=1
    )


class KExemplar(ExemplarModel):
    """The paper's K-exemplar model as a bonus.

    Its defaults are not the paper's, which are nearly blind: they are those that order states by how rare they are, in vectors
    and pictures alike. The paper's are in brackets; `metric="learned"`, `state_noise=0.0` and they are its model.

    What it cannot do: a group has one head, so what is rare in it and what is not are told from the background together. Only
    where the states of a group are alike, as neighbours in time often are, does K > 1 cost no order. And a head is linear: of
    more places than the trunk has units it tells few apart surely. With noise on a trunk that is trained (`latent_noise`), the
    trunk learns to make all visited states about equally easy to tell apart, and D then does not count visits.
    """

    Settings = KExemplarSettings
    settings: KExemplarSettings
    networks: nn.Sequential

    def build(self) -> nn.Module:
        stem = self.make_stem()
        return nn.Sequential(stem, *mlp([stem.width, self.settings.hidden, self.settings.hidden], gain=self.settings.gain))

    @property
    def learning_rate(self) -> float:
        return self.settings.trunk_learning_rate

    @property
    def stem(self) -> Stem | Points:
        stem = self.networks[0]
        assert isinstance(stem, Stem | Points)
        return stem

    def sides(
        self, exemplars: Tensor, negatives: int, generator: torch.Generator, draws: int = 1, common: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Features of exemplars [G, K, D] and of background states, [G, draws * K, F] and [negatives, F], with the noise.

        The last feature is a constant 1, for the heads' bias. With `common`, every group gets the same noise.
        """
        groups = len(exemplars)

        def noise(rows: Tensor) -> Tensor:
            each = (len(rows) - negatives) // groups
            unit = torch.randn(each * (1 if common else groups) + negatives, rows.shape[1], generator=generator)
            own, other = unit.split([len(unit) - negatives, negatives])
            return torch.cat([own.repeat(groups if common else 1, 1), other]).to(self.device)

        early, late = (draws, 1) if self.sigma else (1, draws)  # where the draws part: before the trunk or behind it
        background = self.background.sample(negatives, generator)
        rows = torch.cat([exemplars.repeat(1, early, 1).flatten(0, 1), background]).to(self.device)
        if self.sigma:
            rows = rows + self.sigma * self.stem.spread() * noise(rows)
        own, other = self.networks(rows).split([len(rows) - negatives, negatives])
        own = own.view(groups, -1, other.shape[1]).repeat(1, late, 1)
        seen = torch.cat([own.flatten(0, 1), other])
        seen = with_one(seen + self.settings.latent_noise * noise(seen) if self.settings.latent_noise else seen)
        own, other = seen.split([len(seen) - negatives, negatives])
        return own.view(groups, -1, own.shape[1]), other

    @torch.no_grad()
    def solve_heads(self, exemplars: Tensor, generator: torch.Generator, common: bool = False) -> Tensor:
        """The best heads for exemplars [G, K, D] on the trunk as it is, [G, F]: Newton steps from zero, none too long."""
        draws = self.settings.draws if self.settings.latent_noise or self.sigma else 1
        positives, negatives = self.sides(exemplars, self.settings.newton_negatives, generator, draws, common)
        count, features = len(positives), positives.shape[-1]
        penalty = positives.new_full((features,), self.settings.ridge)
        products = (negatives[:, :, None] * negatives[:, None, :]).flatten(1)
        heads = positives.new_zeros(count, features)
        for _ in range(self.settings.newton_steps):
            own = torch.sigmoid(torch.einsum("gpf,gf->gp", positives, heads))
            other = torch.sigmoid(heads @ negatives.T)
            gradient = (
                torch.einsum("gp,gpf->gf", own - 1.0, positives) / positives.shape[1]
                + other @ negatives / len(negatives)
                + penalty * heads
            )
            own_curvature, other_curvature = own * (1.0 - own) / positives.shape[1], other * (1.0 - other) / len(negatives)
            hessian = (other_curvature @ products).view(count, features, features)
            hessian += torch.einsum("gp,gpf,gph->gfh", own_curvature, positives, positives)
            hessian.diagonal(dim1=1, dim2=2).add_(penalty)
            step = torch.linalg.solve(hessian, gradient)
            heads -= step * (STEP_LIMIT / step.norm(dim=1, keepdim=True)).clamp(max=1.0)
        return heads

    def grouped(self, batch: Batch) -> Tensor:
        """The groups of a batch as indices into its flattened transitions, [G, K]."""
        if self.settings.k is None:
            return torch.nonzero(batch.mask.flatten()).T
        return batch.groups(self.settings.k)

    def prepare(self, batch: Batch) -> Metrics:
        self.check(batch)
        if not self.ready or not batch.mask.any():
            return {}
        self.update_metric(batch, [self.stem])
        self.adapt_noise()
        groups = self.grouped(batch)
        chosen = groups[torch.randperm(len(groups), generator=self.generator)[: self.settings.groups]]
        exemplars = self.view(self.inputs.rows(batch).flatten(0, 1))[chosen]
        heads = self.solve_heads(exemplars, self.generator).requires_grad_()
        head_optimiser = torch.optim.Adam([heads], self.settings.head_learning_rate, fused=True)

        def loss() -> tuple[Tensor, ...]:
            positives, negatives = self.sides(exemplars, self.settings.negatives, self.generator)
            positive = torch.einsum("gpf,gf->gp", positives, heads)
            negative = negatives @ heads.T
            penalty = 0.5 * self.settings.ridge * heads.square().sum(1)
            return (softplus(-positive).mean(1) + softplus(negative).mean(0) + penalty).sum(), positive, negative

        total, positive, negative = self.descend(lambda: (), loss, held=(), also=head_optimiser)
        return self.report(total / len(chosen), positive, negative, telling=self.settings.k is not None)

    @torch.no_grad()
    def discriminate(self, exemplars: Tensor, common: bool = False) -> Tensor:
        """D_g at each of its own exemplars [G, K, D], [G, K]. With `common` draws it does not depend on the other groups."""
        generator = self.scoring_generator()
        answers = []
        for part in exemplars.split(HEADS_AT_ONCE):
            heads = self.solve_heads(part, self.scoring_generator() if common else generator, common)
            clean = with_one(self.networks(part.flatten(0, 1).to(self.device)))
            answers.append(torch.sigmoid(torch.einsum("gpf,gf->gp", clean.view(*part.shape[:2], -1), heads)))
        return torch.cat(answers).cpu()

    def log_density_of(self, seen: Tensor) -> Tensor:
        return propositions.log_density(self.discriminate(seen[:, None], common=True)).squeeze(1)

    def log_density_of_batch(self, batch: Batch) -> Tensor:
        if not len(self.background):
            return torch.zeros(batch.shape)
        groups = self.grouped(batch)
        rows = self.view(self.inputs.rows(batch).flatten(0, 1))
        repeated = groups == groups[:, -1:]  # where a group is filled up, its last state stands in it several times
        share = torch.where(repeated, repeated.sum(1, keepdim=True), 1) / groups.shape[1]
        log_density = torch.zeros(batch.shape).flatten()
        found = self.discriminate(rows[groups], common=self.held is not None)  # the same noise for all orders them better
        log_density[groups] = propositions.log_density(found) + share.log()
        return log_density.view(batch.shape)
