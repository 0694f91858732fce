"""Pictures of a run: what the agent has visited, what the bonus makes of it, and how the score went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from ex2.arrays import Array
from ex2.bonus import DensityBonus
from ex2.density import ExemplarDensity
from ex2.errors import UsageError
from ex2.tasks import task_map
from ex2.tasks.map import Map
from ex2.training.run import Loaded, Run

GRID = 48  # cells a side of the maps
NATS = 10.0  # nats below the highest that densities are drawn down to
TOY_POINTS, TOY_REACH = 20_000, 3.6
ACTIONS = 8  # remembered actions that a state-action density is averaged over
INK, MUTED, ACCENT = "#1f2430", "#8a8f9c", "#2f6fdb"


def run_figure(folder: str | Path, path: str | Path | None = None, recorded: dict[str, float] | None = None) -> Path:
    """Draws a run and saves the picture, by default as plot.png in its folder.

    A task whose map is all that its bonus sees, like the maze, shows estimated density, empirical visitation and bonus over it,
    beside the learning curve; any other task shows the curve. `recorded` holds scores of other methods, by bonus, to draw
    beside it.
    """
    run = Run(folder)
    arena, config, curve = task_map(run.config.task), run.config, run.history()
    loaded = run.load() if arena is not None else None
    bonus = _mapped(run, loaded, arena) if loaded is not None else None
    with matplotlib.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK, "axes.labelcolor": INK}):
        figure = Figure(figsize=(13.5, 3.7) if bonus else (6.0, 3.7), layout="constrained")
        axes = figure.subplots(1, 4 if bonus else 1, squeeze=False, width_ratios=[1, 1, 1, 1.25] if bonus else [1])[0]
        if bonus is not None and arena is not None:
            _draw_maps(figure, axes, bonus, arena)
        _draw_curve(axes[-1], run, recorded or {})
        steps, score = (curve[name][-1] if name in curve else np.nan for name in ("step", "score"))
        figure.suptitle(f"{config.task}, {config.bonus}, {steps:,.0f} steps: score {score:.1f}", fontsize=11)
        return save(figure, Path(path) if path is not None else run.folder / "plot.png")


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


def _draw_maps(figure: Figure, axes: Any, bonus: DensityBonus, arena: Map) -> None:
    log_density = density_map(bonus, GRID)
    paid = bonus.bonus_of(torch.as_tensor(log_density))
    shown = {
        "estimated log density": _within(arena, log_density),
        f"visits, last {len(bonus.replay):,} (log share)": visit_map(bonus, GRID),
        "bonus": _within(arena, paid.numpy()),
    }
    for axis, (title, values), colours in zip(axes, shown.items(), ("viridis", "viridis", "magma"), strict=False):
        _draw_map(figure, axis, title, values, arena, colours)


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


def density_map(bonus: DensityBonus, cells: int) -> Array:
    """log p over a two-dimensional observation space, [cells, cells] with y first; averaged over remembered actions."""
    middle = (torch.arange(cells) + 0.5) / cells * 2 - 1
    y, x = torch.meshgrid(middle, middle, indexing="ij")
    states = torch.stack([x.flatten(), y.flatten()], 1)
    if not bonus.inputs.action_width:
        return bonus.log_density(states).reshape(cells, cells).numpy()
    generator = torch.Generator().manual_seed(0)
    actions = bonus.replay.sample(ACTIONS, generator)[:, 2:]
    rows = torch.cat([states.repeat_interleave(ACTIONS, 0), actions.repeat(len(states), 1)], 1)
    return bonus.log_density(rows).reshape(cells, cells, ACTIONS).exp().mean(-1).log().numpy()


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
