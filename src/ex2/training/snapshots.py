"""Moments of a training, on its task's map: where agents have been since the moment before, and what the bonus makes of it.

A training of a task that has a map leaves about 20 of them, evenly, in `snapshots.npz` in its folder:

    steps    [M]        when
    visits   [M, ...]   how often agents were in each cell since the moment before
    bonus    [M, ...]   where the map is all that the bonus sees: the bonus of each cell; else the mean of what was paid there
    density  [M, ...]   log p of each cell, where the map is all that a bonus with a density sees; else NaN

Cells are [32, 32], y first, over the map's extent, or [64] over a map of one coordinate, whose outer cells hold what is beyond.
Nothing is drawn from the training's randomness, and nothing in it is changed: with snapshots or without, it is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ex2.arrays import Array
from ex2.bonus import Bonus, DensityBonus
from ex2.errors import UsageError
from ex2.tasks.map import Map
from ex2.training.files import replacing

if TYPE_CHECKING:
    from ex2.training.loop import Trainer

SNAPSHOTS = "snapshots.npz"
CELLS, WAY_CELLS = 32, 64  # a side of a map in the plane; along one of one coordinate
REACH = 4.0  # how far such a map goes to both sides, in distances to the goal
ACTIONS = 8  # remembered actions that a state-action density is averaged over
PARTS = ("visits", "bonus", "density")


@dataclass
class Visits:
    """How often each cell of a map was visited, and what was paid there, since it was last taken."""

    arena: Map
    counts: Array = field(init=False)
    paid: Array = field(init=False)

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        shape = cells_of(self.arena)
        self.counts, self.paid = np.zeros(shape, np.int64), np.zeros(shape)

    def add(self, places: Array, bonuses: Array) -> None:
        """Adds places [..., axes] and what was paid at each, [...]."""
        shape = self.counts.shape
        left, right, bottom, top = extent_of(self.arena)
        index = _cell(places[..., 0], left, right, shape[-1])
        if len(shape) == 2:
            index = _cell(places[..., 1], bottom, top, shape[0]) * shape[1] + index
        size, index = self.counts.size, index.ravel()
        self.counts += np.bincount(index, minlength=size).reshape(shape)
        self.paid += np.bincount(index, weights=bonuses.ravel(), minlength=size).reshape(shape)

    def state_dict(self) -> dict[str, Array]:
        return {"counts": self.counts.copy(), "paid": self.paid.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts, self.paid = np.array(state["counts"], np.int64), np.array(state["paid"], np.float64)


class Snapshots:
    """Those of one session of a training. Going on from a step drops what came later."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self.path, self.moments, self.last = folder / SNAPSHOTS, trainer.config.snapshots, trainer.steps
        self.found: dict[str, list[Array]] = {name: [] for name in ("steps", *PARTS)}
        if trainer.visits is not None and (before := read_snapshots(folder, damaged=None)) is not None:
            kept = before["steps"] <= trainer.steps
            self.found = {name: list(values[kept]) for name, values in before.items()}

    def take(self, trainer: Trainer) -> None:
        """Adds a moment, if it is time for one."""
        total, visits = trainer.config.steps, trainer.visits
        due = trainer.steps * self.moments // total > self.last * self.moments // total
        self.last = trainer.steps
        if visits is None or not due:
            return
        density, bonus = maps_of(trainer.bonus, visits.arena, trainer.policy.observation_space.shape)
        if bonus is None:
            with np.errstate(invalid="ignore"):
                bonus = visits.paid / visits.counts
        nowhere = np.full(visits.counts.shape, np.nan)
        moment = {"steps": trainer.steps, "visits": visits.counts.astype(np.uint32), "bonus": bonus.astype(np.float32)}
        moment["density"] = (nowhere if density is None else density).astype(np.float32)
        for name, values in moment.items():
            self.found[name].append(np.asarray(values))
        with replacing(self.path) as draft, open(draft, "wb") as file:
            parts: dict[str, Any] = {name: np.stack(values) for name, values in self.found.items()}
            np.savez(file, **parts)
        visits.clear()


def read_snapshots(folder: Path, damaged: str | None = "") -> dict[str, Array] | None:
    """A run's snapshots by name, or None if it has none; one that is damaged is an error, or None if `damaged` is None."""
    try:
        with np.load(folder / SNAPSHOTS, allow_pickle=False) as file:
            found = {name: file[name] for name in ("steps", *PARTS)}
        if any(len(values) != len(found["steps"]) or values.shape != found["visits"].shape for values in _maps(found)):
            raise ValueError("its parts do not fit together")
        return found if len(found["steps"]) else None
    except FileNotFoundError:
        return None
    except Exception as error:  # whatever a damaged file makes its readers raise
        if damaged is None:
            return None
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{folder / SNAPSHOTS} cannot be read ({why}).") from None


def extent_of(arena: Map) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of what is drawn."""
    if arena.extent is not None:
        return arena.extent
    reach = REACH * max((abs(value) for value in arena.goal or ()), default=1.0)
    return -reach, reach, 0.0, 1.0


def cells_of(arena: Map) -> tuple[int, ...]:
    return (CELLS, CELLS) if len(arena.axes) == 2 else (WAY_CELLS,)


def maps_of(bonus: Bonus, arena: Map, observed: Any) -> tuple[Array | None, Array | None]:
    """log p and bonus of each cell, [cells, cells] with y first; None where the map is not all that the bonus sees."""
    whole = len(arena.axes) == 2 and observed == (2,) and getattr(bonus.settings, "entries", None) is None
    if not whole or not isinstance(bonus, DensityBonus) or not bonus.ready:
        return None, None
    density = density_map(bonus, CELLS)
    return density, bonus.bonus_of(torch.as_tensor(density)).numpy()


def density_map(bonus: DensityBonus, cells: int) -> Array:
    """log p over a two-dimensional observation space, [cells, cells] with y first; averaged over remembered actions."""
    middle = (torch.arange(cells) + 0.5) / cells * 2 - 1
    y, x = torch.meshgrid(middle, middle, indexing="ij")
    states = torch.stack([x.flatten(), y.flatten()], 1)
    if not bonus.inputs.action_width:
        return bonus.log_density(states).reshape(cells, cells).numpy()
    generator = torch.Generator().manual_seed(0)
    actions = bonus.replay.sample(ACTIONS, generator)[:, 2:]
    rows = torch.cat([states.repeat_interleave(ACTIONS, 0), actions.repeat(len(states), 1)], 1)
    return bonus.log_density(rows).reshape(cells, cells, ACTIONS).exp().mean(-1).log().numpy()


def _cell(values: Array, low: float, high: float, cells: int) -> Array:
    scaled = np.nan_to_num((values - low) / (high - low) * cells)
    return np.clip(scaled, 0, cells - 1).astype(np.int64)


def _maps(found: dict[str, Array]) -> list[Array]:
    return [found[name] for name in PARTS]
