"""Long trainings in stretches: a set of runs is started or gone on with, stopped in time, and made small enough to carry away.

    python benchmarks/atari.py                                  # to the end, on a GPU of your own
    python benchmarks/atari.py --minutes 28 --carry carried     # a stretch; then bring the folder `carried` to the next machine
    python benchmarks/atari.py --minutes 28 --carry carried     # ... and say the same there: it goes on from what it finds
    python benchmarks/atari.py --experiment experiments/doom-bonuses.toml --at-once 24 --minutes 9 --carry carried

It does what `ex2 sweep` does, for machines that are lent by the minute and have neither Ray nor a disk that stays. Trials are
begun in the order of the experiment, so many at once; those that are finished are not run again. When the time is over each is
asked to stop: it ends its iteration and saves. Of each run, one file goes to the folder that is carried: configuration, metrics
and the last checkpoint, without what TensorBoard has of it. A file above the limit is named, with what would make it smaller.
Scores and curves of all trials so far are in results/EXPERIMENT; a trial that went on replaces what it was.
"""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from ex2 import UsageError
from ex2.commit import commit
from ex2.lab.experiment import Trial, read_experiment
from ex2.lab.results import FACTS, facts_of_trial, read_results, write_csv
from ex2.training.config import read_json, write_json
from ex2.training.files import replacing
from ex2.training.metrics import read
from ex2.training.run import CHECKPOINT, CONFIG, SUMMARY
from ex2.training.snapshots import SNAPSHOTS

CARRIED = (CONFIG, SUMMARY, FACTS, SNAPSHOTS, "metrics.csv", CHECKPOINT)
LIMIT = 14 * 2**20  # bytes of a file that is carried
PATIENCE = 90.0  # seconds that runs have to end their iteration and to save


def finished(folder: Path) -> bool:
    """Whether a run has come to its end."""
    return (folder / SUMMARY).exists() and bool(read_json(folder / SUMMARY)["finished"])


def launch(trial: Trial, folder: Path) -> subprocess.Popen[bytes]:
    """Begins a trial in a process of its own, or goes on with it; what it says goes to a file beside its folder."""
    begun = (folder / CHECKPOINT).exists()
    words = ["resume", str(folder)] if begun else [*trial.arguments, "--out", str(folder)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.log"), "a") as log:
        return subprocess.Popen([sys.executable, "-m", "ex2", *words], stdout=log, stderr=subprocess.STDOUT)


def stretch(trials: list[Trial], runs: Path, at_once: int, seconds: float) -> list[str]:
    """Runs trials, so many at once, for so long; returns a sentence for each that failed."""
    deadline, failures = time.monotonic() + seconds, list[str]()
    waiting = iter([trial for trial in trials if not finished(runs / trial.name)])
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while time.monotonic() < deadline:
            for trial in itertools.islice(waiting, at_once - len(running)):
                running[trial.name] = launch(trial, runs / trial.name)
            if not running:
                break
            time.sleep(0.2)
            failures += [failure for name in list(running) for failure in _done(name, running, runs)]
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        limit = time.monotonic() + PATIENCE
        for name, process in running.items():
            try:
                process.wait(max(limit - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()  # its last checkpoint is whole
                failures.append(f"{name} did not stop within {PATIENCE:.0f} seconds: its last checkpoint is the one before.")
    return failures


def _done(name: str, running: dict[str, subprocess.Popen[bytes]], runs: Path) -> list[str]:
    """Takes a trial that has ended from those that run; says so if it failed."""
    status = running[name].poll()
    if status is None:
        return []
    del running[name]
    return [] if status == 0 else [f"{name} ended with status {status}: {runs / name}.log says why."]


def pack(folder: Path, target: Path) -> str | None:
    """Writes what is carried of a run to one file; a sentence if it is larger than the limit."""
    with replacing(target) as draft, tarfile.open(draft, "w") as archive:
        for name in CARRIED:
            if (folder / name).exists():
                archive.add(folder / name, name)
    size = target.stat().st_size
    if size <= LIMIT:
        return None
    much = f"{target} has {size / 2**20:.1f} MB, more than {LIMIT / 2**20:.0f}"
    return f"{much}: let its bonus hold fewer states, by bonus.replay_capacity in the experiment's [set]."


def unpack(carried: Path, runs: Path) -> None:
    """Puts carried runs where they are gone on with; one that is as far there already is left as it is."""
    for file in sorted(carried.glob("*.tar")):
        folder = runs / file.stem
        with tempfile.TemporaryDirectory() as place:
            with tarfile.open(file) as archive:
                archive.extractall(place, filter="data")
            if not (folder / CHECKPOINT).exists() or steps_of(Path(place)) > steps_of(folder):
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(place, folder)


def steps_of(folder: Path) -> int:
    """How far a run has come."""
    rows = read(folder / "metrics.csv")
    return int(rows[-1]["step"]) if rows else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", type=Path, default=Path("experiments/atari.toml"))
    parser.add_argument("--minutes", type=float, default=math.inf, help="that the machine is there (default: no end)")
    parser.add_argument("--at-once", type=int, default=3, help="runs side by side (default: 3)")
    parser.add_argument("--only", nargs="+", help="trials by their names, TASK-ARM-SEED (default: all of the experiment)")
    parser.add_argument("--carry", type=Path, help="a folder to go on from, and to leave a file for each run in")
    parser.add_argument("--runs", type=Path, help="where run folders are (default: runs/EXPERIMENT)")
    parser.add_argument("--out", type=Path, help="default: results/EXPERIMENT")
    options = parser.parse_args(arguments)
    try:
        experiment = read_experiment(options.experiment)
    except UsageError as error:
        parser.error(str(error))
    trials = [trial for trial in experiment.trials if not options.only or trial.name in options.only]
    if not trials:
        parser.error(f"{options.experiment} has none of these trials: {', '.join(options.only or ['it has no trials'])}.")
    runs, out = options.runs or Path("runs") / experiment.name, options.out or Path("results") / experiment.name
    if options.carry:
        options.carry.mkdir(parents=True, exist_ok=True)
        unpack(options.carry, runs)
    saving = min(PATIENCE, options.minutes * 6)  # of the time there is, to stop in
    before = {trial.name: steps_of(runs / trial.name) for trial in trials}
    said = stretch(trials, runs, options.at_once, options.minutes * 60 - saving)
    for trial in trials:
        folder = runs / trial.name
        if steps_of(folder) > before[trial.name] or ((folder / CONFIG).exists() and not (folder / FACTS).exists()):
            write_json(folder / FACTS, facts_of_trial(trial, trial.configuration("cpu").steps, commit()))
    begun = [trial for trial in trials if (runs / trial.name / "metrics.csv").exists()]
    if options.carry:
        said += [problem for trial in begun if (problem := pack(runs / trial.name, options.carry / f"{trial.name}.tar"))]
    if begun:
        known = [out] if (out / "scores.csv").exists() else []
        results = read_results(*known, *(runs / trial.name for trial in begun))
        said += results.problems
        write_csv(out, results)
        print(results.scores[["task", "arm", "seed", "step", "score"]].to_string(index=False))
    for sentence in said:
        print(sentence, file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
