"""A task as a map: where an agent is, and what there is around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ex2.arrays import Array


@dataclass(frozen=True, eq=False)
class Map:
    """What a task's module returns from `make_map()`, where it has one; found by `ex2.tasks.task_map(name)`."""

    axes: tuple[str, ...]
    """Names of its one or two coordinates."""
    places: Callable[[Array, dict[str, Any]], Array]
    """(observations, infos) of a batch -> where its agents are, [N, axes]."""
    extent: tuple[float, float, float, float] | None = None
    """Left, right, bottom and top; None if it has no bounds."""
    walls: Array | tuple[()] = ()
    """[M, 2, 2]: the ends of each wall."""
    start: tuple[float, ...] | None = None
    goal: tuple[float, ...] | None = None
    """The goal's place; of one coordinate, the values beyond which there is reward."""
    reachable: Callable[[int], Array] | None = None
    """How many cells a side -> bool [cells, cells], y first: where an agent can be. None if that is not known."""
