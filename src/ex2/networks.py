"""The paper's networks: fully connected trunks for vectors, convolutional stems for images, normalised inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ex2.batch import Inputs
from ex2.errors import UsageError

CONVOLUTIONS = 2  # paper, appendix: 2 convolutional layers of 16 4x4 filters, stride 2, relu
FILTERS, KERNEL, STRIDE = 16, 4, 2
LARGEST = 5.0  # standard deviations, where inputs are whitened
IMAGES = 512  # whose moments are computed at a time


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


def image_layout(shape: tuple[int, ...]) -> tuple[int, int, int, bool]:
    """Height, width, channels of an image's shape, and whether channels come last.

    >>> image_layout((4, 84, 84)), image_layout((32, 48, 3))
    ((84, 84, 4, False), (32, 48, 3, True))
    """
    last = shape[2] < shape[0]
    return (*shape, True) if last else (*shape[1:], shape[0], False)  # type: ignore[return-value]


class Moments(nn.Module):
    """The running mean and deviation of rows [M, width], each row seen counting the same."""

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
        for part in rows.split(IMAGES if rows.dtype == torch.uint8 else max(len(rows), 1)):
            if len(part) == 0:
                return
            part = part.to(self.mean)
            middle = part.mean(0)
            apart, before = middle - self.mean, self.seen.clone()
            self.seen += len(part)
            self.deviation += (part - middle).square().sum(0) + apart.square() * before * len(part) / self.seen
            self.mean += apart * len(part) / self.seen

    def spread(self) -> Tensor:
        """The standard deviation [width], 0.001 at the least, and 1 before anything was seen."""
        spread = (self.deviation / self.seen).sqrt().clamp_min(1e-3).float()
        return torch.where(self.seen > 0, spread, torch.ones_like(spread))

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean.float()) / self.spread()


class Stem(nn.Module):
    """Rows as `Inputs` makes them -> features [M, `width`]: what every exemplar network begins with.

    Vectors pass through, standardised by running moments where the space has no bounds (`update` moves the moments, the
    forward pass never does). Images are scaled to [0, 1] and go through the paper's convolutions; actions beside an image
    join behind them. With `whiten` every number is standardised, pixels included, and clipped to [-5, 5].
    """

    unit: Tensor

    def __init__(self, inputs: Inputs, whiten: bool = False) -> None:
        super().__init__()
        self.image_shape = inputs.image_shape
        self.whiten = whiten
        self.standardise = whiten or (not inputs.image_shape and not inputs.bounded)
        self.action_width = inputs.action_width
        self.row_width = self.width = inputs.width
        self.register_buffer("unit", torch.ones(inputs.width), persistent=False)
        if self.standardise:
            self.moments = Moments(inputs.width)
        if self.image_shape:
            height, width, channels, self.channels_last = image_layout(self.image_shape)
            layers: list[nn.Module] = []
            for _ in range(CONVOLUTIONS):
                layers += [nn.Conv2d(channels, FILTERS, KERNEL, STRIDE), nn.ReLU()]
                height, width, channels = (height - KERNEL) // STRIDE + 1, (width - KERNEL) // STRIDE + 1, FILTERS
            if min(height, width) < 1:
                raise UsageError(f"Images of shape {self.image_shape} are too small for the convolutions: 10x10 at least.")
            self.convolutions = nn.Sequential(*layers)
            self.width = channels * height * width + inputs.action_width

    def update(self, rows: Tensor) -> None:
        """Takes rows [M, width] into the running moments, if there are any."""
        if self.standardise:
            self.moments.update(rows)

    def spread(self) -> Tensor:
        """The standard deviation that each entry is divided by, [width]: 1 where the space is bounded, and for actions."""
        if not self.standardise:
            return self.unit
        spread = self.moments.spread()
        return torch.cat([spread[: self.row_width - self.action_width], torch.ones(self.action_width, device=spread.device)])

    def forward(self, rows: Tensor) -> Tensor:
        return self.see(self.standardised(rows), rows)

    def standardised(self, rows: Tensor) -> Tensor:
        """Rows [M, row] as numbers on a sensible scale: states [M, state] of images, whole rows of vectors."""
        states = rows[:, : self.row_width - self.action_width] if self.image_shape else rows
        if not self.standardise:
            return states.float() / 255.0 if self.image_shape else states
        middle, spread = self.moments.mean.float(), self.spread()
        middle[self.row_width - self.action_width :] = 0.0
        scaled = (states - middle[: states.shape[1]]) / spread[: states.shape[1]]
        return scaled.clamp(-LARGEST, LARGEST) if self.whiten else scaled

    def see(self, states: Tensor, rows: Tensor) -> Tensor:
        """The features of standardised states, with the actions of the rows behind them."""
        if not self.image_shape:
            return states
        pixels = states.reshape(-1, *self.image_shape)
        seen = self.convolutions(pixels.permute(0, 3, 1, 2) if self.channels_last else pixels).flatten(1)
        return torch.cat([seen, rows[:, rows.shape[1] - self.action_width :].float()], dim=1)
