"""One trial of a sweep: what is there of it, and how it is begun, gone on with and written down, in a process of Ray's.

A trial is a run folder, and once it has finished a file in the store. Nothing else says how far it is: whoever looks at the two
can go on, on any machine that sees them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ex2.errors import UsageError
from ex2.lab.experiment import Trial
from ex2.lab.results import FACTS, STORE, TRIAL, facts_of_trial, flat, overrides_text, write_trial
from ex2.tasks.cores import LIMIT
from ex2.training import checkpoint
from ex2.training.config import Config, read_json, write_json
from ex2.training.lock import Locked, locked
from ex2.training.run import CHECKPOINT, CONFIG, SUMMARY, Result, Run, train

FINISHED, STOPPED, ELSEWHERE, FAILED = "finished", "stopped", "elsewhere", "failed"


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: finished, stopped, elsewhere (another process trains it) or failed, with a sentence."""

    state: str
    words: str = ""


def run_trial(trial: Trial, out: Path, commit: str, cores: int) -> Outcome:
    """Trains what is missing of a trial, and writes it to the store when it has finished."""
    os.environ[LIMIT] = str(cores)
    folder = out / trial.name
    try:
        if not _finished(folder) and not _train(trial, folder, commit).finished:
            return Outcome(STOPPED)
        with locked(folder):
            _write(trial, Run(folder), out / STORE, commit)
    except Locked as error:
        return Outcome(ELSEWHERE, str(error))
    except UsageError as error:
        return Outcome(FAILED, str(error))
    return Outcome(FINISHED)


def difference(trial: Trial, config: Config, out: Path) -> str:
    """Where what is there of a trial was made with other settings: one of them, in words."""
    folder, stored = out / trial.name, out / STORE / f"{trial.name}.parquet"
    wanted = json.loads(json.dumps(config.as_dict() | {"device": trial.device}))
    if (folder / CONFIG).exists():
        return _unlike(folder, flat(read_json(folder / CONFIG)), flat(wanted))
    try:
        row = _read(stored)
    except UsageError:
        return ""
    facts = {name: wanted[name] for name in ("task", "bonus", "algo", "preset", "seed", "steps")}
    facts["overrides"] = overrides_text(trial.overrides)
    return _unlike(stored, {name: row[name] for name in facts}, facts)


def is_stored(trial: Trial, config: Config, out: Path) -> bool:
    """Whether a trial is in the store to its last step; a file that is damaged is an error, and as good as none."""
    stored = out / STORE / f"{trial.name}.parquet"
    return stored.exists() and bool(_read(stored)["step"] >= config.steps)


def last_row(folder: Path) -> dict[str, float]:
    """The last row of a run's metrics, which may be being written; nothing if there is none."""
    try:
        with open(folder / "metrics.csv", "rb") as file:
            names = file.readline().decode().strip().split(",")
            file.seek(max(file.seek(0, os.SEEK_END) - 16 * 1024, 0))
            lines = file.read().decode(errors="replace").split("\n")[1:-1]  # the first and the last may be cut
        cells = lines[-1].strip().split(",") if lines else []
        return {name: float(cell) for name, cell in zip(names, cells, strict=True) if cell}
    except (OSError, ValueError):
        return {}


def _read(stored: Path) -> dict[str, Any]:
    """The last row of a file in the store."""
    try:
        table = pd.read_parquet(stored, columns=[*TRIAL, "step"])
        return {str(name): value for name, value in table.iloc[-1].items()}
    except (OSError, ValueError, LookupError) as error:  # pyarrow's errors are ValueErrors, too
        raise UsageError(f"{stored} cannot be read ({str(error).splitlines()[0]}).") from None


def _finished(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / SUMMARY).read_text())["finished"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _train(trial: Trial, folder: Path, commit: str) -> Result:
    """Goes on from the last checkpoint, from the one before it where that is damaged, or begins."""
    saved = folder / CHECKPOINT
    if saved.exists() or checkpoint.previous(saved).exists():
        run = Run(folder)
        try:
            return run.resume()
        except checkpoint.CheckpointError as error:
            try:
                return run.resume(previous=True)
            except Locked:
                raise
            except UsageError:  # the last one is whole, or both are damaged
                raise error from None
    rows = 0

    def count(row: Mapping[str, float]) -> None:
        nonlocal rows
        rows += 1
        if rows == 1:  # train takes none but an empty folder
            write_json(folder / FACTS, facts_of_trial(trial, trial.configuration().steps, commit))

    try:
        return train(
            trial.task,
            trial.bonus,
            out=folder,
            algo=trial.algo,
            preset=trial.preset,
            steps=trial.steps,
            seed=trial.seed,
            overrides=trial.overrides,
            listener=count,
            device=trial.device,
        )
    except Locked:
        raise
    except UsageError as error:
        if rows == 0 and saved.exists():  # somebody else has begun it meanwhile
            raise Locked(str(error)) from None
        raise


def _write(trial: Trial, run: Run, store: Path, commit: str) -> None:
    history = run.history()
    if not len(history.get("step", ())):
        raise UsageError(f"{run.folder} has finished, and its metrics.csv is gone: remove the folder, and it is trained anew.")
    try:
        write_trial(store, facts_of_trial(trial, run.config.steps, commit), history)
    except OSError as error:
        raise UsageError(f"{store} cannot be written ({error.strerror or error}): make it so, and start again.") from None


def _unlike(place: Path, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    for key in dict.fromkeys([*wanted, *there]):
        if there.get(key) != wanted.get(key):
            return f"{place} was made with {_said(key, there)} and is now to have {_said(key, wanted)}"
    return ""


def _said(key: str, values: Mapping[str, Any]) -> str:
    return f"{key}={values[key]!r}" if key in values else f"no {key}"
