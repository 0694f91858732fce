"""Pictures of a run: what the agent has visited, what the bonus makes of it, and how the score went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from ex2.arrays import Array
from ex2.bonus import DensityBonus
from ex2.density import ExemplarDensity
from ex2.errors import UsageError
from ex2.tasks import task_map
from ex2.tasks.map import Map
from ex2.training.run import Loaded, Run
from ex2.training.snapshots import density_map, extent_of, read_snapshots

GRID = 48  # cells a side of the maps
NATS = 10.0  # nats below the highest that densities are drawn down to
TOY_POINTS, TOY_REACH = 20_000, 3.6
MOMENTS = 4  # of a training that are shown
INK, MUTED, ACCENT = "#1f2430", "#8a8f9c", "#2f6fdb"


def run_figure(folder: str | Path, path: str | Path | None = None, recorded: dict[str, float] | None = None) -> Path:
    """Draws a run and saves the picture, by default as plot.png in its folder.

    A task with a map shows where agents were at four moments of the training, and what the bonus made of it then, beside the
    learning curve; any other task shows the curve. `recorded` holds scores of other methods, by bonus, to draw beside it.
    """
    run = Run(folder)
    arena, config, curve = task_map(run.config.task), run.config, run.history()
    moments = read_snapshots(run.folder) if arena is not None else None
    with matplotlib.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK, "axes.labelcolor": INK}):
        if moments is not None and arena is not None:
            figure = Figure(figsize=(13.5, 4.6), layout="constrained")
            left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[2.2, 1])[0]
            (_draw_moments if len(arena.axes) == 2 else _draw_way)(left, moments, arena)
            axis = right.subplots()
        else:
            figure = Figure(figsize=(6.0, 3.7), layout="constrained")
            axis = figure.subplots()
        _draw_curve(axis, run, recorded or {})
        steps, score = (curve[name][-1] if name in curve else np.nan for name in ("step", "score"))
        figure.suptitle(f"{config.task}, {config.bonus}, {steps:,.0f} steps: score {score:.1f}", fontsize=11)
        return save(figure, Path(path) if path is not None else run.folder / "plot.png")


def shown_moments(steps: Array, count: int = MOMENTS) -> list[int]:
    """Which of them are shown: the first, the last, and some between, more of them early, when most changes.

    >>> shown_moments(np.arange(20))
    [0, 2, 6, 19]
    """
    return [int(index) for index in np.unique(np.geomspace(1, len(steps), count).round().astype(int) - 1)]


def _draw_moments(figure: FigureBase, moments: dict[str, Array], arena: Map) -> None:
    """Visits since the moment before, and the bonus, at some moments; each row on one scale."""
    chosen, rated = shown_moments(moments["steps"]), bool(np.isfinite(moments["bonus"]).any())
    visits = _log(moments["visits"])
    rows = [("visits (log10)", visits, "viridis")]
    if rated:
        rows.append(("bonus (log10)", np.array([_within(arena, _log(values)) for values in moments["bonus"]]), "magma"))
    axes = figure.subplots(len(rows), len(chosen), squeeze=False)
    for own, (name, values, colours) in zip(axes, rows, strict=True):
        known = values[chosen][np.isfinite(values[chosen])]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        for axis, index in zip(own, chosen, strict=True):
            image = axis.imshow(values[index], origin="lower", extent=extent_of(arena), cmap=colours, vmin=low, vmax=high)
            mark(axis, arena, linewidth=2.5, solid_capstyle="round")
            plain(axis, f"after {moments['steps'][index]:,} steps" if name == rows[0][0] else "")
        own[0].set_ylabel(name)
        figure.colorbar(image, ax=list(own), shrink=0.8, pad=0.01).outline.set_visible(False)


def _log(values: Array) -> Array:
    """The logarithm of what is above 0."""
    return np.where(values > 0, np.log10(np.where(values > 0, values, 1.0)), np.nan)


def _draw_way(figure: FigureBase, moments: dict[str, Array], arena: Map) -> None:
    """The same of a map of one coordinate, all moments one above the other."""
    left, right, *_ = extent_of(arena)
    extent = (left, right, 0.0, float(moments["steps"][-1]) / 1e3)
    visits = _log(moments["visits"])
    rows = [("visits (log10)", visits, "viridis")]
    if np.isfinite(moments["bonus"]).any():
        rows.append(("mean bonus paid (log10)", _log(moments["bonus"]), "magma"))
    axes = figure.subplots(1, len(rows), squeeze=False)[0]
    for axis, (name, values, colours) in zip(axes, rows, strict=True):
        image = axis.imshow(values, origin="lower", extent=extent, cmap=colours, aspect="auto", interpolation="nearest")
        figure.colorbar(image, ax=axis, shrink=0.8, pad=0.01).outline.set_visible(False)
        for x in arena.goal or ():
            axis.axvline(x, color=MUTED, linestyle="--", linewidth=1)
        axis.set(xlabel=arena.axes[0], ylabel="thousand environment steps")
        axis.set_title(name, fontsize=9)


def save(figure: Figure, target: Path) -> Path:
    try:
        figure.savefig(target, dpi=150)
    except (OSError, ValueError) as error:
        raise UsageError(f"The picture {target} cannot be written ({error}).") from None
    return target


def density_figure(
    folder: str | Path, path: str | Path, model: str = "kernel-exemplar", smoothings: Sequence[float] = (0.03, 0.15, 0.5)
) -> Path:
    """The paper's figure 2: (a) the density that a run's exemplar model has of its task, (b) the visits themselves, and
    (c) a toy data set with more and more smoothing, in standard deviations of the data, estimated by `model`."""
    run = Run(folder)
    arena, loaded, config = task_map(run.config.task), run.load(), run.config
    if arena is None or loaded.policy.observation_space.shape != (len(arena.axes),):
        raise UsageError(f"The task {config.task!r} has no map to draw densities on: use a run of the maze.")
    if not _whole(run):
        raise UsageError(f"The run {folder} has a density of some entries only: train one without bonus.entries.")
    bonus = _mapped(run, loaded, arena)
    if bonus is None:
        raise UsageError(f"The run {folder} has no density yet: its bonus is {config.bonus!r}, {loaded.steps:,} steps in.")
    with matplotlib.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK}):
        figure = Figure(figsize=(12.5, 3.9), layout="constrained")
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[2.1, 1])[0]
        shown = {
            f"a) {config.bonus}": _within(arena, density_map(bonus, GRID)),
            f"b) empirical, {len(bonus.replay):,} visits": visit_map(bonus, GRID),
        }
        top = np.nanmax([np.nanmax(values) for values in shown.values()])
        for axis, (title, values) in zip(left.subplots(1, 2), shown.items(), strict=True):
            _draw_map(left, axis, title, values, arena, "viridis", vmin=top - NATS, vmax=top)
        left.suptitle("log probability of a place, and of a cell", fontsize=9)
        points = toy(TOY_POINTS, np.random.default_rng(0))
        middle = np.linspace(-TOY_REACH, TOY_REACH, 2 * GRID)
        grid = np.stack(np.meshgrid(middle, middle), -1).reshape(-1, 2)
        axes = right.subplots(2, 2).flat
        axes[0].plot(*points[:3_000].T, ".", markersize=1, color=ACCENT)
        axes[0].set(xlim=(-TOY_REACH, TOY_REACH), ylim=(-TOY_REACH, TOY_REACH), aspect="equal")
        plain(axes[0], "data")
        for axis, smoothing in zip(axes[1:], smoothings, strict=True):
            density = ExemplarDensity(model, smoothing=smoothing, random_state=0).fit(points)
            axis.imshow(np.exp(density.score_samples(grid)).reshape(len(middle), -1), origin="lower", cmap="viridis")
            plain(axis, f"smoothing {smoothing}")
        right.suptitle(f"c) {model}, more and more smoothing", fontsize=9)
        return save(figure, Path(path))


def _mapped(run: Run, loaded: Loaded, arena: Map | None) -> DensityBonus | None:
    """The run's bonus, if it has a density over the task's whole map: of all that is observed, and of nothing else."""
    bonus = loaded.bonus
    whole = arena is not None and loaded.policy.observation_space.shape == (len(arena.axes),) and _whole(run)
    return bonus if whole and isinstance(bonus, DensityBonus) and bonus.ready else None


def _whole(run: Run) -> bool:
    """Whether the bonus sees the whole position."""
    return getattr(run.config.bonus_settings, "entries", None) is None


def _within(arena: Map, values: Array) -> Array:
    """Values [cells, cells] where an agent can be, NaN elsewhere."""
    return values if arena.reachable is None else np.where(arena.reachable(len(values)), values, np.nan)


def toy(count: int, random: np.random.Generator) -> Array:
    """Points on a spiral of three arms, [count, 2]."""
    along = np.sqrt(random.random(count))
    angle = 2.5 * along + 2 * np.pi / 3 * random.integers(3, size=count)
    points: Array = 3 * along[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) + random.normal(0, 0.1, (count, 2))
    return points


def visit_map(bonus: DensityBonus, cells: int) -> Array:
    """The logarithm of the share of remembered states in each cell of the space, [cells, cells] with y first."""
    places = bonus.replay.rows()[:, :2].numpy()
    visits, _, _ = np.histogram2d(places[:, 0], places[:, 1], bins=cells, range=[[-1, 1], [-1, 1]])
    return np.where(visits.T > 0, np.log(np.maximum(visits.T, 1.0) / len(places)), np.nan)


def _draw_map(figure: FigureBase, axis: Axes, title: str, values: Array, arena: Map, colours: str, **limits: Any) -> None:
    """Values [cells, cells] over the arena, with its walls, start and goal."""
    image = axis.imshow(values, origin="lower", extent=arena.extent, cmap=colours, **limits)
    bar = figure.colorbar(image, ax=axis, shrink=0.75, pad=0.02)
    bar.outline.set_visible(False)
    mark(axis, arena, linewidth=3, solid_capstyle="round")
    plain(axis, title)


def mark(axis: Axes, arena: Map, **lines: Any) -> None:
    """A map's walls, start and goal."""
    for begin, end in arena.walls:
        axis.plot(*np.transpose([begin, end]), color=INK, **lines)
    for place, name in ((arena.start, "S"), (arena.goal, "G")):
        if place is not None:
            axis.plot(*place, "o", markersize=11, color="white", markeredgecolor=INK)
            axis.text(place[0], place[1], name, ha="center", va="center", fontsize=7, weight="bold")


def plain(axis: Axes, title: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def _draw_curve(axis: Axes, run: Run, recorded: dict[str, float]) -> None:
    history, config = run.history(), run.config
    known = np.isfinite(history["score"]) if "score" in history else np.zeros(0, bool)
    steps = history["step"][known] / 1e3 if known.any() else np.zeros(0)
    scores = history["score"][known] if known.any() else np.zeros(0)
    axis.plot(steps, scores, color=ACCENT, linewidth=1.8, label=f"this run ({config.bonus})")
    for name, score in recorded.items():
        label = "plain " + config.algo.upper() if name == "none" else name
        axis.axhline(score, color=MUTED, linewidth=1, linestyle="--")
        axis.text(steps[0] if len(steps) else 0, score, f" {label}, recorded {score:.1f}", va="bottom", fontsize=8, color=MUTED)
    axis.set(xlabel="thousand environment steps", ylabel="return of an episode, last 20")
    axis.set_title("learning curve", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="best")
