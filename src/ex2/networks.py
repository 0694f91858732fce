"""The paper's networks: fully connected trunks for vectors, convolutional stems for images, normalised inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ex2.inputs import Inputs, compressed

CONVOLUTIONS = 2  # paper, appendix: 2 convolutional layers of 16 4x4 filters, stride 2, relu
FILTERS, KERNEL, STRIDE = 16, 4, 2
CLIPPED_AT = 5.0  # standard deviations, where inputs are whitened
IMAGES_AT_ONCE = 512  # whose moments are computed at a time
MEMORY = 200_000  # rows that all before a batch count as at the most
WILD = 10.0  # deviations from the middle at which a number stops counting more
FEW = 100  # rows of a batch from which on it tells wild numbers from others by itself
SCALE_SAMPLE = 1_024  # rows of a batch that its own middle and deviation are taken from
FARTHEST = 1e30  # deviations that a number is away at the most
NARROWEST, WIDEST = 1e-37, 1e37  # deviations that float32 can divide by
RESOLUTION = 1e-6  # of a middle: deviations below it are float32's rounding


def mlp(sizes: Sequence[int], activation: type[nn.Module] = nn.Tanh, gain: float = 1.0) -> nn.Sequential:
    """Fully connected layers, an activation after each. `gain` multiplies all initial weights: more tells near states apart.

    >>> len(mlp([2, 32, 32]))
    4
    """
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        linear = nn.Linear(before, after)
        with torch.no_grad():
            linear.weight.mul_(gain)
            linear.bias.mul_(gain)
        layers += [linear, activation()]
    return nn.Sequential(*layers)


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Networks that `build` makes with PyTorch's generator seeded; the generator itself stays where it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would touch GPUs, too
        return build()


def middle_and_spread(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each column of rows [M, W] in double precision, both without the outermost 1 % at either end.

    So a few wild numbers leave a column's scale as it is. A column with so few exceptions that nothing is left without them
    (a rare event's) has those of all rows, and one that never changes a deviation of 0.
    """
    rows = rows.double()
    ordered = rows.T.contiguous().sort(1).values
    cut = len(rows) // 100
    clipped = rows.clamp(ordered[:, cut], ordered[:, len(rows) - 1 - cut])
    flat = clipped.std(0, unbiased=False) == 0
    kept = torch.where(flat, rows, clipped)
    return kept.mean(0), kept.std(0, unbiased=False)


def usable(spread: Tensor, middle: Tensor, resolution: float = RESOLUTION) -> Tensor:
    """Deviations to divide by: 1 instead of one that is nothing but rounding, whatever the units."""
    return torch.where(spread > resolution * middle.abs(), spread, torch.ones_like(spread)).clamp(NARROWEST, WIDEST)


class Moments(nn.Module):
    """The running mean and deviation of rows [M, width]. They resist wild numbers, and forget what is long past.

    A number counts as at most 10 deviations away from the middle, its batch's or the running one's, whichever reaches farther
    (of a batch of fewer than 100 rows, the running one's); and all rows before a batch as `MEMORY` at the most.
    """

    mean: Tensor
    deviation: Tensor
    seen: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("deviation", torch.zeros(width, dtype=torch.float64))  # sum of squares around the mean
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        for part in rows.split(IMAGES_AT_ONCE if rows.dtype == torch.uint8 else max(len(rows), 1)):
            if len(part) == 0:
                return
            part = part.to(self.mean)
            if rows.dtype != torch.uint8:
                part = self._tamed(part)
            middle = part.mean(0)
            apart = middle - self.mean
            if self.seen > MEMORY:
                self.deviation *= MEMORY / self.seen
                self.seen.fill_(MEMORY)
            before = self.seen.clone()
            self.seen += len(part)
            self.deviation += (part - middle).square().sum(0) + apart.square() * before * len(part) / self.seen
            self.mean += apart * len(part) / self.seen

    def _tamed(self, rows: Tensor) -> Tensor:
        """Rows with wild numbers moved to 10 deviations from the middle."""
        middle, spread = middle_and_spread(rows[:: max(len(rows) // SCALE_SAMPLE, 1)])
        low, high = middle - WILD * spread, middle + WILD * spread
        if self.seen > 0:
            known = (self.deviation / self.seen).sqrt()
            below, above = self.mean - WILD * known, self.mean + WILD * known
            alone = len(rows) < FEW <= self.seen
            low, high = (below, above) if alone else (torch.minimum(low, below), torch.maximum(high, above))
        return torch.where(high > low, rows.clamp(low, high), rows)

    def spread(self) -> Tensor:
        """The standard deviation [width]; 1 for what never changed, and before anything was seen."""
        return usable((self.deviation / self.seen.clamp_min(1.0)).sqrt(), self.mean).float()

    def forward(self, rows: Tensor) -> Tensor:
        return self.now()(rows)

    def now(self) -> Callable[[Tensor], Tensor]:
        """What standardises rows as long as nothing more is taken in."""
        mean, spread = self.mean, self.spread()
        return lambda rows: ((rows.double() - mean) / spread).clamp_(-FARTHEST, FARTHEST).float()


class Stem(nn.Module):
    """Rows as `Inputs` makes them -> features [M, `width`]: what every exemplar network begins with.

    Numbers are standardised by running moments of what was seen (`update` moves the moments, the forward pass never does),
    whatever a space declares; beyond 5 deviations they count like logarithms. Actions stay as they are. Pictures are scaled to
    [0, 1] and go through the paper's convolutions. With `whiten` every number is standardised, pixels included, and clipped to
    [-5, 5].
    """

    unit: Tensor

    def __init__(self, inputs: Inputs, whiten: bool = False) -> None:
        super().__init__()
        self.inputs, self.whiten = inputs, whiten
        self.moments = Moments(inputs.numbers)
        self.pixels = Moments(inputs.pixels) if whiten and inputs.pictures else None
        self.register_buffer("unit", torch.ones(inputs.action_width), persistent=False)
        self.width = inputs.numbers + inputs.action_width
        self.convolutions = nn.ModuleList()
        for part in inputs.pictures:
            assert part.shape is not None
            channels, height, width = part.shape
            layers: list[nn.Module] = []
            for _ in range(CONVOLUTIONS):
                layers += [nn.Conv2d(channels, FILTERS, KERNEL, STRIDE), nn.ReLU()]
                height, width, channels = (height - KERNEL) // STRIDE + 1, (width - KERNEL) // STRIDE + 1, FILTERS
            self.convolutions.append(nn.Sequential(*layers))
            self.width += channels * height * width

    def update(self, rows: Tensor) -> None:
        """Takes rows [M, row] into the running moments."""
        _, numbers = self.inputs.split(rows)
        if self.inputs.numbers:
            self.moments.update(numbers[:, : self.inputs.numbers])
        if self.pixels is not None:
            self.pixels.update(rows[:, : self.inputs.pixels])

    def spread(self) -> Tensor:
        """The standard deviation that each number is divided by, [numbers + actions]: 1 for actions."""
        return torch.cat([self.moments.spread(), self.unit])

    def forward(self, rows: Tensor) -> Tensor:
        return self.see(*self.standardised(rows))

    def standardised(self, rows: Tensor) -> tuple[list[Tensor], Tensor]:
        """Rows [M, row] on a sensible scale: pictures [M, channels, height, width] and numbers [M, numbers + actions]."""
        pictures, numbers = self.inputs.split(rows)
        states, actions = numbers.split([self.inputs.numbers, self.inputs.action_width], dim=1)
        states = self.moments(states)
        if self.pixels is not None:
            whitened = self.pixels(rows[:, : self.inputs.pixels]).clamp(-CLIPPED_AT, CLIPPED_AT)
            begin = 0
            for index, part in enumerate(self.inputs.pictures):
                pictures[index] = part.picture(whitened[:, begin : begin + part.width])
                begin += part.width
        else:
            pictures = [picture.float() / 255.0 for picture in pictures]
        return pictures, torch.cat(
            [states.clamp(-CLIPPED_AT, CLIPPED_AT) if self.whiten else compressed(states), actions], dim=1
        )

    def see(self, pictures: list[Tensor], numbers: Tensor) -> Tensor:
        """The features of what was standardised: of pictures by the convolutions, and numbers as they are."""
        seen = [layers(picture).flatten(1) for layers, picture in zip(self.convolutions, pictures, strict=True)]
        return torch.cat([*seen, numbers], dim=1) if seen else numbers
