"""What a run finds novel: the frames or states with the lowest and highest bonus (the paper's Venture figure), and where."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ex2.arrays import Array
from ex2.batch import Batch
from ex2.bonuses.none import NoBonus
from ex2.errors import UsageError
from ex2.plots import INK, MUTED, mark, plain, save
from ex2.tasks import find_task, task_map
from ex2.tasks.map import Map
from ex2.training.environments import environments
from ex2.training.run import Loaded, Run

SHOWN = 5  # frames of each end
PLAYERS = 8  # episodes that are looked at
MOST_STEPS = 500  # of each
APART = 20  # steps between two frames of one episode that are shown
NUMBERS = 8  # of an observation that is no picture
PATHS = 3  # episodes drawn as paths


@dataclass(frozen=True)
class Watched:
    """T steps of N episodes of an agent: what it saw, how that was rated, and where it was if the task has a map."""

    observations: Array  # [T, N, ...]
    bonuses: Array  # [T, N]
    places: Array | None  # [T, N, 1 or 2]
    states: Array | None  # [T, N, S], of MuJoCo tasks
    ends: Array  # [T, N]


def novelty_figure(folder: str | Path, path: str | Path | None = None, seed: int = 0) -> Path:
    """Plays episodes with a run's agent, rates what it sees, and draws it; by default novelty.png in the run's folder."""
    if seed < 0:
        raise UsageError(f"seed={seed} must be at least 0.")
    run = Run(folder)
    loaded, config = run.load(), run.config
    if isinstance(loaded.bonus, NoBonus):
        raise UsageError(f"The run {folder} has no bonus: train one with --bonus kernel-exemplar.")
    if not loaded.bonus.ready:
        raise UsageError(f"The run {folder} has no bonus yet: it has seen too few states, {loaded.steps:,} steps in.")
    env = environments(config, PLAYERS)
    arena = task_map(config.task)
    with contextlib.closing(env):
        watched = watch(loaded, env, seed, min(find_task(config.task).episode_steps, MOST_STEPS), arena)
        shown = [[(at, picture_of(env, watched, at)) for at in some] for some in extremes(watched)]
    with matplotlib.rc_context({"font.size": 9, "axes.edgecolor": MUTED, "text.color": INK, "axes.labelcolor": INK}):
        figure = Figure(figsize=(8.5 + (5.5 if arena else 0.0), 4.2), layout="constrained")
        parts = figure.subfigures(1, 2, squeeze=False, width_ratios=[8.5, 5.5])[0] if arena else [figure]
        _draw_extremes(parts[0], watched, shown)
        if arena:
            _draw_arena(parts[1].subplots(), watched, arena)
        figure.suptitle(f"{config.task}, {config.bonus}, {loaded.steps:,} steps", fontsize=11)
        return save(figure, Path(path) if path is not None else run.folder / "novelty.png")


def watch(loaded: Loaded, env: VectorEnv[Any, Any, Any], seed: int, steps: int, arena: Map | None = None) -> Watched:
    """An agent's episodes, rated by its bonus as it is: nothing is learned from them."""
    generator = torch.Generator().manual_seed(seed)
    observation, infos = env.reset(seed=seed)
    seen: list[Array] = []
    reached: list[Array] = []
    actions: list[Array] = []
    places: list[Array] = []
    states: list[Array] = []
    ends: list[Array] = []
    for _ in range(steps):
        seen.append(observation)
        if arena is not None:
            place = np.array(arena.places(observation, infos), np.float64)
            if ends:
                place[ends[-1]] = np.nan  # what the game said is of the episode before
            places.append(place)
        if getattr(env.unwrapped, "task", None) is not None:
            states.append(env.unwrapped.get_state()["states"])
        action = loaded.policy.act(observation, generator)
        actions.append(action)
        observation, _, terminated, truncated, infos = env.step(action)
        ends.append(terminated | truncated)
        after = observation.copy()
        for index in np.flatnonzero(ends[-1]):
            after[index] = infos["final_obs"][index]
        reached.append(after)
    observations = np.stack(seen)

    def rated(frames: Array) -> Array:
        """As the bonus takes them: of a stack, the last frame."""
        one = loaded.bonus.inputs.observation_space.shape
        return frames[:, :, -1:] if frames.shape[2:] != one else frames

    batch = Batch.of(rated(observations), np.stack(actions), rated(np.stack(reached)), truncated=np.stack(ends))
    return Watched(
        observations,
        loaded.bonus.score(batch).numpy(),
        np.stack(places) if places else None,
        np.stack(states) if states else None,
        np.stack(ends),
    )


def extremes(watched: Watched, count: int = SHOWN) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(step, episode) of the lowest and of the highest bonuses, no two of them near each other in one episode."""
    order = np.argsort(watched.bonuses, axis=None)

    def apart(places: Array) -> list[tuple[int, int]]:
        chosen: list[tuple[int, int]] = []
        for step, player in zip(*np.unravel_index(places, watched.bonuses.shape), strict=True):
            if all(player != other or abs(step - before) >= APART for before, other in chosen):
                chosen.append((int(step), int(player)))
            if len(chosen) == count:
                break
        return chosen

    return apart(order), apart(order[::-1])


def picture_of(env: VectorEnv[Any, Any, Any], watched: Watched, at: tuple[int, int]) -> Array | None:
    """What there is to see: an observed picture, or the state as the task draws it; None for numbers, or without OpenGL."""
    if watched.states is None:
        seen = watched.observations[at]
        if seen.ndim != 3:
            return None
        first = seen.shape[0] < seen.shape[2]  # a stack of frames, or channels
        shown: Array = seen if not first else seen.transpose(1, 2, 0) if len(seen) == 3 else seen[-1]
        return shown
    try:
        drawn: Array = env.unwrapped.task.draw(watched.states[at])
        return drawn
    except UsageError:
        return None


def _draw_extremes(figure: Any, watched: Watched, shown: list[list[tuple[tuple[int, int], Array | None]]]) -> None:
    axes = figure.subplots(2, SHOWN, squeeze=False)
    for row, pictures, name in zip(axes, shown, ("lowest", "highest"), strict=True):
        for axis in row:
            plain(axis, "")
        for axis, (at, picture) in zip(row, pictures, strict=False):
            if picture is not None:
                axis.imshow(picture, cmap="gray", vmin=0, vmax=255)
            else:
                numbers = np.array2string(np.asarray(watched.observations[at]).ravel()[:NUMBERS], precision=2, separator="\n")
                axis.text(0.5, 0.5, numbers.strip("[]"), ha="center", va="center", fontsize=8, transform=axis.transAxes)
            plain(axis, f"{watched.bonuses[at]:.2f}\nstep {at[0]} of player {at[1]}")
        row[0].set_ylabel(f"{name} bonus")


def _draw_arena(axis: Axes, watched: Watched, arena: Map) -> None:
    """The bonus over the task's map with a few paths, or over its one coordinate."""
    assert watched.places is not None
    places, bonuses = watched.places.reshape(-1, watched.places.shape[-1]), watched.bonuses.reshape(-1)
    known = np.isfinite(places).all(axis=1)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel(arena.axes[0])
    if len(arena.axes) == 1:
        axis.plot(places[known, 0], bonuses[known], ".", markersize=2, color=MUTED, alpha=0.4)
        edges = np.quantile(places[known, 0], np.linspace(0, 1, 25))
        inside = np.clip(np.digitize(places[known, 0], edges[1:-1]), 0, 23)
        means = [bonuses[known][inside == index].mean() if (inside == index).any() else np.nan for index in range(24)]
        axis.plot((edges[:-1] + edges[1:]) / 2, means, color=INK, linewidth=1.8, label="mean")
        for x in arena.goal or ():
            axis.axvline(x, color=MUTED, linestyle="--", linewidth=1)
        axis.set(ylabel="bonus", title="bonus over the way")
        axis.legend(frameon=False, fontsize=8)
        return
    points = axis.scatter(places[known, 0], places[known, 1], c=bonuses[known], s=5, cmap="magma", linewidths=0)
    axis.figure.colorbar(points, ax=axis, shrink=0.75, pad=0.02, label="bonus")
    for player in range(min(PATHS, watched.places.shape[1])):
        end = int(np.argmax(watched.ends[:, player])) + 1 if watched.ends[:, player].any() else len(watched.places)
        axis.plot(*watched.places[:end, player].T, color="#2f6fdb", linewidth=0.7, alpha=0.7)
    mark(axis, arena, linewidth=1.5)
    axis.set(ylabel=arena.axes[1], title=f"bonus on the map, {PATHS} paths", aspect="equal")
