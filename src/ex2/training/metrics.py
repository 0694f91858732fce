"""What a run reports, iteration by iteration: a CSV file and TensorBoard."""

from __future__ import annotations

import csv
import math
import os
import time
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from ex2.errors import UsageError
from ex2.training.files import replacing

Row = dict[str, float]


class Metrics:
    """Appends rows to `metrics.csv` and TensorBoard's files in a run's folder. Going on from `step` drops what came later."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / "metrics.csv"
        self._columns: list[str] = []
        self._rewrite(row for row in read(self.path) if row["step"] <= step)
        self._board = Board(folder / "tensorboard", step)

    def write(self, row: Row) -> None:
        if set(row) <= set(self._columns):
            with open(self.path, "a", newline="") as file:
                csv.DictWriter(file, self._columns).writerow(row)
        else:
            self._rewrite([*read(self.path), row])
        self._board.write(row)

    def _rewrite(self, rows: Iterable[Row]) -> None:
        """Writes all rows again, with every column that any of them has."""
        rows = list(rows)
        self._columns = list(dict.fromkeys(name for row in rows for name in row))
        with replacing(self.path) as draft, open(draft, "w", newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(rows)


class Board:
    """A session's file for TensorBoard, which drops what other sessions wrote after `step`.

    Rows are written as they come: torch's writer does so in a thread, where nobody hears of a full disk.
    """

    def __init__(self, folder: Path, step: int) -> None:
        folder.mkdir(exist_ok=True)
        self._path = folder / f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"
        self._write(step=step + 1, file_version="brain.Event:2")
        if step:
            self._write(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, row: Row) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "step"]
        self._write(step=int(row["step"]), summary=Summary(value=values))

    def _write(self, **content: Any) -> None:
        with open(self._path, "ab") as file:
            RecordWriter(file).write(Event(wall_time=time.time(), **content).SerializeToString())


def read(path: Path) -> list[Row]:
    """The rows of a metrics file, without the cells that are empty; none if there is no file.

    A row that a kill or a full disk has cut, or that something else has damaged, is left out.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None
    whole = text.decode(errors="replace").rpartition("\n")[0]  # the last line may have been cut anywhere
    header, *lines = whole.splitlines() or [""]
    columns, rows = header.split(","), list[Row]()
    for line in lines:
        cells = line.split(",")
        try:
            row = {name: float(cell) for name, cell in zip(columns, cells, strict=True) if cell}
        except ValueError:
            continue
        if 0 < row.get("step", 0.0) < math.inf:
            rows.append(row)
    return _increasing(rows)


def _increasing(rows: list[Row]) -> list[Row]:
    """The most rows whose steps increase: a damaged step, too large or too small, costs its own row and no other."""
    lasts: list[float] = []  # the smallest step that so many rows can end with, ...
    ends: list[int] = []  # ... which row that is, ...
    before: list[int] = []  # ... and for each row the one before it; -1 where there is none
    for index, row in enumerate(rows):
        place = bisect_left(lasts, row["step"])
        lasts[place : place + 1], ends[place : place + 1] = [row["step"]], [index]
        before.append(ends[place - 1] if place else -1)
    chosen: list[Row] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        chosen.append(rows[at])
        at = before[at]
    return chosen[::-1]
