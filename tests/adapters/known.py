"""What the tests of several adapters share: a bonus with known answers, and the code of a page of the documentation."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import torch

from ex2 import Bonus

PAGES = Path(__file__).parent.parent.parent / "docs" / "adapters"


class LateBonus(Bonus):
    """1 from the third place of a corridor on, 0 before. Keeps the batches that it was shown."""

    def setup(self):
        self.batches = []

    def prepare(self, batch):
        self.batches.append(copy.deepcopy(batch))  # a library may use its memory again
        return {}

    def score(self, batch):
        return (batch.obs[..., 0] >= 3).float() * batch.mask

    def remember(self, batch):
        pass


def shown(bonus: LateBonus) -> list[tuple[float, float, bool, bool]]:
    """Every transition the bonus was shown: place, next place, terminated, truncated; masked ones are left out."""
    found = []
    for batch in bonus.batches:
        rows = (batch.obs[..., 0], batch.next_obs[..., 0], batch.terminated, batch.truncated)
        found += list(zip(*(row[batch.mask].tolist() for row in rows), strict=True))
    return found


def steady(metrics: dict[str, float]) -> dict[str, float]:
    """All but how long it took."""
    return {name: value for name, value in metrics.items() if not name.endswith("seconds")}


def same(first: dict, second: dict) -> bool:
    """Whether two nested states hold the same, bit for bit."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else bool(first == second)


def snippet(page: str) -> str:
    """The first block of Python on a page of docs/adapters."""
    found = re.search(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)
