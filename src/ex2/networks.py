"""The paper's networks: fully connected trunks for vectors, convolutional stems for images, normalised inputs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ex2.batch import Inputs
from ex2.errors import UsageError

CONVOLUTIONS = 2  # paper, appendix: 2 convolutional layers of 16 4x4 filters, stride 2, relu
FILTERS, KERNEL, STRIDE = 16, 4, 2


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


def image_layout(shape: tuple[int, ...]) -> tuple[int, int, int, bool]:
    """Height, width, channels of an image's shape, and whether channels come last.

    >>> image_layout((4, 84, 84)), image_layout((32, 48, 3))
    ((84, 84, 4, False), (32, 48, 3, True))
    """
    last = shape[2] < shape[0]
    return (*shape, True) if last else (*shape[1:], shape[0], False)  # type: ignore[return-value]


class Stem(nn.Module):
    """Rows as `Inputs` makes them -> features [M, `width`]: what every exemplar network begins with.

    Vectors pass through, standardised by running moments where the space has no bounds (`update` moves the moments, the
    forward pass never does). Images are scaled to [0, 1] and go through the paper's convolutions; actions beside an image
    join behind them.
    """

    mean: Tensor
    deviation: Tensor
    seen: Tensor
    unit: Tensor

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.image_shape = inputs.image_shape
        self.standardise = not inputs.image_shape and not inputs.bounded
        self.action_width = inputs.action_width
        self.row_width = self.width = inputs.width
        self.register_buffer("unit", torch.ones(inputs.width), persistent=False)
        if self.standardise:
            self.register_buffer("mean", torch.zeros(inputs.width, dtype=torch.float64))
            self.register_buffer("deviation", torch.zeros(inputs.width, dtype=torch.float64))  # sum of squares around the mean
            self.register_buffer("seen", torch.zeros((), dtype=torch.float64))
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

    @torch.no_grad()
    def update(self, rows: Tensor) -> None:
        """Takes rows [M, width] into the running moments, each row seen counting the same."""
        if self.standardise and len(rows):
            rows = rows.to(self.mean)
            middle = rows.mean(0)
            apart, before = middle - self.mean, self.seen.clone()
            self.seen += len(rows)
            self.deviation += (rows - middle).square().sum(0) + apart.square() * before * len(rows) / self.seen
            self.mean += apart * len(rows) / self.seen

    def spread(self) -> Tensor:
        """The standard deviation that each entry is divided by, [width]: 1 where the space is bounded, and for actions."""
        if not self.standardise:
            return self.unit
        spread = (self.deviation / self.seen).sqrt().clamp_min(1e-3).float()
        spread = torch.where(self.seen > 0, spread, torch.ones_like(spread))
        return torch.cat([spread[: self.row_width - self.action_width], torch.ones(self.action_width, device=spread.device)])

    def forward(self, rows: Tensor) -> Tensor:
        if self.image_shape:
            pixels = rows[:, : rows.shape[1] - self.action_width].reshape(-1, *self.image_shape).float() / 255.0
            seen = self.convolutions(pixels.permute(0, 3, 1, 2) if self.channels_last else pixels).flatten(1)
            return torch.cat([seen, rows[:, rows.shape[1] - self.action_width :].float()], dim=1)
        if self.standardise:
            middle = self.mean.float()
            middle[self.row_width - self.action_width :] = 0.0
            return (rows - middle) / self.spread().to(rows.device)
        return rows
