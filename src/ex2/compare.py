"""Several runs of a task beside each other: where their agents go, and how their scores went."""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.novelty import watch
from ex2.plots import INK, MUTED, mark, plain, save
from ex2.tasks import find_task, task_map
from ex2.tasks.map import Map
from ex2.training.environments import environments
from ex2.training.run import Run

EPISODES = 20  # that are played with each agent
COLOURS = ("#2f6fdb", "#d9822b", "#2a9d5c", "#b23a8f", "#7a6ff0", "#8a6d3b", "#c23b3b", "#3aa6b2")


def compare_figure(folders: Sequence[str | Path], path: str | Path, seed: int = 0) -> Path:
    """Draws runs of one task and saves the picture: all learning curves and, if the task has a map in the plane, 20 episodes of
    each agent on it. `seed` is that of the episodes."""
    runs = [Run(folder) for folder in folders]
    tasks = sorted({run.config.task for run in runs})
    if len(tasks) > 1:
        raise UsageError(f"These runs are of different tasks, {' and '.join(tasks)}: compare runs of one.")
    if len(runs) > len(COLOURS):
        raise UsageError(f"{len(runs)} runs are too many for one picture: give at most {len(COLOURS)}.")
    arena = task_map(tasks[0])
    mapped = arena is not None and len(arena.axes) == 2
    with matplotlib.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK, "axes.labelcolor": INK}):
        maps = len(runs) if mapped else 0
        figure = Figure(figsize=(3.4 * maps + 5.2, 3.7), layout="constrained")
        axes = figure.subplots(1, maps + 1, squeeze=False, width_ratios=[1.0] * maps + [1.5])[0]
        for axis, run, colour in zip(axes, runs, COLOURS, strict=False):
            if mapped and arena is not None:
                _draw_paths(axis, run, arena, colour, seed)
        _draw_curves(axes[-1], runs)
        figure.suptitle(tasks[0], fontsize=11)
        return save(figure, Path(path))


@dataclass(frozen=True)
class Recorded:
    """What results hold of a method on a task."""

    mean: float
    seeds: int
    steps: int | None
    """That they were trained for; None where the results do not say, or say several things."""


def recorded_scores(path: Path, task: str) -> dict[str, Recorded]:
    """Each method's results on a task, from a CSV file with the columns task, bonus and score, or a folder with scores.csv;
    trials without a score are left out."""
    path = path / "scores.csv" if path.is_dir() else path
    try:
        with open(path, newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["task"] == task and _known(row["score"])]
        scores: dict[str, list[float]] = {}
        steps: dict[str, set[int]] = {}
        for row in rows:
            name = row.get("arm") or row["bonus"]
            scores.setdefault(name, []).append(float(row["score"]))
            steps.setdefault(name, set()).add(int(row.get("steps") or 0))
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(f"{path} is no results file with the columns task, bonus and score ({error}).") from None
    known = {name: next(iter(values)) if len(values) == 1 else None for name, values in steps.items()}
    return {name: Recorded(float(np.mean(values)), len(values), known[name] or None) for name, values in scores.items()}


def _known(score: str | None) -> bool:
    return bool(score) and math.isfinite(float(score or 0))


def differing_budgets(steps: int, recorded: Mapping[str, Recorded]) -> str:
    """A sentence where the recorded runs were not trained as long, else nothing.

    >>> differing_budgets(960, {"none": Recorded(-200.0, 8, 800_000)})
    'This run has 960 steps, the recorded ones of none 800,000: their scores are of different budgets.'
    """
    others = {name: row.steps for name, row in recorded.items() if row.steps is not None and row.steps != steps}
    if not others:
        return ""
    by_steps: dict[int, list[str]] = {}
    for name, count in others.items():
        by_steps.setdefault(count, []).append(name)
    told = " and ".join(f"of {', '.join(names)} {count:,}" for count, names in by_steps.items())
    return f"This run has {steps:,} steps, the recorded ones {told}: their scores are of different budgets."


def compared(run: Run) -> dict[str, Any]:
    """A run as a row of a table."""
    history, config = history_of(run), run.config
    solved_at = find_task(config.task).solved_at
    reached = history["score"] >= solved_at if solved_at is not None else np.zeros(len(history["score"]), bool)
    seconds = float(history["seconds"][-1])
    return {
        "run": str(run.folder),
        "method": name_of(run),
        "seed": config.seed,
        "steps": int(history["step"][-1]),
        "score": float(history["score"][-1]),
        "solved at step": int(history["step"][np.argmax(reached)]) if reached.any() else None,
        "seconds": seconds,
        "in the bonus": float(history["bonus/seconds"].sum()) / seconds if "bonus/seconds" in history else None,
    }


def history_of(run: Run) -> dict[str, Array]:
    """What a run has reported, which must be something."""
    history = run.history()
    if "score" not in history:
        raise UsageError(f"The run {run.folder} has reported nothing yet: there is nothing to draw.")
    return history


def name_of(run: Run) -> str:
    """A run in a few words."""
    config = run.config
    return f"plain {config.algo.upper()}" if config.bonus == "none" else config.bonus


def _draw_paths(axis: Axes, run: Run, arena: Map, colour: str, seed: int) -> None:
    with contextlib.closing(environments(run.config, EPISODES)) as env:
        watched = watch(run.load(), env, seed, find_task(run.config.task).episode_steps, arena)
    assert watched.places is not None
    for index in range(EPISODES):
        axis.plot(*_first_episode(watched.places[:, index], watched.ends[:, index]).T, color=colour, linewidth=0.8, alpha=0.5)
    mark(axis, arena, linewidth=3, solid_capstyle="round")
    if arena.extent is not None:
        axis.set(xlim=arena.extent[:2], ylim=arena.extent[2:])
    axis.set_aspect("equal")
    plain(axis, f"{name_of(run)}, seed {run.config.seed}: {EPISODES} episodes")


def _first_episode(places: Array, ends: Array) -> Array:
    last = np.flatnonzero(ends)
    return places[: last[0] + 1] if len(last) else places


def _draw_curves(axis: Axes, runs: Sequence[Run]) -> None:
    for run, colour in zip(runs, COLOURS, strict=False):
        history = history_of(run)
        known = np.isfinite(history["score"])
        label = f"{name_of(run)}, seed {run.config.seed}"
        axis.plot(history["step"][known] / 1e3, history["score"][known], color=colour, linewidth=1.8, label=label)
    axis.set(xlabel="thousand environment steps", ylabel="return of an episode, last 20")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="best")
