"""The replay buffer B of the paper: a first-in first-out queue of visited states."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from ex2.arrays import Array
from ex2.errors import UsageError

BLOCK = 4_096  # rows that are kept aside at a time
_shared = ContextVar("shared", default=False)


@contextmanager
def snapshots() -> Iterator[None]:
    """Within it, `Fifo.state_dict` holds a `Snapshot` in place of a copy of the rows, and takes no time."""
    token = _shared.set(True)
    try:
        yield
    finally:
        _shared.reset(token)


class Fifo:
    """Holds the last `capacity` rows, in the dtype they have: bytes stay bytes. `len` never exceeds what is held.

    >>> fifo = Fifo(capacity=3, width=1, dtype=torch.uint8)
    >>> fifo.add(torch.arange(5, dtype=torch.uint8)[:, None])
    >>> len(fifo), sorted(fifo.rows().flatten().tolist())
    (3, [2, 3, 4])
    """

    def __init__(self, capacity: int, width: int, dtype: torch.dtype) -> None:
        if capacity < 1:
            raise UsageError(f"The replay capacity is {capacity}: it must be at least 1.")
        self.capacity = capacity
        try:
            self._rows = torch.empty(capacity, width, dtype=dtype)
        except RuntimeError:
            size = capacity * width * dtype.itemsize / 1e9
            raise UsageError(f"A replay of {capacity:,} states takes {size:,.0f} GB: set replay_capacity lower.") from None
        self._next = 0
        self._held = 0
        self._lock = threading.Lock()
        self._snapshots: weakref.WeakSet[Snapshot] = weakref.WeakSet()

    def __len__(self) -> int:
        return self._held

    def add(self, rows: Tensor) -> None:
        """Adds rows [M, width], oldest first; what no longer fits falls out."""
        rows = rows[-self.capacity :].to(self._rows)
        head = min(len(rows), self.capacity - self._next)
        self._keep(self._next, self._next + head)
        self._keep(0, len(rows) - head)
        self._rows[self._next : self._next + head] = rows[:head]
        self._rows[: len(rows) - head] = rows[head:]
        self._next = (self._next + len(rows)) % self.capacity
        self._held = min(self._held + len(rows), self.capacity)

    def rows(self) -> Tensor:
        """All rows held, [len, width], in no particular order."""
        return self._rows[: self._held]

    def through(self, change: Callable[[Tensor], Tensor], width: int, dtype: torch.dtype, chunk: int) -> Fifo:
        """A queue of the same states in the same order, each row changed, so many at a time."""
        other = Fifo(self.capacity, width, dtype)
        for start in range(0, self._held, chunk):
            some = slice(start, min(start + chunk, self._held))
            other._rows[some] = change(self._rows[some])
        other._next, other._held = self._next, self._held
        return other

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """`count` rows drawn uniformly with replacement."""
        return self._rows[torch.randint(self._held, (count,), generator=generator)]

    def state_dict(self) -> dict[str, Any]:
        return {"rows": Snapshot(self) if _shared.get() else self.rows().clone(), "next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        rows = state["rows"]
        if rows.shape[1:] != self._rows.shape[1:] or len(rows) > self.capacity or rows.dtype != self._rows.dtype:
            raise UsageError(
                f"The saved replay holds {tuple(rows.shape)} {rows.dtype}, this one takes {tuple(self._rows.shape)} "
                f"{self._rows.dtype}: build the bonus with the settings it was saved with."
            )
        self._keep(0, len(rows))
        self._rows[: len(rows)] = rows
        self._held, self._next = len(rows), int(state["next"])

    def _keep(self, start: int, stop: int) -> None:
        """Keeps these rows aside for the snapshots that are about: they are going to be overwritten."""
        if self._snapshots:
            with self._lock:
                for snapshot in self._snapshots:
                    snapshot._keep(start, stop)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_snapshots")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock(), _snapshots=weakref.WeakSet())


class Snapshot:
    """The rows of a FIFO as they were, [len, width], for another thread to read while the FIFO goes on.

    Nothing is copied at first. Blocks of rows are copied when the FIFO is about to overwrite them.
    """

    def __init__(self, fifo: Fifo) -> None:
        rows = fifo.rows()
        self.shape, self.dtype = tuple(rows.shape), rows[:0].numpy().dtype
        self._lock = fifo._lock
        self._bytes = rows.view(torch.uint8).numpy()
        self._kept: dict[int, Array] = {}
        fifo._snapshots.add(self)

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes

    def take(self, index: Array) -> Array:
        """The bytes of some rows, [len(index), bytes of a row]."""
        with self._lock:
            some = self._bytes[index]
            for block, kept in self._kept.items():
                inside = index // BLOCK == block
                some[inside] = kept[index[inside] - block * BLOCK]
            return some

    def _keep(self, start: int, stop: int) -> None:
        for block in range(start // BLOCK, -(-min(stop, len(self)) // BLOCK)):
            if block not in self._kept:
                self._kept[block] = self._bytes[block * BLOCK : (block + 1) * BLOCK].copy()
