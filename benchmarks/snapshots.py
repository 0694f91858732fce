"""What snapshots of a training on its task's map cost: their share of its processor time.

    python benchmarks/snapshots.py     # results/report/snapshots.csv, three trainings, a few minutes

Counting visits and taking moments are timed inside a training as it is, with the settings that tasks have by themselves.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ex2
from ex2.training.snapshots import Snapshots, Visits

TRAININGS = (("sparse-maze", "kernel-exemplar", 800_000), ("maze", "none", 800_000), ("cheetah", "kernel-exemplar", 500_000))
COLUMNS = ["task", "bonus", "steps", "cpu_seconds", "snapshots_cpu_seconds", "share"]


def measure(task: str, bonus: str, steps: int) -> dict[str, Any]:
    spent = 0.0

    def timed(function: Callable[..., None]) -> Callable[..., None]:
        def called(*arguments: Any) -> None:
            nonlocal spent
            started = time.process_time()
            function(*arguments)
            spent += time.process_time() - started

        return called

    take, add = Snapshots.take, Visits.add
    Snapshots.take, Visits.add = timed(take), timed(add)
    try:
        started = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            ex2.train(task, bonus, steps=steps, out=Path(folder) / "run")
        total = time.process_time() - started
    finally:
        Snapshots.take, Visits.add = take, add
    return dict(zip(COLUMNS, (task, bonus, steps, round(total, 1), round(spent, 3), round(spent / total, 4)), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results" / "report" / "snapshots.csv")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with open(options.out, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for training in TRAININGS:
            row = measure(*training)
            writer.writerow(row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
