"""Pictures of a run: what the agent has visited, what the bonus makes of it, and how the score went."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from ex2.bonus import DensityBonus
from ex2.density import ExemplarDensity
from ex2.errors import UsageError
from ex2.tasks import TASKS
from ex2.training.loop import Trainer, history, load

GRID = 48  # cells a side of the maps
NATS = 10.0  # nats below the highest that densities are drawn down to
TOY_POINTS, TOY_REACH = 20_000, 3.6
ACTIONS = 8  # remembered actions that a state-action density is averaged over
INK, MUTED, ACCENT = "#1f2430", "#8a8f9c", "#2f6fdb"


def run_figure(folder: str | Path, path: str | Path | None = None, recorded: dict[str, float] | None = None) -> Path:
    """Draws a run and saves the picture, by default as plot.png in its folder.

    A task with a map (`ARENA` in its module) shows estimated density, empirical visitation and bonus over it, beside the
    learning curve; any other task shows the curve. `recorded` holds scores of other methods, by bonus, to draw beside it.
    """
    folder = Path(folder)
    trainer = load(folder)
    trainer.env.close()
    arena = getattr(importlib.import_module(TASKS[trainer.config.task].module), "ARENA", None)
    maps = arena is not None and isinstance(trainer.bonus, DensityBonus) and trainer.bonus.ready and _whole(trainer)
    with matplotlib.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK, "axes.labelcolor": INK}):
        figure = Figure(figsize=(13.5, 3.7) if maps else (6.0, 3.7), layout="constrained")
        axes = figure.subplots(1, 4 if maps else 1, squeeze=False, width_ratios=[1, 1, 1, 1.25] if maps else [1])[0]
        if maps:
            _draw_maps(figure, axes, trainer, arena)
        _draw_curve(axes[-1], folder, trainer, recorded or {})
        config = trainer.config
        figure.suptitle(f"{config.task}, {config.bonus}, {trainer.steps:,} steps: score {trainer.score:.1f}", fontsize=11)
        return save(figure, Path(path) if path is not None else folder / "plot.png")


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
    trainer = load(folder)
    trainer.env.close()
    bonus = trainer.bonus
    arena = getattr(importlib.import_module(TASKS[trainer.config.task].module), "ARENA", None)
    if arena is None:
        raise UsageError(f"The task {trainer.config.task!r} has no map to draw densities on: use a run of the maze.")
    if not _whole(trainer):
        raise UsageError(f"The run {folder} has a density of some entries only: train one without bonus.entries.")
    if not isinstance(bonus, DensityBonus) or not bonus.ready:
        raise UsageError(
            f"The run {folder} has no density yet: its bonus is {trainer.config.bonus!r}, {trainer.steps:,} steps in."
        )
    with matplotlib.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK}):
        figure = Figure(figsize=(12.5, 3.9), layout="constrained")
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[2.1, 1])[0]
        shown = {
            f"a) {trainer.config.bonus}": np.where(arena.reachable(GRID), density_map(bonus, GRID), np.nan),
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


def _whole(trainer: Trainer) -> bool:
    """Whether the bonus sees the whole position."""
    return trainer.config.bonus_settings.get("entries") is None


def toy(count: int, random: np.random.Generator) -> np.ndarray:
    """Points on a spiral of three arms, [count, 2]."""
    along = np.sqrt(random.random(count))
    angle = 2.5 * along + 2 * np.pi / 3 * random.integers(3, size=count)
    return 3 * along[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) + random.normal(0, 0.1, (count, 2))


def visit_map(bonus: DensityBonus, cells: int) -> np.ndarray:
    """The logarithm of the share of remembered states in each cell of the space, [cells, cells] with y first."""
    places = bonus.replay.rows()[:, :2].numpy()
    visits, _, _ = np.histogram2d(places[:, 0], places[:, 1], bins=cells, range=[[-1, 1], [-1, 1]])
    return np.where(visits.T > 0, np.log(np.maximum(visits.T, 1.0) / len(places)), np.nan)


def _draw_maps(figure: Figure, axes: Any, trainer: Trainer, arena: Any) -> None:
    bonus: DensityBonus = trainer.bonus
    log_density = density_map(bonus, GRID)
    reachable = arena.reachable(GRID)
    shown = {
        "estimated log density": np.where(reachable, log_density, np.nan),
        f"visits, last {len(bonus.replay):,} (log share)": visit_map(bonus, GRID),
        "bonus": np.where(
            reachable,
            bonus.bonus_of(torch.as_tensor(log_density)),
            np.nan,
        ),
    }
    for axis, (title, values), colours in zip(axes, shown.items(), ("viridis", "viridis", "magma"), strict=False):
        _draw_map(figure, axis, title, values, arena, colours)


def _draw_map(figure: FigureBase, axis: Axes, title: str, values: np.ndarray, arena: Any, colours: str, **limits: Any) -> None:
    """Values [cells, cells] over the arena, with its walls, start and goal."""
    image = axis.imshow(values, origin="lower", extent=arena.extent, cmap=colours, **limits)
    bar = figure.colorbar(image, ax=axis, shrink=0.75, pad=0.02)
    bar.outline.set_visible(False)
    for begin, end in arena.walls:
        axis.plot(*np.transpose([begin, end]), color=INK, linewidth=3, solid_capstyle="round")
    for (x, y), name in ((arena.start, "S"), (arena.goal, "G")):
        axis.plot(x, y, "o", markersize=11, color="white", markeredgecolor=INK)
        axis.text(x, y, name, ha="center", va="center", fontsize=7, weight="bold")
    plain(axis, title)


def plain(axis: Axes, title: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def density_map(bonus: DensityBonus, cells: int) -> np.ndarray:
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


def _draw_curve(axis: Axes, folder: Path, trainer: Trainer, recorded: dict[str, float]) -> None:
    rows = [row for row in history(folder) if np.isfinite(row.get("score", np.nan))]
    steps = np.array([row["step"] for row in rows]) / 1e3
    axis.plot(steps, [row["score"] for row in rows], color=ACCENT, linewidth=1.8, label=f"this run ({trainer.config.bonus})")
    for name, score in recorded.items():
        label = "plain " + trainer.config.algo.upper() if name == "none" else name
        axis.axhline(score, color=MUTED, linewidth=1, linestyle="--")
        axis.text(steps[0] if len(steps) else 0, score, f" {label}, recorded {score:.1f}", va="bottom", fontsize=8, color=MUTED)
    axis.set(xlabel="thousand environment steps", ylabel="return of an episode, last 20")
    axis.set_title("learning curve", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, loc="best")
