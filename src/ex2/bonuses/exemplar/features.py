"""The metric: in which space, and on which scale, `kernel-exemplar` measures how far states are apart.

A closed-form discriminator needs a metric that stays put: a learned encoder spends its volume where states are many, and then
all of them are equally easy to tell apart. So nothing here is trained by gradients. One rule serves all spaces, and it looks
at what was seen, not at what a space declares:

1. **Numbers** are taken in deviations from their middle, both without the outermost 1 %. Beyond 5 deviations they grow like
   logarithms: what lies farther out stays farther out, and one wild number does not decide. **Pictures** pass through one layer
   of frozen random convolutions and are pooled with overlap, so that a thing that moves a little changes them a little.
   The parts of a Dict or Tuple weigh the same.
2. **A table of places** (most of the different states seen were seen again, to the bit: one-hot codes, categories, small
   pictures) is no place for a metric: directions are random ones, which keep every two states apart.
3. Elsewhere, **principal directions**: those that hold 99 % of the variance. With C the covariance of a batch in them and W
   that of its steps from state to state (halved), the directions v of W v = w C v have a coherence h = 1 - w: near 1 for what
   changes slowly, near 0 for what is drawn anew at every step (a noisy television, a broken sensor), after what chance alone
   can do is taken off. Where some are coherent, distances along a direction count by the deviation it explains times h; where
   none is, because states come in no order, by that deviation alone, or, of more than 16 numbers, by the variance: what many
   numbers say together is heard, what each says for itself is not.
4. The 16 that count most are kept, and as one number more how far a state lies outside of all principal directions: somewhere
   that nothing seen so far has pointed to.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d

from ex2.inputs import Inputs, compressed
from ex2.networks import FARTHEST, FILTERS, KERNEL, SCALE_SAMPLE, STRIDE, middle_and_spread, usable

FEATURES = ("convolutions", "pixels")
PROJECTIONS = ("auto", "variance", "neighbours", "none")
POOLED_SIDE = 6  # pooled features have about as many places a side; each covers two of them
PICTURES_AT_ONCE = 2_048
VARIANCE = 0.99  # share of it that the principal directions hold, and of what counts that is kept
PRINCIPAL = 64  # principal directions at the most
EXACT = 256  # numbers up to which all principal directions are computed; of more, the largest by random projections
SPARE = 16  # random directions more than are asked for
FAINT = 0.01  # of a direction's variance, added to that within a batch: what hardly moves there is called coherent
COHERENT = 0.5  # of the most coherent direction, from which on neighbours in time are listened to
RECURRING = 0.5  # share of the different states seen that were seen again, from which on they are a table


def recurring(rows: Tensor, generator: torch.Generator) -> float:
    """The share of the different rows [M, W] that occur more than once.

    >>> recurring(torch.tensor([[1.0], [2.0], [2.0], [3.0]]), torch.Generator())
    0.3333333432674408
    """
    key = (rows.double() * torch.randn(rows.shape[1], dtype=torch.float64, generator=generator).to(rows.device)).sum(1)
    counts: Tensor = key.unique(return_counts=True)[1]
    return (counts > 1).float().mean().item()


def principal(apart: Tensor, few: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The largest variances [P] of centred rows [M, W], largest first, and their directions [W, P].

    Those that hold 99 % of the variance; all there are of so few numbers.
    """
    width = apart.shape[1]
    if width <= EXACT:
        values, vectors = torch.linalg.eigh(apart.T @ apart / len(apart))
        values, vectors = values.flip(0), vectors.flip(1)
    else:
        apart = apart[:: max(len(apart) // (2 * SCALE_SAMPLE), 1)]
        basis = torch.randn(width, PRINCIPAL + SPARE, dtype=apart.dtype, generator=generator).to(apart.device)
        for _ in range(3):
            basis = torch.linalg.qr(apart.T @ (apart @ basis)).Q
        values, inner = torch.linalg.eigh((apart @ basis).T @ (apart @ basis) / len(apart))
        values, vectors = values.flip(0), basis @ inner.flip(1)
    values = values.clamp_min(0.0)
    total = apart.square().sum() / len(apart)
    kept = width if width <= few else int((values.cumsum(0) < VARIANCE * total).sum()) + 1
    kept = min(kept, PRINCIPAL, int((values > 1e-12 * total).sum()))
    return values[: max(kept, 1)], vectors[:, : max(kept, 1)]


def coherent(pairs: Tensor) -> tuple[Tensor, Tensor]:
    """How coherent in time the directions of neighbours [2, P, D] are, from 0 to 1 [D], and the directions themselves [D, D].

    Both covariances are of the neighbours' own batch: that visits move on from batch to batch says nothing of noise. Of so many
    directions some seem coherent by chance, the more the fewer pairs there are; what chance can do (the edge of the
    Marchenko-Pastur law) counts as nothing.
    """
    first, second = pairs
    share = (pairs.shape[2] / pairs.shape[1]) ** 0.5
    chance = 1.0 - (1.0 - min(share, 1.0)) ** 2
    every = pairs.flatten(0, 1)
    total = (every - every.mean(0)).T @ (every - every.mean(0)) / len(every)
    total.diagonal().add_(FAINT)
    steps = first - second
    within = steps.T @ steps / (2 * len(steps))
    inverse = torch.linalg.inv(torch.linalg.cholesky(total))
    shares, turn = torch.linalg.eigh(inverse @ within @ inverse.T)
    turn = inverse.T @ turn
    return ((1.0 - shares - chance) / (1.0 - chance + 1e-9)).clamp(0.0, 1.0), turn / turn.norm(dim=0)


class Features(nn.Module):
    """Rows as `Inputs` makes them -> points [M, `width`], with a variance of about 1, as a mean over the directions that count.

    Args:
        kind: for pictures, "convolutions" or "pixels".
        components: how many directions are kept at the most. Those that a fit does not need are 0.
        projection: "auto", the rule above; "variance" or "neighbours", one side of its third step; or "none": numbers on their
            scale, and nothing else.
    """

    middle: Tensor
    spread: Tensor
    directions: Tensor
    span: Tensor
    reach: Tensor
    fitted: Tensor
    table: Tensor

    def __init__(self, inputs: Inputs, kind: str = "convolutions", components: int = 16, projection: str = "auto") -> None:
        super().__init__()
        self.inputs, self.kind, self.projection = inputs, kind, projection
        self.blocks = []
        for index, part in enumerate(inputs.pictures):
            assert part.shape is not None
            channels = part.shape[0]
            filters = torch.randn(FILTERS, channels, KERNEL, KERNEL) * (channels * KERNEL**2) ** -0.5
            self.register_buffer(f"filters_{index}", filters)
            self.blocks.append(self._look(torch.zeros(1, *part.shape, dtype=torch.uint8), index).shape[1])
        self.blocks += [part.width for part in inputs.vectors]
        seen = sum(self.blocks)
        self.projected = projection != "none"
        self.kept = min(components, seen) if self.projected else seen
        self.outside = self.projected and seen > self.kept
        self.width = self.kept + self.outside + inputs.action_width
        self.register_buffer("middle", torch.zeros(seen, dtype=torch.float64))
        self.register_buffer("spread", torch.ones(seen, dtype=torch.float64))
        self.register_buffer("directions", torch.zeros(seen, self.kept) if self.projected else torch.zeros(0))
        self.register_buffer("span", torch.zeros(seen, min(PRINCIPAL, seen)) if self.outside else torch.zeros(0))
        self.register_buffer("reach", torch.zeros(()))  # what the distance from the principal directions is multiplied by
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("table", torch.zeros((), dtype=torch.bool))

    @property
    def active(self) -> int:
        """How many directions count."""
        return int((self.directions != 0).any(0).sum()) if self.projected else self.kept

    def _look(self, pictures: Tensor, index: int) -> Tensor:
        """Bytes [M, channels, height, width] -> [M, numbers]."""
        pixels = pictures.float() / 255.0 - 0.5
        if self.kind == "pixels":
            return pixels.flatten(1)
        seen = torch.relu(conv2d(pixels.contiguous(), getattr(self, f"filters_{index}"), stride=STRIDE))
        sides = seen.shape[2:]
        return avg_pool2d(seen, [max(s // 3, 1) for s in sides], [max(s // POOLED_SIDE, 1) for s in sides]).flatten(1)

    def seen(self, rows: Tensor) -> Tensor:
        """States [M, row] as numbers in no common unit yet, without their actions."""
        pictures, numbers = self.inputs.split(rows)
        looks = [
            torch.cat([self._look(some, index) for some in picture.split(PICTURES_AT_ONCE)])
            for index, picture in enumerate(pictures)
        ]
        states = numbers[:, : self.inputs.numbers]
        return torch.cat([*looks, states], dim=1) if looks else states

    def scaled(self, seen: Tensor) -> Tensor:
        """What was seen, in deviations, and no wilder than it has to be."""
        return compressed(((seen - self.middle.float()) / self.spread.float()).clamp(-FARTHEST, FARTHEST))

    @torch.no_grad()
    def fit(self, rows: Tensor, neighbours: Tensor, generator: torch.Generator) -> None:
        """Fits all of it to rows [M, row], and to pairs of rows adjacent in time [P, 2, row], of which there may be none."""
        seen = self.seen(rows)
        self.table.fill_(self.projection == "auto" and recurring(seen, generator) > RECURRING)
        self._fit_scale(seen)
        apart = self.scaled(seen).double()
        if self.projected and self.table:
            self._fit_table(apart, generator)
        elif self.projected:
            pairs = torch.stack([self.scaled(self.seen(side)) for side in neighbours.unbind(1)]).double()
            self._fit_directions(apart - apart.mean(0), pairs, generator)
        self.fitted.fill_(True)

    def _fit_scale(self, seen: Tensor) -> None:
        """Middle and deviation of every number; of a picture's, one deviation for all. Each part then weighs the same."""
        if self.table:
            low, high = seen.double().amin(0), seen.double().amax(0)
            middle, spread = (low + high) / 2, (high - low) / 2
        else:
            middle, spread = middle_and_spread(seen[:: max(len(seen) // SCALE_SAMPLE, 1)])
        spread = usable(spread, middle)
        begin = 0
        for index, width in enumerate(self.blocks):
            block = slice(begin, begin + width)
            if index < len(self.inputs.pictures):
                spread[block] = usable(seen[:, block].double().std(0, unbiased=False).square().mean().sqrt(), torch.ones(()))
            if len(self.blocks) > 1:
                spread[block] *= math.sqrt(width)
            begin += width
        self.middle.copy_(middle)
        self.spread.copy_(spread)

    def _fit_table(self, apart: Tensor, generator: torch.Generator) -> None:
        count, width = self.directions.shape
        random = torch.randn(count, width, generator=generator) if count > width else torch.eye(count)
        directions = random.to(apart) / (apart @ random.to(apart)).std(0, unbiased=False).square().mean().sqrt().clamp_min(
            1e-12
        )
        self.directions.copy_(directions)
        self.reach.zero_()

    def _fit_directions(self, apart: Tensor, pairs: Tensor, generator: torch.Generator) -> None:
        """Step 3 of the rule, for centred rows [M, W] and neighbours [2, P, W]."""
        values, vectors = principal(apart, self.kept, generator)
        whiten = vectors / values.clamp_min(1e-12).sqrt()
        counts = values.sqrt() if apart.shape[1] <= self.kept else values
        if self.projection != "variance" and pairs.shape[1]:
            coherence, turn = coherent(pairs @ whiten)
            if coherence.max() > (0.0 if self.projection == "neighbours" else COHERENT):
                counts = (values.sqrt()[:, None] * turn).norm(dim=0) * coherence
                whiten = whiten @ turn
        order = counts.argsort(descending=True)
        energy = counts[order].square()
        kept = min(int((energy.cumsum(0) < VARIANCE * energy.sum()).sum()) + 1, self.kept)
        scale = energy[:kept].mean().clamp_min(1e-12).sqrt()
        self.directions.zero_()
        self.directions[:, :kept] = whiten[:, order[:kept]] * counts[order[:kept]] / scale
        if self.outside:
            self.span.zero_()
            self.span[:, : vectors.shape[1]] = vectors
            self.reach.copy_((kept / (apart.square().sum() / len(apart)).clamp_min(1e-12)).sqrt())

    @torch.no_grad()
    def forward(self, rows: Tensor) -> Tensor:
        scaled = self.scaled(self.seen(rows))
        actions = self.inputs.split(rows)[1][:, self.inputs.numbers :]
        if not self.projected:
            return torch.cat([scaled, actions], dim=1)
        pieces = [scaled @ self.directions, actions]
        if self.outside:
            beyond = scaled.square().sum(1) - (scaled @ self.span).square().sum(1)
            pieces.insert(1, (self.reach * beyond.clamp_min(0.0).sqrt())[:, None])
        return torch.cat(pieces, dim=1)
