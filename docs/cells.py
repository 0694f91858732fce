"""What cells of tables look like, and the line under a table that says what it is made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from ex2.lab.experiment import Experiment, read_experiment, trial_name

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """
    >>> print(table(["a", "b"], [[1, "x"]]))
    | a | b |
    |---|---|
    | 1 | x |
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)])


def made(data: str, name: str = "", command: str = "") -> str:
    """The line under a table: its data, and the command behind it (of experiments/NAME.toml, if there is no other)."""
    if name and not command:
        experiment = read_experiment(ROOT / "experiments" / f"{name}.toml")
        command = experiment.command or f"ex2 sweep experiments/{name}.toml"
        line = f"\n\nFrom [{data}]({data}), by `{command}` ([experiments/{name}.toml](experiments/{name}.toml))."
        return line + (f" {run_so_far(experiment)}" if experiment.trials else "")
    return f"\n\nFrom [{data}]({data})" + (f", by `{command}`." if command else ".")


def run_so_far(experiment: Experiment) -> str:
    """How much of an experiment its results have, where that is not all."""
    rows = pd.read_csv(RESULTS / experiment.name / "scores.csv")
    ended = int((rows["step"] >= rows["steps"]).sum())
    cut = f", and {len(rows) - ended} that were cut off" if ended < len(rows) else ""
    return f"It has {ended} of {len(experiment.trials)} trials{cut}." if cut or ended < len(experiment.trials) else ""


def strangers(experiment: Experiment) -> list[str]:
    """The trials in an experiment's results that it does not have, or has with other settings."""
    wanted = {(trial.task, trial.arm, trial.seed): _settings(trial.overrides) for trial in experiment.trials}
    rows = pd.read_csv(RESULTS / experiment.name / "scores.csv").itertuples()
    found = {(row.task, row.arm, row.seed): _settings(json.loads(row.overrides)) for row in rows}
    return [trial_name(*key) for key, settings in found.items() if wanted.get(key) != settings]


def _settings(overrides: dict[str, Any]) -> dict[str, Any]:
    """Without the threads that physics is stepped on, which change no number."""
    return {key: value for key, value in overrides.items() if key != "task.threads"}


def number(value: float) -> str:
    """
    >>> [number(x) for x in (-65.611, 0.99, 1.0, 0.0, 1188.4, 93.46, float("nan"), 0.004)]
    ['-65.6', '0.99', '1.0', '0', '1,188', '93.5', '', '0.004']
    """
    if pd.isna(value):
        return ""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1_000:
        return f"{value:,.0f}"
    if size >= 10 and value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 or value == int(value) else f"{value:.2f}" if size >= 0.01 else f"{value:.3f}"


def millions(steps: float) -> str:
    """
    >>> millions(800_000), millions(328_000), millions(60_000), millions(float("nan"))
    ('0.8 M', '0.33 M', '0.06 M', '')
    """
    return "" if pd.isna(steps) else f"{steps / 1e6:.2f}".rstrip("0").rstrip(".") + " M"


def interval(solved: int, count: int) -> str:
    """Clopper and Pearson's interval of a share, 95 %.

    >>> interval(9, 10)
    '55 to 100 %'
    """
    found = binomtest(solved, count).proportion_ci(0.95)
    return f"{100 * found.low:.0f} to {100 * found.high:.0f} %"


def seeds(values: Iterable[int]) -> str:
    """
    >>> seeds([3, 1, 2, 7])
    '1-3, 7'
    """
    parts: list[list[int]] = []
    for value in sorted(set(values)):
        if parts and value == parts[-1][-1] + 1:
            parts[-1][1:] = [value]
        else:
            parts.append([value])
    return ", ".join("-".join(map(str, part)) for part in parts)
