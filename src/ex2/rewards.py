"""What the rewards of a training have said so far: whether they say anything, and whether they guide by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from ex2.arrays import Array

SAME = 1e-3  # of rewards' mean size, by which two that count as the same may differ
TOLD = ("only", "telling", "highest", "lowest")
TALLIES = ("changes", "paid", "pairs", "size", "count")


class Rewards:
    """Listens to rewards [T, N], batch after batch."""

    def __init__(self) -> None:
        self.only: float | None = None  # the reward that every step has had so far
        self.telling = False  # whether rewards say anything: another one was seen, or an episode has terminated
        self.highest = self.lowest = 0.0  # of all, and 0
        self.changes = self.paid = self.pairs = 0.0  # steps with one before: of another reward, of one above 0, all
        self.size = self.count = 0.0  # the sum of all rewards' absolute values, and how many they were
        self.latest: tuple[Array, Array] | None = None  # the rewards of the latest step [N], and which happened

    def listen(self, rewards: Array, mask: Array, terminated: bool) -> None:
        """Takes in rewards, of which those in the mask happened; `terminated` says that an episode did."""
        real = rewards[mask]
        if self.only is None and len(real):
            self.only = float(real[0])
        self.telling = self.telling or terminated or bool((real != self.only).any())
        self.highest, self.lowest = float(real.max(initial=self.highest)), float(real.min(initial=self.lowest))
        self.size, self.count = self.size + float(np.abs(real).sum()), self.count + len(real)
        if self.latest is not None and len(self.latest[0]) == len(rewards[0]):
            rewards, mask = (np.concatenate([row[None], new]) for row, new in zip(self.latest, (rewards, mask), strict=True))
        self.latest, pairs = (rewards[-1].copy(), mask[-1].copy()), mask[1:] & mask[:-1]
        apart = np.abs(np.diff(rewards, axis=0)[pairs]) > SAME * self.size / max(self.count, 1.0)
        self.changes, self.pairs = self.changes + int(apart.sum()), self.pairs + apart.size
        self.paid += int((rewards[1:][pairs] > 0.0).sum())

    @property
    def guiding(self) -> bool:
        """Whether they guide by themselves: more than half of all steps have another than the step before, and more than a
        tenth are paid something."""
        return 2 * self.changes > self.pairs and 10 * self.paid > self.pairs

    def state_dict(self) -> dict[str, Any]:
        latest = None if self.latest is None else [row.tolist() for row in self.latest]
        return {name: getattr(self, name) for name in (*TOLD, *TALLIES)} | {"latest": latest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in TOLD:
            setattr(self, name, state[name])
        for name in TALLIES:
            setattr(self, name, float(state.get(name, 0.0)))  # are not in those of before
        latest = state.get("latest")
        self.latest = None if latest is None else (np.array(latest[0]), np.array(latest[1], bool))
