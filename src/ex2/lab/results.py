"""Results as tables: what runs left behind, read from wherever it is, and written where many can write at once.

Two tables (pandas) hold everything that is drawn or printed:

    scores  a row for each trial: SCORES
    curves  a row for each point of a learning curve: task, arm, bonus, seed, step, score, and what else was reported

A sweep leaves a Parquet file for each trial, its curve with what the trial was in every row, so writers never meet and pandas,
Polars or DuckDB read a folder of them as one table. What is committed are two CSV files, scores.csv and curves.csv, which a
person can read and git can compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ex2.errors import UsageError
from ex2.lab.experiment import Trial, trial_name
from ex2.tasks import find_task
from ex2.training.config import PARTS, Config, configure, read_json
from ex2.training.files import replacing
from ex2.training.run import CONFIG, SUMMARY, Run

TRIAL = ("experiment", "task", "arm", "bonus", "algo", "preset", "seed", "steps", "overrides", "solved_at", "commit", "command")
"""What a trial was; `steps` is how many it was to have, `overrides` JSON, `solved_at` the score that counts as solved."""
SCORES = (*TRIAL, "step", "score", "first", "seconds", "bonus_share")
"""And what became of it: `step` that it reached, `first` step at which it was solved, `bonus_share` of its seconds."""
KEY = ("experiment", "task", "arm", "seed")
CURVE = (*KEY, "bonus", "step", "score")
REPORTED = (
    *("step", "score", "seconds", "steps_per_second", "entropy", "train/explained_variance"),
    *("bonus/mean", "bonus/std", "bonus/weight", "bonus/scale", "bonus/reward_scale", "bonus/seconds"),
)
"""What a sweep keeps of a run's curve, the same columns for all trials; all that was reported is in the run's metrics.csv."""
POINTS = 50  # of a curve that is committed
UNTOLD = ("task", "bonus", "algo", "preset", "seed", "steps", "device", "threads", "snapshots", "checkpoint_every", "workers")
"""Of a configuration: what has a column of its own, and what changes nothing of what is learned."""
FACTS = "trial.json"
"""In a run's folder: what the experiment says that it belongs to."""
TITLE = "title.txt"
"""In the folder of a sweep or a search: what its experiment is called."""
ASKED = "search.json"
"""In a search's folder: the settings that it tries."""
STORE = "results"
"""The folder beside a sweep's runs that finished trials are written to."""
WHOLE, NUMBERS = ("seed", "steps", "step"), ("solved_at", "score", "first", "seconds", "bonus_share")
"""Columns of whole numbers, and of others, which may be missing; all others are words."""


@dataclass(frozen=True)
class Results:
    """Tables of trials, and what could not be read."""

    scores: pd.DataFrame
    curves: pd.DataFrame
    problems: list[str] = field(default_factory=list)
    """A sentence for each file that was left out."""


def read_results(*paths: str | Path, waiting: list[str] | None = None) -> Results:
    """All trials at these places: folders of runs, of Parquet files, or of scores.csv and curves.csv, or such a thing itself.

    A trial that is there twice counts once: with most steps. A file that is damaged is named in `problems` and left out. A
    place without results is an error, or a sentence in `waiting`, where that is given: for runs that have only been started.
    """
    scores, curves, problems = list[pd.DataFrame](), list[pd.DataFrame](), list[str]()
    for path in map(Path, paths):
        found = list(_sources(path)) if path.exists() else []
        if not found:
            why = "it holds no run, no Parquet file and no scores.csv" if path.exists() else "it does not exist"
            if waiting is None:
                raise UsageError(f"There are no results at {path}: {why}.")
            waiting.append(f"{path} has not begun yet: {why}.")
        for source in found:
            try:
                read = _read(source)
            except (UsageError, OSError, ValueError, TypeError, KeyError, pd.errors.ParserError) as error:
                problems.append(f"{source} cannot be read and is left out ({(str(error).splitlines() or ['damaged'])[0]}).")
                continue
            scores.append(read[0])
            curves.append(read[1])
    return _joined(scores, curves, problems)


def write_trial(folder: Path, facts: Mapping[str, Any], history: Mapping[str, Any]) -> Path:
    """Adds a trial to a folder of Parquet files: its curve, with `facts`, which has the names in TRIAL, in every row.

    The file is whole whatever happens, and its own: nobody else writes it. All files have the same columns of the same kinds,
    so who reads a folder of them as one table misses none.
    """
    columns = {name: facts[name] for name in TRIAL} | {name: history.get(name, np.nan) for name in REPORTED}
    table = _typed(pd.DataFrame(columns), (*TRIAL, "step")).astype(dict.fromkeys(REPORTED[1:], float))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{trial_name(facts['task'], facts['arm'], facts['seed'])}.parquet"
    with replacing(path) as draft:
        table.to_parquet(draft, index=False)
    return path


def write_csv(folder: Path, results: Results) -> None:
    """Writes scores.csv and curves.csv, up to 50 points of each curve, as they are committed."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = [thinned(curve[list(CURVE)]) for _, curve in results.curves.groupby(list(KEY), sort=False)]
    thin = pd.concat(curves) if curves else results.curves[list(CURVE)]
    scores = results.scores[list(SCORES)].astype({"first": "Int64"})  # to the digit, though some have none
    for name, table in (("scores", scores), ("curves", thin)):
        with replacing(folder / f"{name}.csv") as draft:
            table.to_csv(draft, index=False, float_format="%.6g")


def thinned(curve: pd.DataFrame, points: int = POINTS) -> pd.DataFrame:
    """So many points of a learning curve at the most, evenly, the last one included; those without a score are left out."""
    known = curve[curve["score"].notna()]
    return known.iloc[np.unique(np.linspace(0, len(known) - 1, points).round().astype(int))] if len(known) else known


def facts_of_trial(trial: Trial, steps: int, commit: str = "") -> dict[str, Any]:
    """What a trial of so many steps is, by the names in TRIAL."""
    facts = {name: getattr(trial, name) for name in TRIAL if name not in ("steps", "overrides", "commit")}
    solved_at = float("nan") if trial.solved_at is None else trial.solved_at
    return facts | {"steps": steps, "overrides": overrides_text(trial.overrides), "solved_at": solved_at, "commit": commit}


def facts_of(run: Run) -> dict[str, Any]:
    """What a run was, by the names in TRIAL: what the file beside it says, or, of a run by hand, its configuration."""
    if (path := run.folder / FACTS).exists():
        return {name: None for name in TRIAL} | read_json(path)
    config, overrides = run.config, overrides_of(run.config)
    facts = {name: getattr(config, name) for name in ("task", "bonus", "algo", "preset", "seed", "steps")}
    facts |= {"experiment": run.folder.absolute().parent.name, "overrides": overrides_text(overrides)}
    chosen = [name for name, usual in ((config.algo, "trpo"), (config.preset, "default")) if name != usual]
    chosen += [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    facts["arm"] = arm_in(run.folder.name, config.task, config.seed) or " ".join([config.bonus, *chosen])
    made = {name: getattr(config, name) for name in ("task", "bonus", "algo", "preset", "seed", "device", "steps")}
    command = Trial(experiment="", arm="", overrides=overrides, **made).command
    ended = read_json(path) if (path := run.folder / SUMMARY).exists() else {}
    return facts | {"solved_at": find_task(config.task).solved_at, "commit": ended.get("commit", ""), "command": command}


def overrides_of(config: Config) -> dict[str, Any]:
    """What a run was given on top of its preset, as `--set` takes it; not what changes nothing of what is learned."""
    given: dict[str, Any] = {f"task.{key}": value for key, value in config.task_settings.items()}
    usual = configure(config.task, config.bonus, algo=config.algo, preset=config.preset, overrides=given)
    there, preset = (flat(some.as_dict()) for some in (config, usual))
    beginnings = {f"{whole}.": f"{part}." for part, whole in PARTS.items()}
    found = dict(given)
    for key, value in there.items():
        if value != preset.get(key) and key not in UNTOLD:
            whole, dot, name = key.partition(".")
            found[beginnings.get(whole + dot, whole + dot) + name] = value
    return found


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """
    >>> flat({"algo": {"gamma": 0.9}, "steps": 3})
    {'algo.gamma': 0.9, 'steps': 3}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return found


def summary_of(curve: pd.DataFrame) -> dict[str, Any]:
    """What became of a trial, from its whole curve with what it was in every row."""
    curve = curve.sort_values("step")
    last, known = curve.iloc[-1], curve[curve["score"].notna()]
    solved = known[known["score"] >= last["solved_at"]] if pd.notna(last["solved_at"]) else known.iloc[:0]
    seconds = float(last.get("seconds", np.nan))
    spent = float(curve["bonus/seconds"].sum(min_count=1)) if "bonus/seconds" in curve else np.nan
    return {name: last[name] for name in TRIAL} | {
        "step": int(last["step"]),
        "score": float(known["score"].iloc[-1]) if len(known) else np.nan,
        "first": float(solved["step"].iloc[0]) if len(solved) else np.nan,
        "seconds": seconds,
        "bonus_share": spent / seconds if seconds > 0 else np.nan,
    }


def _sources(path: Path) -> Iterable[Path]:
    """The files and folders at a place that hold trials: of a sweep's, which are run and file, the file."""
    if path.is_file() or (path / CONFIG).exists():
        return [path]
    if (path / "scores.csv").exists():
        return [path / "scores.csv"]
    runs = [config.parent for config in sorted(path.rglob(CONFIG))]
    runs = [run for run in runs if not (run.parent / STORE / f"{run.name}.parquet").exists()]
    return [*runs, *sorted(path.rglob("*.parquet")), *sorted(path.rglob("scores.csv"))]


def _read(source: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores and curves of one source."""
    if source.is_dir():
        return _of_curve(_of_run(source))
    if source.suffix == ".parquet":
        return _of_curve(pd.read_parquet(source))
    if source.name == "scores.csv":
        scores = _typed(pd.read_csv(source, dtype={"commit": str, "arm": str}), SCORES)
        if scores.empty:
            raise UsageError("it has no rows")
        curves = source.with_name("curves.csv")
        none = scores[list(CURVE)].iloc[:0]
        return scores, _typed(pd.read_csv(curves, dtype={"arm": str}), CURVE) if curves.exists() else none
    raise UsageError("it is neither a run, nor Parquet, nor scores.csv")


def _of_run(folder: Path) -> pd.DataFrame:
    run = Run(folder)
    history = run.history()
    if not len(history.get("step", ())):
        raise UsageError("the run has reported nothing yet")
    table = pd.DataFrame(history)
    for place, (name, value) in enumerate(facts_of(run).items()):
        table.insert(place, name, value)
    return table


def arm_in(name: str, task: str, seed: int) -> str:
    """The arm that a run's folder is named after, as a sweep's are and those that nobody named, or nothing.

    >>> arm_in("maze-no-counts-3", "maze", 3), arm_in("maze-3", "maze", 3)
    ('no-counts', '')
    """
    start, end = re.sub(r"[^\w.+-]", "-", task) + "-", f"-{seed}"
    return name[len(start) : -len(end)] if name.startswith(start) and name.endswith(end) else ""


def _of_curve(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores and curves of a table that holds whole curves, with what each trial was in every row."""
    table = _typed(table, (*TRIAL, "step", "score"))
    if table.empty:
        raise UsageError("it has no rows")
    rows = [summary_of(curve) for _, curve in table.groupby(list(KEY), sort=False)]
    others = [name for name in table if name not in TRIAL or name in CURVE]
    return pd.DataFrame(rows, columns=list(SCORES)), table[others]


def _typed(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """A table with these columns, numbers as numbers and words as words; what is neither is an error."""
    typed = table.copy()
    for name in columns:
        if name not in table:
            raise UsageError(f"it has no column {name!r}")
        if name in (*WHOLE, *NUMBERS):
            numbers = pd.to_numeric(table[name])
            if name in WHOLE and not (numbers % 1 == 0).all():
                raise UsageError(f"its column {name!r} holds something else than whole numbers")
            typed[name] = numbers.astype(int if name in WHOLE else float)
        else:
            typed[name] = table[name].fillna("").astype(str)
    return typed


def _joined(scores: Sequence[pd.DataFrame], curves: Sequence[pd.DataFrame], problems: list[str]) -> Results:
    """One table of each, without the trials that are there twice."""
    if not scores:
        return Results(pd.DataFrame(columns=list(SCORES)), pd.DataFrame(columns=list(CURVE)), problems)
    key = list(KEY)
    numbered = [table.assign(source=place) for place, table in enumerate(scores)]
    every = pd.concat(numbered, ignore_index=True).sort_values("step", kind="stable")
    kept = every.drop_duplicates(key, keep="last").sort_index()
    told = [table.assign(source=place).dropna(axis=1, how="all") for place, table in enumerate(curves)]
    points = pd.concat(told, ignore_index=True)
    points = points.reindex(columns=list(dict.fromkeys([*CURVE, *points, "source"])))
    points = points.merge(kept[[*key, "source"]], on=[*key, "source"]).drop(columns="source")
    return Results(kept.drop(columns="source").reset_index(drop=True), points, problems)


def overrides_text(overrides: Mapping[str, Any]) -> str:
    """Settings as they stand in a table, always in one order.

    >>> overrides_text({"b": 1, "a": None})
    '{"a": null, "b": 1}'
    """
    return json.dumps(dict(overrides), sort_keys=True)
