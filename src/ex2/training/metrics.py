"""What a run reports, iteration by iteration: a CSV file and TensorBoard."""

from __future__ import annotations

import csv
import os
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

Row = dict[str, float]


class Metrics:
    """Appends rows to `metrics.csv` and TensorBoard's files in a run's folder. Going on from `step` drops what came later."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.path = folder / "metrics.csv"
        self.rows = [row for row in read(self.path) if row["step"] <= step] if self.path.exists() else []
        self._columns: list[str] = []
        self._rewrite()
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)

    def write(self, row: Row) -> None:
        self.rows.append(row)
        if set(row) <= set(self._columns):
            with open(self.path, "a", newline="") as file:
                csv.DictWriter(file, self._columns).writerow(row)
        else:
            self._rewrite()
        for name, value in row.items():
            if name != "step":
                self._board.add_scalar(name, value, int(row["step"]))

    def _rewrite(self) -> None:
        """Writes all rows again, with every column that any of them has."""
        self._columns = list(dict.fromkeys(name for row in self.rows for name in row))
        draft = self.path.with_name(self.path.name + ".draft")
        with open(draft, "w", newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(self.rows)
        os.replace(draft, self.path)

    def close(self) -> None:
        self._board.close()


def read(path: Path) -> list[Row]:
    """The rows of a metrics file, without the cells that are empty.

    A row that a kill or a full disk has cut, or that something else has damaged, is left out.
    """
    whole = path.read_bytes().decode(errors="replace").rpartition("\n")[0]  # the last line may have been cut anywhere
    header, *lines = whole.splitlines() or [""]
    columns, rows = header.split(","), list[Row]()
    for line in lines:
        cells = line.split(",")
        try:
            row = {name: float(cell) for name, cell in zip(columns, cells, strict=True) if cell}
        except ValueError:
            continue
        if row.get("step", -1.0) > (rows[-1]["step"] if rows else 0.0):
            rows.append(row)
    return rows
