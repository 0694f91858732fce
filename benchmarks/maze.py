"""The maze's row of the paper's table: every method, several seeds, at the paper's budget.

    python benchmarks/maze.py                    # writes results/maze.csv anew (about a quarter of an hour on 2 cores)
    python benchmarks/maze.py --bonuses histogram none --set algo.cg_damping=0.1 \\
        --runs runs/benchmark-maze-damped --out results/maze-damped.csv

The seeds begin at 200: none of them was used when the presets were chosen, but for TRPO's damping (docs/design.md).
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

COLUMNS = ["task", "bonus", "seed", "steps", "score", "seconds", "bonus_share", "commit"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--bonuses", nargs="+", default=["kernel-exemplar", "k-exemplar", "amortized", "kde", "histogram", "none"]
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201, 202, 203, 204])
    parser.add_argument("--steps", type=int, default=800_000)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="passed on to ex2 train")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmark-maze"))
    parser.add_argument("--out", type=Path, default=Path("results/maze.csv"))
    options = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()

    def one(job: tuple[str, int]) -> dict[str, object]:
        bonus, seed = job
        folder = options.runs / f"{bonus}-{seed}"
        command = [sys.executable, "-m", "ex2", "train", "maze", "--bonus", bonus, "--seed", str(seed)]
        command += [word for setting in options.set for word in ("--set", setting)]
        subprocess.run([*command, "--steps", str(options.steps), "--out", str(folder)], check=True, capture_output=True)
        summary = json.loads((folder / "summary.json").read_text())
        row = {"task": "maze", "bonus": bonus, "seed": seed, "commit": commit}
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
    for bonus in options.bonuses:
        scores = [float(str(row["score"])) for row in rows if row["bonus"] == bonus]
        print(f"{bonus}: mean {np.mean(scores):.1f}, seed by seed {scores}")


if __name__ == "__main__":
    main()
