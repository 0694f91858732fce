"""Several bonuses at once, each on its own scale: `rnd+simhash` is both, in equal shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ex2.batch import Batch
from ex2.bonus import Bonus, Metrics, make_bonus
from ex2.errors import UsageError

SMALLEST = 1e-6  # deviation, as a share of the largest score, below which all scores are the same
MEMORY = 0.5  # of the running deviation of a part's scores, from batch to batch: scores shrink fast at first


class Combined(Bonus):
    """sum over parts of share * score / deviation, the deviation being a running one of the part's own scores.

    Built by `make_bonus("rnd+simhash", ..., shares=[1.0, 0.5], **{"rnd.hidden": 64})`: a part's settings begin with its name.

    Args:
        parts: names of registered bonuses.
        shares: what each counts; 1 each by default.
    """

    fixed = frozenset({"inputs", "action_scale", "entries", "parts"})

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        parts: list,
        shares: list | None = None,
        seed: int = 0,
        device: str = "cpu",
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, action_space, seed=seed, device=device)
        if "none" in parts:
            raise UsageError(f"The bonus {'+'.join(parts)!r} has the part 'none', which rates nothing: leave it out.")
        if len(set(parts)) < len(parts):
            raise UsageError(f"The bonus {'+'.join(parts)!r} has a part twice: give it a larger share instead.")
        self.shares = [1.0] * len(parts) if shares is None else list(shares) if isinstance(shares, list | tuple) else [shares]
        if len(self.shares) != len(parts) or not all(isinstance(share, int | float) for share in self.shares):
            raise UsageError(f"shares={shares} must be numbers, one for each of the {len(parts)} parts of {'+'.join(parts)!r}.")
        seeds = np.random.SeedSequence(abs(seed)).generate_state(len(parts)) >> 1
        self.parts: dict[str, Bonus] = {}
        for name, own in zip(parts, seeds, strict=True):
            chosen = {key.removeprefix(f"{name}."): value for key, value in settings.items() if key.startswith(f"{name}.")}
            self.parts[name] = make_bonus(name, observation_space, action_space, seed=int(own), device=device, **chosen)
        self.deviations = dict.fromkeys(parts, 0.0)

    def check(self, batch: Batch) -> None:
        for part in self.parts.values():
            part.check(batch)

    @property
    def ready(self) -> bool:
        return any(part.ready for part in self.parts.values())

    def fit(self, batch: Batch) -> Metrics:
        self.check(batch)
        metrics: Metrics = {}
        for name, part in self.parts.items():
            metrics |= {f"{name}/{key}": value for key, value in part.fit(batch).items()}
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
