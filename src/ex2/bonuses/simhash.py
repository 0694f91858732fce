"""Counts of hashed states (Tang et al. 2017): states with the same code count as one, and a state's bonus is 1 / sqrt(visits).

The code of a state is the sign of k random projections of it, so that states in similar directions share it. Images are first
turned into a learned binary code, that of an autoencoder trained on visited frames. Its code layer has sigmoid units: uniform
noise keeps a unit from carrying more than a bit, and a penalty pushes it to 0 or 1. Rounded, it is projected like a vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, binary_cross_entropy_with_logits

from ex2.batch import Batch
from ex2.bonus import BonusSettings, Metrics
from ex2.bonuses.learned import RATED_AT_ONCE, LearnedBonus, LearnedSettings
from ex2.errors import UsageError
from ex2.inputs import Inputs
from ex2.networks import Moments, Stem, mlp
from ex2.replay import Fifo
from ex2.settings import setting

TABLES = 4  # of counts: a code's count is the smallest of its entries, so codes that share one entry are still told apart
PRIME = 2**31 - 1
BIT_NOISE = 0.3  # uniform, to either side, on the code layer in training
SETTLED = 4_000  # states after which the moments of vectors stay as they are
GROWTH = 2  # times as many frames seen, until the autoencoder is trained on
COARSE = 16  # pixels a side of what the autoencoder gives back


class Autoencoder(nn.Module):
    """Frames as rows -> a code of `units` in (0, 1), and from it the frame again at 16 x 16 pixels."""

    def __init__(self, inputs: Inputs, units: int, hidden: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.stem = Stem(inputs)
        self.beside = inputs.numbers + inputs.action_width
        self.encoder = nn.Sequential(
            mlp([self.stem.width - self.beside, hidden], nn.ReLU),
            nn.Linear(hidden, units),
            nn.BatchNorm1d(units),  # so that every unit tells some frames from others, from the start
        )
        channels = sum(part.shape[0] for part in inputs.pictures if part.shape)
        self.decoder = nn.Sequential(mlp([units, hidden], nn.ReLU), nn.Linear(hidden, channels * COARSE**2))

    def forward(self, rows: Tensor) -> Tensor:
        seen = self.stem(rows)
        logits: Tensor = self.encoder(seen[:, : seen.shape[1] - self.beside])
        return logits.sigmoid()

    def coarse(self, rows: Tensor) -> Tensor:
        """The frames of rows [M, row] at 16 x 16 pixels in [0, 1], [M, channels * 256]."""
        pictures, _ = self.inputs.split(rows)
        return torch.cat([adaptive_avg_pool2d(picture.float() / 255.0, COARSE).flatten(1) for picture in pictures], dim=1)


class Hashing(nn.Module):
    """The random projection, and before it the autoencoder of pictures, and the moments of numbers without bounds."""

    projection: Tensor
    offset: Tensor

    def __init__(self, inputs: Inputs, bits: int, units: int, hidden: int, offset: float) -> None:
        super().__init__()
        self.inputs = inputs
        self.autoencoder = Autoencoder(inputs, units, hidden) if inputs.pictures else None
        self.moments = None if inputs.bounded else Moments(inputs.numbers)
        width = inputs.numbers + inputs.action_width + (units if self.autoencoder else 0)
        self.register_buffer("projection", torch.randn(width, bits))
        self.register_buffer("offset", offset * torch.randn(bits))

    def forward(self, rows: Tensor) -> Tensor:
        """Rows [M, row] -> their codes, bits [M, bits]."""
        _, numbers = self.inputs.split(rows)
        states, actions = numbers.split([self.inputs.numbers, self.inputs.action_width], dim=1)
        if self.moments is not None:
            fixed = self.moments.deviation == 0  # a number that never changed counts as it is
            states = torch.where(fixed, states, self.moments(states))
        codes = [] if self.autoencoder is None else [2.0 * self.autoencoder(rows).round() - 1.0]
        return torch.cat([*codes, states, actions], dim=1) @ self.projection + self.offset > 0


@dataclass(frozen=True, kw_only=True)
class SimHashSettings(LearnedSettings, BonusSettings):
    bits: int = setting(32, "length of a code; more tell more states apart. The paper has 32 to 256", least=1)
    buckets: int = setting(100_000, "entries of a table of counts", least=1)
    offset: float = setting(
        0.0,
        "standard deviation of the planes' distance from 0. With 0, the paper's, codes tell directions and no distances apart, "
        "which does not matter in many dimensions, and does in two",
        least=0.0,
    )
    units: int = setting(512, "of the autoencoder's code", least=1)
    hidden: int = setting(128, "units of the autoencoder's layers before and behind its code", least=1)
    saturation: float = setting(
        10.0, "weight of the penalty on units that are neither 0 nor 1, the mean of min(b^2, (1 - b)^2)", least=0.0
    )
    steps: int = setting(200, "of the autoencoder, whenever twice as many frames were seen as at its last training", least=1)
    replay_capacity: int = setting(10_000, "frames held for the autoencoder", least=1)


class SimHash(LearnedBonus):
    """1 / sqrt(n), with n the visits to states of the same code, the batch that is rated included.

    Counts are kept in four tables of `buckets` entries, into which codes are hashed a second time: memory is bounded, and a
    count is never too low. Numbers without bounds are standardised by the moments of the first 4,000, and the autoencoder of
    images is trained on only when twice as many frames were seen: a code that changes its meaning makes familiar states new.
    """

    Settings = SimHashSettings
    settings: SimHashSettings
    networks: Hashing

    def setup(self) -> None:
        super().setup()
        chosen = self.settings
        if self.inputs.pictures and chosen.minibatch < 2:
            raise UsageError(f"minibatch={chosen.minibatch} must be at least 2 for images.")
        self.seen = self.trained = 0
        self.replay = Fifo(chosen.replay_capacity, self.inputs.width, self.inputs.dtype) if self.inputs.pictures else None
        fixed = torch.Generator().manual_seed(self.generator.initial_seed())
        self.multipliers = torch.randint(PRIME, (TABLES, chosen.bits + 1), generator=fixed)
        self.counts = torch.zeros(TABLES, chosen.buckets, dtype=torch.int64)

    def build(self) -> nn.Module:
        chosen = self.settings
        return Hashing(self.inputs, chosen.bits, chosen.units, chosen.hidden, chosen.offset).eval()

    def loss(self, *fields: Tensor) -> Tensor:
        rows, noise = fields
        coder = self.networks.autoencoder
        assert coder is not None
        code = coder(rows)
        likelihood = binary_cross_entropy_with_logits(coder.decoder(code + noise), coder.coarse(rows), reduction="none")
        doubt = torch.minimum(code.square(), (1.0 - code).square()).mean()
        return likelihood.sum(1).mean() + self.settings.saturation * doubt

    @torch.no_grad()
    def _entries(self, batch: Batch) -> Tensor:
        """Where the codes of what happened are counted: [tables, M]."""
        rows = self.inputs.rows(batch)[batch.mask]
        bits = torch.cat([self.networks(part.to(self.device)).cpu() for part in rows.split(RATED_AT_ONCE)]).long()
        sums = self.multipliers[:, :-1] @ bits.T + self.multipliers[:, -1:]
        return sums % PRIME % self.counts.shape[1]

    def prepare(self, batch: Batch) -> Metrics:
        """Trains the autoencoder on frames visited before and now; vectors have their moments taken once."""
        rows = self.inputs.rows(batch)[batch.mask]
        if not len(rows):
            return {}
        if self.networks.moments is not None and self.seen < SETTLED:
            self.networks.moments.update(self.inputs.split(rows)[1][:, : self.inputs.numbers])
        self.seen += len(rows)
        if self.replay is not None and self.seen >= GROWTH * self.trained:
            for _ in range(self.settings.steps):
                self._train(rows)
            self.trained = self.seen
        return {"codes": float((self.counts[0] > 0).sum())}

    def _train(self, new: Tensor) -> None:
        """One step, half of it on the new batch."""
        assert self.replay is not None
        half = self.settings.minibatch // 2 if len(self.replay) else 0
        rows = new[torch.randint(len(new), (self.settings.minibatch - half,), generator=self.generator)]
        if half:
            rows = torch.cat([rows, self.replay.sample(half, self.generator)])
        noise = BIT_NOISE * (2.0 * torch.rand(len(rows), self.settings.units, generator=self.generator) - 1.0)
        self.networks.train()
        self.descend(rows, noise)
        self.networks.eval()

    def score(self, batch: Batch) -> Tensor:
        self.check(batch)
        scores = torch.zeros(batch.shape)
        if batch.mask.any():
            entries = self._entries(batch)
            visits = torch.stack(
                [
                    counts[entry] + torch.bincount(entry, minlength=len(counts))[entry]
                    for counts, entry in zip(self.counts, entries, strict=True)
                ]
            )
            scores[batch.mask] = visits.min(0).values.float().rsqrt()
        return scores

    def remember(self, batch: Batch) -> None:
        self.check(batch)
        if not batch.mask.any():
            return
        for counts, entry in zip(self.counts, self._entries(batch), strict=True):
            counts += torch.bincount(entry, minlength=len(counts))
        if self.replay is not None:
            self.replay.add(self.inputs.rows(batch)[batch.mask])

    def state_dict(self) -> dict[str, Any]:
        own = {"counts": self.counts.clone(), "multipliers": self.multipliers, "seen": [self.seen, self.trained]}
        return super().state_dict() | own | ({"replay": self.replay.state_dict()} if self.replay is not None else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["counts"].shape != self.counts.shape:
            raise UsageError(
                f"The saved counts are {tuple(state['counts'].shape)}, not {tuple(self.counts.shape)}: set buckets so."
            )
        self.counts, self.multipliers = state["counts"].clone(), state["multipliers"].clone()
        self.seen, self.trained = state["seen"]
        if self.replay is not None:
            self.replay.load_state_dict(state["replay"])
