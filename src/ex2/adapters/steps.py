"""What adapters share that see transitions in any order: rows of them as a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ex2.arrays import Array
from ex2.batch import Batch, mapped
from ex2.errors import UsageError


def check_seen(settings: Mapping[str, Any], instead: str) -> None:
    """Refuses settings of an `Explorer` that say what of single steps is seen: here whole batches are."""
    for name in ("see", "last_frame", "autoreset"):
        if name in settings:
            raise UsageError(f"{name}= is not for this library: {instead}.")


def in_a_row(obs: Any, action: Any, next_obs: Any, terminated: Array, ends: Array, mask: Array | None = None) -> Batch:
    """Stretches of episodes [T, ...], one behind the other, as a batch of one environment.

    `ends` says where a stretch does, for whatever reason. An end that is not a terminal one counts as truncated, also where
    only the rollout ended: it keeps stretches apart, and says nothing else to a bonus.
    """
    obs, action, next_obs = (mapped(lambda x: x[:, None], x) for x in (obs, action, next_obs))
    happened = None if mask is None else mask[:, None]
    return Batch.of(obs, action, next_obs, terminated[:, None], (ends & ~terminated)[:, None], happened)


def side_by_side(obs: Any, action: Any, next_obs: Any, terminated: Array, mask: Array | None = None) -> Batch:
    """Transitions [N, ...] that have nothing to do with each other, as a step of so many environments."""
    obs, action, next_obs = (mapped(lambda x: x[None], x) for x in (obs, action, next_obs))
    return Batch.of(obs, action, next_obs, terminated[None], mask=None if mask is None else mask[None])
