"""The closed-form exemplar model: with a known kernel the optimal discriminator is known, and nothing is left to train.

Smooth the exemplar x* by Gaussian noise q = N(0, sigma^2 I) and the background P alike. The paper's optimal discriminator
(Noisy Optimal Discriminator, section 4.2) then is

    D_{x*}(x) = q(x - x*) / (q(x - x*) + (P * q)(x)),    with the logit    log q(x - x*) - log (P * q)(x).

The first term is a distance. The second does not depend on x*: it is one function of x, the same for every exemplar, and P is
what has been visited, so it is a sum over that:

    (P * q)(x) = 1/n  sum over the n states held of  q(x - x_i).

At x = x* the discriminator says D = q(0) / (q(0) + (P * q)(x*)), and the density that the paper reads off it, (1 - D) / D, is
(P * q)(x*) / q(0): the share of the states held that lie within the kernel around x*. Times n it is a count of visits. So each
exemplar's classifier is exact, for any number of exemplars, without a gradient step; it is normalised; and where nothing was
seen it is never above what the nearest state seen allows. (Before, a network was trained towards this sum. In 17 of 18 worlds
like those of benchmarks/novelty.py, in the same metric, the sum was nearer to the truth; and it is cheaper.)

What decides is the metric (`ex2.bonuses.exemplar.features`), in which states are points, and the width of the kernel
(`ex2.bonuses.exemplar.smoothing`).

**The sum in bounded time.** States that share a cell of a kernel's width become one kernel at their mean, weighted by their
number: what is visited often is held in few kernels, and what was visited once in one of its own. If more than `kernels` cells
are left, as in many dimensions, that many states are drawn from those held.

**It knows when it does not know.** The states held are split in two halves, and the densities that each gives to the new batch
are compared: `agreement` is their rank correlation. Where they do not agree, the kernel is too narrow for what was seen; it is
widened until they do, and a warning says so once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ex2.batch import Batch
from ex2.bonus import DensityBonus, DensitySettings, Metrics
from ex2.bonuses.exemplar.features import FEATURES, PROJECTIONS, Features
from ex2.bonuses.exemplar.held import Held
from ex2.bonuses.exemplar.smoothing import AUTO, CENTRES, NOTHING, adapted
from ex2.episodic import Places
from ex2.errors import UsageError
from ex2.settings import setting
from ex2.shaping import FEWEST

CELL = 1.0  # width of the cells whose states share a kernel, in kernels
DISTANCES_AT_ONCE = 250_000  # as many as fit a processor's caches
FAINT = -30.0  # the logarithm of a sum below which it is taken anew, around the nearest kernel
FLOAT32 = 1e5  # squared distances, in kernels, that float32 holds to a hundredth
ASKED = 512  # states of a batch that the two halves are asked about
BLIND, APART = 0.3, 0.5  # halves do not agree if their rank correlation is below, and their difference, in nats, above this
WIDER, WIDENINGS = 1.5, 8  # what a kernel is widened by then, and how often at the most


class KernelSum:
    """log (P * q) for points held, up to q(0): kernels [K, D] with the number of points that each stands for, half by half."""

    def __init__(self, kernels: Tensor, counts: Tensor, sigma: float) -> None:
        self.kernels, self.counts, self.sigma = kernels, counts, sigma
        self.own: Tensor | None = None  # the kernel that each of the points belongs to, or -1 [n]
        self.share = 1.0  # what a point counts in it

    @classmethod
    def of(cls, points: Tensor, sigma: float, most: int, generator: torch.Generator) -> KernelSum:
        """Kernels for points [n, D]: a kernel a cell, or, if those are too many, so many of the points."""
        half = torch.rand(len(points), generator=generator).to(points.device) < 0.5
        multipliers = torch.randint(1, 2**62, (points.shape[1],), generator=generator).to(points.device)
        cells = ((points / (CELL * sigma)).clamp(-(2.0**40), 2.0**40).floor().long() * multipliers).sum(1)
        names, cell = cells.unique(return_inverse=True)
        if len(names) > most:
            chosen = torch.randperm(len(points), generator=generator)[:most].to(points.device)
            share = len(points) / most
            found = cls(points[chosen], share * torch.stack([half, ~half], 1)[chosen].to(points), sigma)
            found.own = torch.full((len(points),), -1).index_put_((chosen,), torch.arange(most))
            found.share = share
            return found
        counts = points.new_zeros(len(names), 2).index_add_(0, cell, torch.stack([half, ~half], 1).to(points))
        sums = points.new_zeros(len(names), points.shape[1]).index_add_(0, cell, points)
        found = cls(sums / counts.sum(1, keepdim=True), counts, sigma)
        found.own = cell
        return found

    def to(self, device: torch.device) -> KernelSum:
        return KernelSum(self.kernels.to(device), self.counts.to(device), self.sigma)

    def halves(self, points: Tensor) -> Tensor:
        """log of the sum over q(x - x_i) / q(0) for each half of the states held, [M, D] -> [M, 2]."""
        answers = []
        for exponents, rest in self._exponents(points):
            largest = exponents.amax(1, keepdim=True)
            sums = (exponents.sub_(largest).clamp_(min=NOTHING).exp_() @ self.counts.to(exponents)).log()
            answers.append(sums + largest + rest)
        return torch.cat(answers).to(points.dtype) if answers else points.new_zeros(0, 2)

    def _exponents(self, points: Tensor, added: Tensor | float = 0.0) -> Iterator[tuple[Tensor, Tensor]]:
        """-|x - x_i|^2 / 2 sigma^2 for some of the points at a time, [m, K], but for what does not depend on x_i [m, 1];
        and what is `added` for each kernel [K].

        As a product of matrices, in double precision where float32, or a GPU's shorter numbers, would lose it.
        """
        middle = self.kernels.mean(0)
        kernels, asked = (self.kernels - middle) / self.sigma, (points - middle) / self.sigma
        short = points.is_cuda and torch.get_float32_matmul_precision() != "highest"
        if short or kernels.square().sum(1).max() > FLOAT32:
            kernels, asked = kernels.double(), asked.double()
        lengths = added - 0.5 * kernels.square().sum(1)
        lengths = lengths.to(kernels)
        for some in asked.split(max(DISTANCES_AT_ONCE // len(kernels), 1)):
            yield torch.addmm(lengths, some, kernels.T), -0.5 * some.square().sum(1, keepdim=True)

    def log_visits_of_others(self, points: Tensor, which: Tensor) -> Tensor:
        """`log_visits` of points that the kernels were made of, the `which`-th of them [M], each without itself."""
        assert self.own is not None
        counts, own, answers = self.counts.sum(1), self.own[which].to(points.device), []
        begin = 0
        for exponents, rest in self._exponents(points):
            kernel = own[begin : begin + len(exponents)]
            weights = counts.to(exponents).log().expand_as(exponents).clone()
            held = torch.nonzero(kernel >= 0).flatten()
            left = (counts[kernel[held]] - self.share).clamp_min(0.0).to(exponents)
            weights[held, kernel[held]] = torch.where(left > 1e-6, left, torch.zeros_like(left)).log()
            answers.append((exponents + weights).logsumexp(1) + rest.squeeze(1))
            begin += len(exponents)
        return torch.cat(answers).to(points.dtype)

    def log_visits(self, points: Tensor) -> Tensor:
        """The logarithm of how many of the states held lie within the kernel around each point, [M, D] -> [M].

        As a plain sum of exponentials first, which is all it takes near what was seen; where nothing is near, it would be lost.
        """
        answers = []
        for exponents, rest in self._exponents(points, self.counts.sum(1).log()):  # weights among the exponents
            answers.append(exponents.add_(rest).clamp_(min=NOTHING).exp_().sum(1).log())
        found = torch.cat(answers).to(points.dtype) if answers else points.new_zeros(0)
        far = torch.nonzero(found < FAINT).flatten()
        found[far] = self.halves(points[far]).logsumexp(1)
        return found


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's, to four digits; 0 where one of them is constant.

    >>> rank_correlation(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([3.0, 4.0, 5.0]))
    1.0
    """
    if len(one) < 3 or one.max() == one.min() or other.max() == other.min():
        return 0.0
    ranks = []
    for values in (one, other):
        _, place, counts = (values * 1e4).round().unique(return_inverse=True, return_counts=True)  # what is equal is tied
        ranks.append((counts.cumsum(0) - 0.5 * counts)[place].double())
    return torch.corrcoef(torch.stack(ranks))[0, 1].nan_to_num().item()


@dataclass(frozen=True, kw_only=True)
class KernelExemplarSettings(DensitySettings):
    count_offset: float = setting(
        1.0,
        'added to the visits, for the form "sqrt-count": what was never seen pays 1, and not ten times what was seen once',
        least=0.0,
    )
    state_noise: float | Literal["auto"] = setting(
        AUTO, 'the kernel\'s width, in deviations of what was seen; "auto" chooses it from the data', above=0.0
    )
    information_rate: float | None = setting(
        None,
        'in nats, what "auto" holds, up to 6.1; by default it grows with the states held, see '
        "`ex2.bonuses.exemplar.smoothing.target_rate`",
        above=0.0,
    )
    kernels: int = setting(6_144, "that are summed over at the most; this bounds the cost", least=2)
    features: str = setting("convolutions", 'for pictures, "convolutions" or "pixels"', among=FEATURES)
    components: int = setting(16, "how many directions of the metric are kept at the most", least=1)
    projection: str = setting(
        "auto",
        'the rule of `ex2.bonuses.exemplar.features`, "variance" or "neighbours" for one side of its third step, or "none" for '
        "numbers on their scale and nothing else",
        among=PROJECTIONS,
    )


class KernelExemplar(DensityBonus):
    """The closed-form exemplar model as a bonus. p is relative to the kernel's peak, as everywhere: see `propositions`.

    A state that lies outside all kernels counts as 0.01 visits, and as less the farther out it lies, by a logarithm. The
    bonus is 1 / sqrt(N + 1): where it was 10 for such a state, an update followed the few actions of the one agent there.
    """

    Settings = KernelExemplarSettings
    settings: KernelExemplarSettings

    def setup(self) -> None:
        super().setup()
        chosen = self.settings
        metric: dict[str, Any] = {
            "kind": chosen.features,
            "components": chosen.components,
            "projection": chosen.projection,
        }
        self.held = Held(self.inputs, self.replay, self.generator, self.device, **metric)
        self.sigma = 0.0 if chosen.state_noise == AUTO else float(chosen.state_noise)
        self.smoothed = 0  # states held when the width was last adapted
        self.warned = False
        self.sum: KernelSum | None = None

    @property
    def features(self) -> Features:
        """The metric."""
        return self.held.features

    def check(self, batch: Batch) -> None:
        super().check(batch)
        first = self.ready and not self.features.fitted and bool(batch.mask.any())
        if self.features.projection == "neighbours" and first and not len(batch.neighbours()):
            raise UsageError("projection='neighbours' needs states adjacent in time: batches of at least 2 steps.")

    def prepare(self, batch: Batch) -> Metrics:
        """Fits the metric when twice as many states were seen, the smoothing, and places the kernels."""
        self.check(batch)
        rows = self.inputs.rows(batch)[batch.mask]
        if not self.ready or not len(rows):
            return {}
        if self.held.due and (self.features.projection != "neighbours" or len(batch.neighbours())):
            before = self.features.active, bool(self.features.table)
            self.held.fit(batch)
            if before != (self.features.active, bool(self.features.table)):
                self.smoothed = 0  # other directions: the width that served before says nothing of them
        points = self.held.points.rows()
        if self.settings.state_noise == AUTO:
            some, table = self.held.points.sample(CENTRES, self.generator), bool(self.features.table)
            rate, count = self.settings.information_rate, len(points)
            self.sigma = adapted(self.sigma, self.smoothed, some, count, rate, table, self.generator)
            self.smoothed = count
        asked = rows[torch.randperm(len(rows), generator=self.generator)[:ASKED]]
        agreement, visits, widened = self._place(points, self.held.view(asked).to(self.device))
        return {
            "smoothing": self.sigma,
            "kernels": float(len(self.sum.kernels)) if self.sum else 0.0,
            "directions": float(self.features.active),
            "table": float(self.features.table),
            "agreement": agreement,
            "unseen": (visits < math.log(FEWEST)).float().mean().item(),
            "widened": float(widened),
        }

    def _place(self, held: Tensor, asked: Tensor) -> tuple[float, Tensor, bool]:
        """Places the kernels; returns how far the halves agree on points asked about, and their log visits.

        Wider kernels where the halves do not agree, unless they are those of a table, or were asked for.
        """
        sigma, widened = self.sigma, 0
        while True:
            self.sum = KernelSum.of(held, sigma, self.settings.kernels, self.generator).to(self.device)
            halves = self.sum.halves(asked)
            agreement = rank_correlation(halves[:, 0], halves[:, 1])
            apart = (halves[:, 0] - halves[:, 1]).abs().median().item()  # alike everywhere is agreement, too
            fixed = self.settings.state_noise != AUTO or self.features.table or len(held) < 2 * ASKED
            if fixed or agreement >= BLIND or apart < APART or widened == WIDENINGS:
                break
            sigma, widened = WIDER * sigma, widened + 1
        if widened and not self.warned:
            self.warned = True
            warnings.warn(
                "kernel-exemplar: at its usual smoothing two halves of the states seen do not agree on which are rare, so it "
                f"smooths {sigma / self.sigma:.1f} times as much (agreement now {agreement:.2f}): if these observations hold "
                "much noise, say by `entries` which numbers count.",
                stacklevel=4,
            )
        return agreement, halves.logsumexp(1).cpu(), bool(widened)

    def places(self, batch: Batch) -> Places | None:
        if self.sum is None:
            return None
        return Places(self.held.points_of(batch).unflatten(0, batch.shape), self.sum.sigma, self.held.metric)

    def log_density_of_batch(self, batch: Batch) -> Tensor:
        log_density = torch.zeros(batch.shape)
        log_density[batch.mask] = self._log_density(self.held.points_of(batch)[batch.mask.flatten()])
        return log_density

    def log_density(self, rows: Tensor) -> Tensor:
        return self._log_density(self.held.view(rows))

    @torch.no_grad()
    def _log_density(self, points: Tensor) -> Tensor:
        """log p of points [M, D]. Below 0.01 visits it falls on like a logarithm."""
        if self.sum is None:
            return torch.zeros(len(points))
        visits = self.sum.log_visits(points.to(self.device)).cpu()
        lowest = math.log(FEWEST)
        visits = torch.where(visits < lowest, lowest - (lowest - visits).clamp_min(0.0).log1p(), visits)
        return visits - math.log(self.sum.counts.sum().item())

    def remember(self, batch: Batch) -> None:
        super().remember(batch)
        self.held.add(batch)

    def state_dict(self) -> dict[str, Any]:
        placed = None if self.sum is None else {"kernels": self.sum.kernels, "counts": self.sum.counts, "sigma": self.sum.sigma}
        return super().state_dict() | {
            "held": self.held.state_dict(),
            "sum": placed,
            "sigma": self.sigma,
            "smoothed": self.smoothed,
            "warned": self.warned,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.held.load_state_dict(state["held"])
        placed = state["sum"]
        self.sum = None
        if placed is not None:
            kernels, counts = (placed[name].clone().to(self.device) for name in ("kernels", "counts"))
            self.sum = KernelSum(kernels, counts, float(placed["sigma"]))
        self.sigma, self.smoothed, self.warned = float(state["sigma"]), int(state["smoothed"]), bool(state["warned"])

    def to(self, device: str | torch.device) -> KernelExemplar:
        super().to(device)
        self.held.to(self.device)
        if self.sum is not None:
            self.sum = self.sum.to(self.device)
        return self
