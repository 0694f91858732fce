"""Several bonuses at once, each on its own scale: `rnd+simhash` is both, in equal shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ex2.batch import Batch
from ex2.bonus import Bonus, Metrics, make_bonus
from ex2.errors import UsageError
from ex2.settings import Settings, setting

SMALLEST = 1e-6  # deviation, as a share of the largest score, below which all scores are the same
MEMORY = 0.5  # of the running deviation of a part's scores, from batch to batch: scores shrink fast at first


@dataclass(frozen=True, kw_only=True)
class CombinedSettings(Settings):
    parts: dict[str, Settings] = setting(None, "the settings of each part, by its name")
    shares: tuple[float, ...] | None = setting(None, "what each part counts; 1 each by default")

    def check(self) -> None:
        name = "+".join(self.parts)
        if "none" in self.parts:
            raise UsageError(f"The bonus {name!r} has the part 'none', which rates nothing: leave it out.")
        if self.shares is not None and len(self.shares) != len(self.parts):
            raise UsageError(f"shares={self.shares} must be numbers, one for each of the {len(self.parts)} parts of {name!r}.")

    def as_dict(self) -> dict[str, Any]:
        """As plain values: each part's by its name."""
        return {name: part.as_dict() for name, part in self.parts.items()} | {"shares": self.shares}


class Combined(Bonus):
    """sum over parts of share * score / deviation, the deviation being a running one of the part's own scores.

    Built by `make_bonus("rnd+simhash", ..., shares=[1.0, 0.5], **{"rnd.hidden": 64})`: a part's settings begin with its name.
    """

    Settings = CombinedSettings
    settings: CombinedSettings

    def setup(self) -> None:
        super().setup()
        seeds = np.random.SeedSequence(abs(self.seed)).generate_state(len(self.settings.parts)) >> 1
        self.parts: dict[str, Bonus] = {}
        for (name, own), seed in zip(self.settings.parts.items(), seeds, strict=True):
            pair = self.observation_space, self.action_space
            self.parts[name] = make_bonus(name, *pair, own, seed=int(seed), device=self.device)
        self.shares = self.settings.shares or (1.0,) * len(self.parts)
        self.deviations = dict.fromkeys(self.parts, 0.0)

    def check(self, batch: Batch) -> None:
        for part in self.parts.values():
            part.check(batch)

    @property
    def ready(self) -> bool:
        return any(part.ready for part in self.parts.values())

    def prepare(self, batch: Batch) -> Metrics:
        self.check(batch)
        metrics: Metrics = {}
        for name, part in self.parts.items():
            metrics |= {f"{name}/{key}": value for key, value in part.prepare(batch).items()}
            scores = part.score(batch)[batch.mask]
            spread = scores.std(unbiased=False).item() if len(scores) else 0.0
            if spread and spread > SMALLEST * scores.abs().max().item():
                before = self.deviations[name]
                self.deviations[name] = MEMORY * before + (1.0 - MEMORY) * spread if before else spread
            metrics[f"{name}/spread"] = self.deviations[name]
        return metrics

    def score(self, batch: Batch) -> Tensor:
        self.check(batch)
        scores = torch.zeros(batch.shape)
        for (name, part), share in zip(self.parts.items(), self.shares, strict=True):
            if self.deviations[name]:
                scores += share * part.score(batch) / self.deviations[name]
        return scores

    def remember(self, batch: Batch) -> None:
        self.check(batch)
        for part in self.parts.values():
            part.remember(batch)

    def state_dict(self) -> dict[str, Any]:
        parts = {name: part.state_dict() for name, part in self.parts.items()}
        return super().state_dict() | {"parts": parts, "deviations": dict(self.deviations)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for name, part in self.parts.items():
            part.load_state_dict(state["parts"][name])
        self.deviations = {name: float(state["deviations"][name]) for name in self.parts}

    def to(self, device: str | torch.device) -> Combined:
        super().to(device)
        for part in self.parts.values():
            part.to(device)
        return self
