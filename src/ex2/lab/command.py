"""`ex2 sweep` and `ex2 results`: what they print, and how they end."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ex2.errors import UsageError
from ex2.lab.experiment import Experiment, read_experiment
from ex2.lab.progress import Job
from ex2.lab.results import STORE, Results, read_results, write_csv
from ex2.lab.search import search
from ex2.lab.statistics import many, steps_text, summarise
from ex2.lab.sweep import sweep
from ex2.lab.trial import FAILED, STOPPED
from ex2.tables import show

TITLE = "mean return of the last 20 episodes"
SHOWN = (
    *("experiment", "task", "arm", "steps", "least_steps", "reached", "least_reached", "n", "unfinished"),
    *("solved", "low", "high", "mean", "iqm", "lowest", "first"),
)
STOPPED_WORDS = "Stopped and saved. The same command goes on where it was."


def sweep_command(options: argparse.Namespace, console: Console) -> int:
    """Runs an experiment; 0 if all of it is there in the end, 1 if a trial failed, 130 if it was stopped."""
    changed: dict[str, Any] = {"seeds": _seeds(options.seeds)} if options.seeds else {}
    changed |= {"steps": options.steps} if options.steps is not None else {}
    experiment = read_experiment(options.experiment, **changed)
    if options.dry_run:
        return _list(experiment, options.json, console)
    if experiment.command:
        return _run(experiment.command)
    out = options.out or Path("runs") / experiment.name
    aside = Console(stderr=True) if options.json else console
    how = {"address": options.address, "workers": options.workers, "retries": options.retries, "console": aside}
    if experiment.search:
        best = search(experiment, out, samples=options.samples, seed=options.seed, **how)
        if best is None:
            _say(aside, STOPPED_WORDS)
            return 130
        if options.json:
            print(json.dumps(best, indent=2))
        return 0
    jobs = sweep(experiment, out, **how)
    status = _ended(jobs, aside)
    if (out / STORE).is_dir():
        results = read_results(out / STORE)
        _print(results, options.json, console)
        if status == 0:
            _say(aside, f"The results are in {out}. Go on with: ex2 report {out}")
    if status == 130:
        _say(aside, STOPPED_WORDS)
    return status


def _run(command: str) -> int:
    """Runs a line of a shell in which `python` is the one that runs this, whether or not its environment is activated."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return subprocess.run(command, shell=True, env=os.environ | {"PATH": folders}).returncode


def results_command(options: argparse.Namespace, console: Console) -> int:
    """Prints results from wherever they are, and saves them as CSV; 1 if something could not be read."""
    results = read_results(*options.paths)
    _print(results, options.json, console)
    if options.save:
        try:
            write_csv(options.save, results)
        except OSError as error:
            raise UsageError(
                f"The folder {options.save} cannot be written ({error.strerror}): choose another --save."
            ) from None
        _say(Console(stderr=True) if options.json else console, f"scores.csv and curves.csv are in {options.save}.")
    return 1 if results.problems else 0


def _print(results: Results, as_json: bool, console: Console) -> None:
    for problem in results.problems:
        print(f"ex2: {problem}", file=sys.stderr)
    table = summarise(results.scores)[list(SHOWN)].astype({"solved": "Int64", "first": "Int64"})
    rows: list[dict[str, Any]] = table.astype(object).where(table.notna(), None).to_dict("records")
    several = table["experiment"].nunique() > 1
    show(console, rows if as_json else [_in_words(row, several) for row in rows], TITLE, as_json)


def _in_words(row: dict[str, Any], several: bool = False) -> dict[str, Any]:
    """A row with what is solved in one cell, and a range of steps where trials have not all as many; its experiment where there
    are `several`.

    >>> row = {"steps": 400, "least_steps": 400, "reached": 400, "least_reached": 90, "n": 10, "unfinished": 0}
    >>> row |= {"solved": 9, "low": 0.555, "high": 0.9975}
    >>> _in_words(row)
    {'steps': 400, 'solved (95 %)': '9 of 10 (56 to 100 %)'}
    >>> _in_words(row | {"unfinished": 2})
    {'steps': '90 to 400 of 400', 'solved (95 %)': '9 of 10 (56 to 100 %), 2 of them unfinished'}
    >>> _in_words(row | {"n": 1, "solved": None, "unfinished": 1})["solved (95 %)"]
    '1 trial (unfinished)'
    """
    solved, low, high, count, unfinished = (row[name] for name in ("solved", "low", "high", "n", "unfinished"))
    words = f"{solved} of {count} ({100 * low:.0f} to {100 * high:.0f} %)" if solved is not None else many(count, "trial")
    words += "" if not unfinished else " (unfinished)" if count == 1 else f", {unfinished} of them unfinished"
    steps = steps_text(row) if unfinished or row["least_steps"] < row["steps"] else row["steps"]
    left_out = ("solved", "low", "high", "least_steps", "reached", "least_reached", "unfinished")
    kept = {key: value for key, value in row.items() if key not in (*left_out, *(() if several else ("experiment",)))}
    kept |= {"n": words, "steps": steps}
    return {"solved (95 %)" if key == "n" else key: value for key, value in kept.items()}


def _list(experiment: Experiment, as_json: bool, console: Console) -> int:
    """What a sweep would run."""
    listed = [{"trial": trial.name, "command": trial.command} for trial in experiment.trials]
    if experiment.command:
        listed = [{"trial": experiment.name, "command": experiment.command}]
    if as_json:
        print(json.dumps(listed, indent=2))
        return 0
    for row in listed:
        _say(console, f"{row['trial']}: {row['command']}")
    if experiment.search:
        ranges = ", ".join(f"{key} in {json.dumps(among)}" for key, among in experiment.search.items())
        _say(console, f"A search: each setting is trained on all {len(listed)} of these; {ranges}")
    return 0


def _ended(jobs: Sequence[Job], console: Console) -> int:
    """The exit status, and a sentence for what has failed."""
    failed = [job for job in jobs if job.state == FAILED]
    for job in failed:
        _say(console, f"{job.trial.name} failed: {job.words}")
    if failed:
        print(f"ex2: {len(failed)} of {len(jobs)} trials failed; the same command tries them again.", file=sys.stderr)
    return 130 if any(job.state == STOPPED for job in jobs) else 1 if failed else 0


def _seeds(words: Sequence[str]) -> Any:
    """
    >>> _seeds(["0-3"]), _seeds(["1", "5"])
    ('0-3', [1, 5])
    """
    if len(words) == 1 and "-" in words[0]:
        return words[0]
    if not all(word.isdecimal() for word in words):
        raise UsageError(f"--seeds {' '.join(words)} must be whole numbers, 0 1 2, or a range of them, 0-9.")
    return [int(word) for word in words]


def _say(console: Console, words: str) -> None:
    console.print(words, soft_wrap=True, highlight=False, markup=False)
