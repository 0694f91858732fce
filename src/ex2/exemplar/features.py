"""The space in which `kernel-exemplar` measures distances: vectors as they are, images through a fixed feature map.

A closed-form discriminator needs a metric that stays put: a learned encoder spends its volume where states are many, and then
all of them are equally easy to tell apart. So nothing here is trained. Images pass through one layer of frozen random
convolutions and are pooled with overlap, so that a thing that moves a little changes them a little; then they are projected.
The projection is fitted in closed form, by one of two eigenvalue problems:

- "variance": the directions in which the states seen vary most (principal components).
- "neighbours": the directions in which they vary most compared with states adjacent in time. With C the covariance of
  features and W that of the differences of neighbours (halved), the columns v of C v = lambda W v with the largest lambda.
  What changes at random from frame to frame (a noisy television) is in W, and is projected out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d

from ex2.batch import Inputs
from ex2.errors import UsageError, unknown
from ex2.networks import FILTERS, KERNEL, STRIDE, Stem, image_layout

FEATURES = ("convolutions", "pixels")
PROJECTIONS = ("variance", "neighbours")
CELLS = 6  # pooled features have about as many places a side; each covers two of them
RIDGE = 0.1  # of the neighbours' mean variance, added to each direction: none is called free of noise
CHUNK = 2_048  # images at a time
LARGEST = 1_024  # features that the projection is fitted to; of more, random combinations are taken


class Features(nn.Module):
    """Rows as `Inputs` makes them -> [M, `width`], with a variance of about 1, as a mean over directions.

    Args:
        kind: for images, "convolutions" or "pixels".
        components: how many directions an image, or a projected vector, is reduced to.
        projection: "variance", "neighbours", or None: by variance for images, and none at all for vectors.
    """

    centre: Tensor
    directions: Tensor
    filters: Tensor
    mixing: Tensor

    def __init__(self, inputs: Inputs, kind: str = "convolutions", components: int = 16, projection: str | None = None) -> None:
        super().__init__()
        if kind not in FEATURES:
            raise unknown("kind of features", kind, FEATURES)
        if projection is not None and projection not in PROJECTIONS:
            raise unknown("projection", projection, PROJECTIONS)
        if components < 1:
            raise UsageError(f"components={components} must be at least 1.")
        self.image_shape, self.action_width, self.kind = inputs.image_shape, inputs.action_width, kind
        self.projection = projection or ("variance" if inputs.image_shape else None)
        self.stem: Stem | None = None
        if inputs.image_shape:
            height, wide, channels, self.channels_last = image_layout(inputs.image_shape)
            scale = (channels * KERNEL**2) ** -0.5
            self.register_buffer("filters", torch.randn(FILTERS, channels, KERNEL, KERNEL) * scale)
            if kind == "convolutions" and min(height, wide) < 2 * KERNEL:
                raise UsageError(f"Images of shape {inputs.image_shape} are too small for the convolutions: 8x8 at least.")
            width = self._convolve(torch.zeros(1, inputs.width - inputs.action_width, dtype=torch.uint8)).shape[1]
        else:
            self.stem = Stem(inputs)
            width = inputs.width - inputs.action_width
        if self.projection:
            combined = min(width, LARGEST)
            self.register_buffer("mixing", torch.randn(width, combined) * width**-0.5 if width > LARGEST else torch.zeros(0))
            width = min(components, combined)
            self.register_buffer("centre", torch.zeros(combined))
            self.register_buffer("directions", torch.zeros(combined, width))
        self.width = width + inputs.action_width

    def _seen(self, rows: Tensor) -> Tensor:
        """States [M, row] without their actions, before the projection."""
        states = rows[:, : rows.shape[1] - self.action_width]
        if self.stem is not None:
            return self._combined(self.stem(rows)[:, : states.shape[1]])
        return torch.cat([self._combined(self._convolve(part)) for part in states.split(CHUNK)])

    def _convolve(self, states: Tensor) -> Tensor:
        assert self.image_shape is not None
        pixels = states.reshape(-1, *self.image_shape).float() / 255.0 - 0.5
        if self.kind == "pixels":
            return pixels.flatten(1)
        pixels = pixels.permute(0, 3, 1, 2) if self.channels_last else pixels
        seen = torch.relu(conv2d(pixels.contiguous(), self.filters, stride=STRIDE))
        sides = seen.shape[2:]
        return avg_pool2d(seen, [max(s // 3, 1) for s in sides], [max(s // CELLS, 1) for s in sides]).flatten(1)

    def _combined(self, seen: Tensor) -> Tensor:
        return seen @ self.mixing if len(self.mixing) else seen

    def update(self, rows: Tensor) -> None:
        """Takes rows into the running moments of unbounded vectors; images have none."""
        if self.stem is not None:
            self.stem.update(rows)

    @torch.no_grad()
    def fit(self, rows: Tensor, neighbours: Tensor) -> None:
        """Fits the projection to rows [M, row], and to pairs of rows adjacent in time [P, 2, row]."""
        if not self.projection:
            return
        seen = self._seen(rows).double()
        self.centre.copy_(seen.mean(0))
        apart = seen - seen.mean(0)
        covariance = apart.T @ apart / len(seen)
        keep = self.directions.shape[1]
        if self.projection == "neighbours":
            steps = self._seen(neighbours[:, 0]).double() - self._seen(neighbours[:, 1]).double()
            within = steps.T @ steps / (2 * len(steps))
            within.diagonal().add_(RIDGE * within.diagonal().mean() + 1e-9)
            whiten = torch.linalg.inv(torch.linalg.cholesky(within))
            values, vectors = torch.linalg.eigh(whiten @ covariance @ whiten.T)
            directions = whiten.T @ vectors
        else:
            values, directions = torch.linalg.eigh(covariance)
        scale = values[-keep:].mean().clamp_min(1e-12).rsqrt()
        self.directions.copy_(directions[:, -keep:] * scale)

    @torch.no_grad()
    def forward(self, rows: Tensor) -> Tensor:
        if not self.projection:
            assert self.stem is not None
            return self.stem(rows)
        states = (self._seen(rows) - self.centre) @ self.directions
        return torch.cat([states, rows[:, rows.shape[1] - self.action_width :].float()], dim=1)
