"""A row of the paper's table: the default and every method of the paper on a task, several seeds, at the preset's budget.

    python benchmarks/scores.py maze             # writes results/maze.csv anew (about half an hour on 2 cores)
    python benchmarks/scores.py maze --bonuses histogram none --set algo.cg_damping=0.1 \\
        --runs runs/benchmark-maze-damped --out results/maze-damped.csv
    python benchmarks/scores.py cheetah --bonuses kernel-exemplar amortized none --seeds 100 101 102

Beside the scores, the learning curves go to a file of their own (results/TASK-curves.csv), 50 points of each run. The seeds of
the maze begin at 200: none of them was used when the presets were chosen, but for TRPO's damping (docs/design.md).
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ex2 import Run
from ex2.tasks import find_task
from ex2.training.presets import preset_of

POINTS = 50  # of a curve
COLUMNS = ["task", "bonus", "seed", "steps", "score", "seconds", "bonus_share", "commit"]


def curve(folder: Path, row: dict[str, object]) -> list[dict[str, object]]:
    """Points of a run's learning curve, the last one included."""
    history = Run(folder).history()
    there = np.flatnonzero(np.isfinite(history["score"]))  # before the first episodes have ended there is none
    chosen = there[np.unique(np.linspace(0, len(there) - 1, POINTS).round().astype(int))] if len(there) else there
    return [
        {"bonus": row["bonus"], "seed": row["seed"], "step": int(step), "score": round(float(score), 3)}
        for step, score in zip(history["step"][chosen], history["score"][chosen], strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="as 'ex2 tasks' lists them")
    parser.add_argument("--bonuses", nargs="+", help="default: kernel-exemplar, and all that the paper has on the task")
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201, 202, 203, 204])
    parser.add_argument("--steps", type=int, help="default: the task's preset")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="passed on to ex2 train")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=Path, help="default: runs/benchmark-TASK")
    parser.add_argument("--out", type=Path, help="default: results/TASK.csv")
    options = parser.parse_args()
    task, preset = options.task, preset_of(options.task)
    options.bonuses = options.bonuses or ["kernel-exemplar", *find_task(task).paper]
    options.runs = options.runs or Path(f"runs/benchmark-{task}")
    options.out = options.out or Path(f"results/{task}.csv")
    steps = options.steps or preset.steps
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()

    def one(job: tuple[str, int]) -> dict[str, object]:
        bonus, seed = job
        folder = options.runs / f"{bonus}-{seed}"
        command = [sys.executable, "-m", "ex2", "train", task, "--bonus", bonus, "--seed", str(seed)]
        command += [word for setting in options.set for word in ("--set", setting)]
        subprocess.run(
            [*command, "--steps", str(steps), "--device", options.device, "--out", str(folder)], check=True, capture_output=True
        )
        summary = json.loads((folder / "summary.json").read_text())
        row = {"task": task, "bonus": bonus, "seed": seed, "commit": commit}
        row |= {"steps": summary["steps"], "score": round(summary["score"], 2)}
        row |= {"seconds": round(summary["seconds"], 1), "bonus_share": round(summary["bonus_share"], 3)}
        print(row, flush=True)
        return row

    jobs = [(bonus, seed) for seed in options.seeds for bonus in options.bonuses]
    with ThreadPoolExecutor(options.workers) as pool:
        rows = sorted(pool.map(one, jobs), key=lambda row: (options.bonuses.index(str(row["bonus"])), row["seed"]))
    options.out.parent.mkdir(exist_ok=True)
    with open(options.out, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    with open(options.out.with_name(f"{options.out.stem}-curves.csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, ["bonus", "seed", "step", "score"])
        writer.writeheader()
        for row in rows:
            writer.writerows(curve(options.runs / f"{row['bonus']}-{row['seed']}", row))
    for bonus in options.bonuses:
        scores = [float(str(row["score"])) for row in rows if row["bonus"] == bonus]
        print(f"{bonus}: mean {np.mean(scores):.1f}, seed by seed {scores}")


if __name__ == "__main__":
    main()
