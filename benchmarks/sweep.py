"""What `ex2 sweep` costs, and whether it loses anything.

    python benchmarks/sweep.py overhead   # against the same trials by hand, two at a time; writes results/sweep/overhead.csv
    python benchmarks/sweep.py deaths     # 20 trainings killed in the middle; writes results/sweep/deaths.csv

By hand means: `ex2 train` for each trial, in a process of its own, two at a time. The two ways take turns, so whatever else the
machine does meets both; seconds are those of a clock and those of all processors, Ray's own processes included.

A trial is lost if it has not finished when the sweep ends; doubled if the store has it, or a step of it, twice; different if it
is not, to the bit, what the same training is to which nothing happens.
A training is killed again only when it has come further than it was: one that never does is given up by rule.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

import ex2
from ex2.lab.experiment import read_experiment
from ex2.lab.results import read_results
from ex2.lab.trial import last_row
from ex2.training.lock import Locked, locked

OUT = Path("results/sweep")
AT_ONCE = 2
MARK = "EX2_BENCHMARK"
TICKS = os.sysconf("SC_CLK_TCK")


def experiment(folder: Path, name: str, seeds: int, steps: int, every: int = 25) -> Path:
    """A file with so many trials of the maze."""
    path = folder / f"{name}.toml"
    path.write_text(
        f'title = "{name}"\ntasks = ["maze"]\nseeds = "0-{seeds - 1}"\nsteps = {steps}\n[set]\ncheckpoint_every = {every}\n'
    )
    return path


class Processors:
    """Adds up the processor seconds of all processes with a mark in their environment, while it is entered."""

    def __init__(self) -> None:
        self.mark, self._seen, self._over = str(uuid.uuid4()), dict[int, float](), threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {MARK: self.mark}

    @property
    def seconds(self) -> float:
        return sum(self._seen.values())

    def __enter__(self) -> Processors:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        others = set[int]()
        while not self._over.wait(0.1):
            for folder in Path("/proc").glob("[0-9]*"):
                process = int(folder.name)
                if process in others:
                    continue
                with suppress(OSError):
                    if process not in self._seen and f"{MARK}={self.mark}" not in (folder / "environ").read_text():
                        others.add(process)
                        continue
                    cells = (folder / "stat").read_text().rpartition(")")[2].split()
                    self._seen[process] = (int(cells[11]) + int(cells[12])) / TICKS


def overhead(rounds: int, trials: int, steps: int) -> None:
    """The same trials by `ex2 sweep` and by hand, in turns."""
    rows = []
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        path = experiment(place, "overhead", trials, steps)
        commands = [trial.command.split()[1:] for trial in read_experiment(path).trials]

        def by_sweep(out: Path, environment: dict[str, str]) -> None:
            words = ["sweep", str(path), "--out", str(out), "--workers", str(AT_ONCE)]
            subprocess.run([sys.executable, "-m", "ex2", *words], check=True, capture_output=True, env=environment)

        def by_hand(out: Path, environment: dict[str, str]) -> None:
            def one(number: int) -> None:
                words = [*commands[number], "--out", str(out / str(number))]
                subprocess.run([sys.executable, "-m", "ex2", *words], check=True, capture_output=True, env=environment)

            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(one, range(trials)))

        ways = {"sweep": by_sweep, "by hand": by_hand}
        for number in range(rounds):
            for way in sorted(ways, reverse=number % 2 == 0):
                with Processors() as processors:
                    begun = time.monotonic()
                    ways[way](place / f"{way}-{number}", processors.environment)
                    wall = time.monotonic() - begun
                row = {"round": number, "way": way, "trials": trials, "at_once": AT_ONCE, "steps": steps}
                rows.append(row | {"seconds": round(wall, 2), "processor_seconds": round(processors.seconds, 2)})
                print(rows[-1], flush=True)
                write("overhead", rows)
    for column in ("seconds", "processor_seconds"):
        sums = {way: sum(float(str(row[column])) for row in rows if row["way"] == way) for way in ways}
        print(
            f"{column}: {sums['sweep']:.1f} by sweep, {sums['by hand']:.1f} by hand: {sums['sweep'] / sums['by hand'] - 1:+.1%}"
        )


def deaths(count: int, seed: int, trials: int, steps: int) -> None:
    """Sweeps whose trainings are killed at random, until so many have been."""
    draw, rows, killed = random.Random(seed), [], 0
    with tempfile.TemporaryDirectory() as made:
        place, number = Path(made), 0
        path = experiment(place, "deaths", trials, steps, every=2)
        listed = read_experiment(path).trials
        for trial in listed:
            ex2.train("maze", seed=trial.seed, steps=steps, overrides=trial.overrides, out=place / "whole" / trial.name)
        while killed < count:
            out, by_trial = place / f"sweep-{number}", dict.fromkeys((trial.name for trial in listed), 0)
            reached: dict[str, float] = dict.fromkeys(by_trial, 0)
            words = ["sweep", str(path), "--out", str(out), "--workers", str(AT_ONCE)]
            process = subprocess.Popen([sys.executable, "-m", "ex2", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            while process.poll() is None:
                time.sleep(draw.uniform(0.2, 3.0))
                further = [name for name in by_trial if last_row(out / name).get("step", 0) > reached[name]]
                running = {name: found for name in further if (found := trainer_of(out / name))}
                if running and killed < count:
                    name = draw.choice(sorted(running))
                    step = reached[name] = last_row(out / name).get("step", 0)
                    with suppress(ProcessLookupError):
                        os.kill(running[name], signal.SIGKILL)
                        killed, by_trial[name] = killed + 1, by_trial[name] + 1
                        print(f"sweep {number}: killed {name} at step {step:,.0f} ({killed} of {count})", flush=True)
            results = read_results(out / "results")
            for trial in listed:
                points = results.curves[results.curves["seed"] == trial.seed]
                stored = int((results.scores["seed"] == trial.seed).sum())
                finished = json.loads((out / trial.name / "summary.json").read_text())["finished"]
                row = {"sweep": number, "trial": trial.name, "deaths": by_trial[trial.name]}
                row |= {
                    "lost": int(stored == 0 or not finished),
                    "doubled": int(stored > 1 or points["step"].duplicated().any()),
                }
                rows.append(row | {"different": int(not same(out / trial.name, place / "whole" / trial.name))})
            number += 1
    write("deaths", rows)
    sums = {name: sum(int(str(row[name])) for row in rows) for name in ("deaths", "lost", "doubled", "different")}
    print(f"{len(rows)} trials in {number} sweeps:", ", ".join(f"{value} {name}" for name, value in sums.items()))


def trainer_of(folder: Path) -> int | None:
    """The process that trains in a run's folder."""
    if (folder / "metrics.csv").exists():
        try:
            with locked(folder):
                pass
        except Locked as error:
            found = re.search(r"process (\d+)", str(error))
            return int(found[1]) if found else None
    return None


def same(folder: Path, other: Path) -> bool:
    """Whether two runs have reported the same, but for times."""
    a, b = ({k: v for k, v in ex2.Run(run).history().items() if "second" not in k} for run in (folder, other))
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


def write(name: str, rows: list[dict[str, object]]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["overhead", "deaths"])
    parser.add_argument("--rounds", type=int, default=3, help="of both ways (default: 3)")
    parser.add_argument("--trials", type=int, default=4, help="of each sweep (default: 4)")
    parser.add_argument("--steps", type=int, help="of each trial (default: 400,000; for deaths 120,000)")
    parser.add_argument("--deaths", type=int, default=20, help="(default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of when and what is killed (default: 0)")
    options = parser.parse_args()
    if options.part == "overhead":
        overhead(options.rounds, options.trials, options.steps or 400_000)
    else:
        deaths(options.deaths, options.seed, options.trials, options.steps or 120_000)


if __name__ == "__main__":
    main()
