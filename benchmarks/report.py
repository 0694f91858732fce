"""The report of many runs: how long it takes to build, how large it is, and when a browser has drawn the first chart.

    python benchmarks/report.py                 # 1,000 runs of 500 points; results/report/report.csv
    python benchmarks/report.py --seeds 2 --points 50 --out report.csv

The runs are made up: five tasks, four methods, 50 seeds each, written as a sweep writes them. Building is `ex2 report` as a
process of its own, from its start to its end. The browser is Debian's Chromium, without a window; the first chart is what the
page itself marks, in seconds after it was asked for.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "lab"))
from browser import Browser, chromium

from ex2.lab.results import write_trial
from ex2.tasks import TASKS

GAMES = ("maze", "sparse-maze", "cheetah", "gather", "doom")
METHODS = {"kernel-exemplar": 1.1, "amortized": 0.9, "rnd": 0.7, "none": 0.05}
ROOT = Path(__file__).parents[1]
COLUMNS = ["runs", "points", "build_seconds", "build_cpu_seconds", "megabytes", "first_chart_seconds"]


def make(folder: Path, seeds: int, points: int) -> int:
    """Writes the trials, and returns how many there are."""
    random, steps = np.random.default_rng(0), np.arange(1, points + 1) * 4_000
    for task in GAMES:
        paper, solved_at = TASKS[task].paper, TASKS[task].solved_at
        zero, one = paper.get("none", 0.0), max(paper.values(), default=solved_at or 1.0)
        for method, skill in METHODS.items():
            for seed in range(seeds):
                rise = 1 / (1 + np.exp(-(np.linspace(-6, 6, points) - random.normal(0, 1.5))))
                level = skill * rise + random.normal(0, 0.03, points)
                facts = {
                    "experiment": "many",
                    "task": task,
                    "arm": method,
                    "bonus": method,
                    "algo": "trpo",
                    "preset": "default",
                }
                facts |= {"seed": seed, "steps": int(steps[-1]), "overrides": "{}", "solved_at": solved_at, "commit": "0000000"}
                facts |= {"command": f"ex2 train {task} --bonus {method} --seed {seed}"}
                curve = {"step": steps, "score": zero + (one - zero) * level, "seconds": steps / 9_000.0}
                write_trial(folder, facts, curve | {"bonus/seconds": np.full(points, 0.02)})
    return len(GAMES) * len(METHODS) * seeds


def measure(seeds: int, points: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as made:
        folder, target = Path(made) / "results", Path(made) / "report.html"
        runs = make(folder, seeds, points)
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "ex2", "report", str(folder), "--out", str(target)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, stdout=subprocess.DEVNULL)
        built, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        first = float("nan")
        if chromium() is not None:
            with Browser() as browser:
                browser.open(target.as_uri())
                browser.wait("window.ex2 && window.ex2.drawn > 0")
                first = browser.run("performance.getEntriesByName('first-chart')[0].startTime") / 1_000
                if browser.errors:
                    raise SystemExit(f"The page went wrong: {browser.errors}")
        size = target.stat().st_size / 1e6
    return dict(zip(COLUMNS, (runs, points, built, used, size, first), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50, help="of each task and method (default: 50, so 1,000 runs)")
    parser.add_argument("--points", type=int, default=500, help="of each curve (default: 500)")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "report" / "report.csv")
    options = parser.parse_args()
    row = measure(options.seeds, options.points)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with open(options.out, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerow({name: f"{value:.3g}" if isinstance(value, float) else value for name, value in row.items()})
    print(", ".join(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value:,}" for name, value in row.items()))


if __name__ == "__main__":
    main()
