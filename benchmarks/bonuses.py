"""All bonuses side by side: two small worlds whose answers are known, the maze, and what 4,000 states cost.

    python benchmarks/bonuses.py            # all parts
    python benchmarks/bonuses.py chain tv   # some of them: these two take 6 minutes on 2 cores

- chain: 50 places in a row, seen as a number; one button leads on, the other back. The last place gives 1 and ends the
  episode, and so do 59 steps. Buttons pressed at random get there once in 10^11 episodes or so; an agent that goes on wherever
  nobody has been, in the first.
- tv: a corridor of 20 places with a television. A third button switches it to one of 10 channels at random and does nothing
  else: no model can foresee the channel, and none has to. 40 steps an episode.
- maze: the 2D maze at the paper's budget.
- cost: seconds to prepare, score and remember 4,000 states of three kinds, every bonus at its defaults.

All have the weight "auto". The histogram, which needs few dimensions with bounds, is in the maze only.

For each world, bonus and seed: after how many steps the end was reached first, if ever, and whether the agent keeps going there
(the mean return of its last 20 episodes). Writes results/bonuses/PART.csv, and for worlds and maze a picture of visits in time.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib
import numpy as np
import torch
from gymnasium import spaces
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ex2 import BONUSES, Batch, UsageError, make_bonus
from ex2.bonus import setting_names
from ex2.plots import save
from ex2.training.config import Config, configure
from ex2.training.loop import Trainer
from ex2.training.rollout import Rollout

RESULTS = Path("results") / "bonuses"
WORLD_STEPS, ENVS, ROLLOUT = 100_000, 32, 64
MAZE_SEEDS = (200, 201, 202)
SHOWN = (0.02, 0.1, 0.3, 1.0)  # of the maze's steps, that visits are drawn up to
SETTINGS: dict[str, dict[str, Any]] = {
    "kernel-exemplar": {"min_replay": 2_000},
    "amortized": {"min_replay": 2_000, "steps": 80, "first_steps": 1_000, "learning_rate": 1e-3, "kl_weight": 0.001},
    "k-exemplar": {"min_replay": 2_000, "steps": 40, "newton_steps": 5, "newton_negatives": 400},
    "kde": {"min_replay": 2_000},
}
"""Of the worlds, where the defaults are for longer runs; the same for both."""


class World(gymnasium.Env[np.ndarray, np.int64]):
    """Places in a row, from 0 to `length` - 1, and perhaps a television."""

    def __init__(self, length: int, channels: int = 0) -> None:
        self.length, self.channels = length, channels
        self.observation_space = spaces.Box(0.0, 1.0, (1 + channels,), np.float32)
        self.action_space = spaces.Discrete(3 if channels else 2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.channel = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if action == 2:
            self.channel = int(self.np_random.integers(self.channels))
        else:
            self.place = max(self.place + (1 if action == 1 else -1), 0)
        there = self.place == self.length - 1
        return self._observe(), float(there), there, False, {}

    def _observe(self) -> np.ndarray:
        seen = np.zeros(1 + self.channels, np.float32)
        seen[0] = self.place / (self.length - 1)
        if self.channels:
            seen[1 + self.channel] = 1.0
        return seen


WORLDS: dict[str, dict[str, Any]] = {"chain": {"length": 50}, "tv": {"length": 20, "channels": 10}}
LIMITS = {"chain": 59, "tv": 40}  # steps of an episode
for name, arguments in WORLDS.items():
    gymnasium.register(f"{name}-v0", World, kwargs=arguments, max_episode_steps=LIMITS[name], disable_env_checker=True)


def training(config: Config) -> Iterator[tuple[Trainer, Rollout]]:
    """A run in memory, iteration by iteration, and what was collected in each."""
    trainer = Trainer(config)
    collect, rollouts = trainer.collector.collect, list[Rollout]()

    def collect_and_keep(steps: int) -> Rollout:
        rollouts.append(collect(steps))
        return rollouts[-1]

    trainer.collector.collect = collect_and_keep  # type: ignore[method-assign]
    try:
        while trainer.steps < config.steps:
            trainer.iterate()
            yield trainer, rollouts.pop()
    finally:
        trainer.collector.close()


def world_config(name: str, bonus: str, seed: int) -> Config:
    """TRPO with networks of 32-32 units, the same for both worlds and all bonuses."""
    settings = {
        "num_envs": ENVS,
        "rollout_steps": ROLLOUT,
        "entropy": 0.001,
        "policy.hidden": (32, 32),
        "policy.standardise": "none",
        "algo.gae_lambda": 1.0,
        "algo.target_kl": 0.02,
        "algo.curvature_share": 0.5,
        "algo.cg_max_steps": 15,
    }
    settings |= {f"bonus.{key}": value for key, value in SETTINGS.get(bonus, {}).items()}
    steps = WORLD_STEPS // (ENVS * ROLLOUT) * ENVS * ROLLOUT
    return configure(f"{name}-v0", bonus, seed=seed, steps=steps, overrides=settings)


def explore(job: tuple[str, str, int]) -> dict[str, Any]:
    """One agent in one world: a row of the table, and its visits of each place, iteration by iteration."""
    name, bonus, seed = job
    warnings.simplefilter("ignore")
    length, visits, started = WORLDS[name]["length"], [], time.perf_counter()
    row: dict[str, Any] = {"world": name, "bonus": bonus, "seed": seed, "first": ""}
    try:
        for trainer, rollout in training(world_config(name, bonus, seed)):
            places = (rollout.batch.next_obs[..., 0].numpy() * (length - 1)).round().astype(int)  # [T, N]
            visits.append(np.bincount(places.flatten(), minlength=length))
            reached = np.flatnonzero((places == length - 1).any(1))
            if row["first"] == "" and len(reached):
                row["first"] = trainer.steps - rollout.rewards.size + ENVS * (int(reached[0]) + 1)
    except UsageError as refusal:
        return row | {"first": f"refused: {refusal}"}
    row["score"] = round(trainer.collector.score, 2)
    return row | {"seconds": round(time.perf_counter() - started, 1), "visits": np.array(visits)}


def worlds(name: str, seeds: list[int], bonuses: list[str], workers: int) -> None:
    with ProcessPoolExecutor(workers) as pool:
        rows = []
        for row in pool.map(explore, [(name, bonus, seed) for bonus in bonuses for seed in seeds]):
            rows.append(row)
            print({key: value for key, value in row.items() if key != "visits"}, flush=True)
    write(name, rows, ["world", "bonus", "seed", "first", "score", "seconds"])
    shown = {row["bonus"]: row["visits"] for row in reversed(rows) if "visits" in row}
    shown = {bonus: shown[bonus] for bonus in bonuses if bonus in shown}
    with matplotlib.rc_context({"font.size": 8}):
        figure = Figure(figsize=(12.5, 4.6), layout="constrained")
        axes = figure.subplots(2, -(-len(shown) // 2), sharex=True, sharey=True, squeeze=False)
        for axis in axes.flat[len(shown) :]:
            axis.axis("off")
        for axis, (bonus, visits) in zip(axes.flat, shown.items(), strict=False):
            share = np.log10(np.maximum(visits.T / visits.sum(1), 1e-4))
            reach = [0, WORLD_STEPS / 1000, -0.5, len(share) - 0.5]
            image = axis.imshow(share, origin="lower", aspect="auto", cmap="viridis", extent=reach, vmin=-4, vmax=0)
            axis.set_title(bonus, fontsize=9)
        for axis in axes.flat[max(len(shown) - axes.shape[1], 0) : len(shown)]:  # the lowest of each column
            axis.set_xlabel("thousand steps")
            axis.tick_params(labelbottom=True)
        for axis in axes[:, 0]:
            axis.set_ylabel("place")
            axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        figure.colorbar(image, ax=axes, shrink=0.7, label="share of an iteration's visits, power of 10")
        save(figure, RESULTS / f"{name}.png")


def run_maze(job: tuple[str, int]) -> dict[str, Any]:
    bonus, seed = job
    config = configure("maze", bonus, seed=seed)
    maps, visits = [], np.zeros((30, 30))
    due = list(SHOWN)
    for trainer, rollout in training(config):
        places = rollout.batch.obs.flatten(0, 1).numpy()
        visits += np.histogram2d(places[:, 1], places[:, 0], bins=30, range=[[-0.3, 0.3]] * 2)[0]
        if trainer.steps >= due[0] * config.steps:
            maps.append(visits.copy())
            due.pop(0)
    row = {"task": "maze", "bonus": bonus, "seed": seed, "score": round(trainer.collector.score, 2)}
    shared = {"seconds": round(trainer.seconds, 1), "bonus_share": round(trainer.bonus_seconds / trainer.seconds, 3)}
    return row | shared | {"maps": maps}


def maze(bonuses: list[str], workers: int) -> None:
    with ProcessPoolExecutor(workers) as pool:
        rows = []
        for row in pool.map(run_maze, [(bonus, seed) for seed in MAZE_SEEDS for bonus in bonuses]):
            rows.append(row)
            print({key: value for key, value in row.items() if key != "maps"}, flush=True)
    write("maze", rows, ["task", "bonus", "seed", "score", "seconds", "bonus_share"])
    first = {row["bonus"]: row["maps"] for row in reversed(rows)}
    with matplotlib.rc_context({"font.size": 8}):
        figure = Figure(figsize=(1.35 * len(bonuses) + 0.6, 5.8), layout="constrained")
        axes = figure.subplots(len(SHOWN), len(bonuses), squeeze=False)
        for column, bonus in zip(axes.T, bonuses, strict=True):
            column[0].set_title(bonus, fontsize=8)
            for axis, counts in zip(column, first[bonus], strict=True):
                shares = np.log10(np.maximum(counts, 0.5) / counts.sum())
                axis.imshow(np.where(counts > 0, shares, np.nan), origin="lower", cmap="viridis", vmin=-6, vmax=-1)
                axis.set(xticks=[], yticks=[])
        for axis, share in zip(axes[:, 0], SHOWN, strict=True):
            axis.set_ylabel(f"{share:.0%} of 800,000")
        figure.suptitle("visits so far, logarithm of the share of each cell")
        save(figure, RESULTS / "maze.png")


KINDS = {
    "20-dim vectors": spaces.Box(-np.inf, np.inf, (20,), np.float32),
    "32x32 RGB": spaces.Box(0, 255, (32, 32, 3), np.uint8),
    "4x84x84": spaces.Box(0, 255, (4, 84, 84), np.uint8),
}
BUTTONS = spaces.Discrete(4)


def frames(space: spaces.Box, random: np.random.Generator) -> Batch:
    """4,000 transitions: a walk for vectors; for images, dim noise with a bright block somewhere."""
    if space.dtype == np.uint8:
        seen = random.integers(0, 40, (201, 20, *space.shape), dtype=np.uint8)
        rows, columns = (0, 1) if space.shape[2] == 3 else (1, 2)
        size = space.shape[rows] // 4
        for picture in seen.reshape(-1, *space.shape):
            y, x = random.integers(0, 3 * size, 2)
            block: list[Any] = [slice(None)] * 3
            block[rows], block[columns] = slice(y, y + size), slice(x, x + size)
            picture[tuple(block)] = 220
    else:
        seen = random.standard_normal((201, 20, *space.shape)).cumsum(0).astype(np.float32)
    return Batch.of(seen[:-1], random.integers(4, size=(200, 20)), seen[1:])


def cost(bonuses: list[str], device: str, rounds: int = 3) -> None:
    """Each method at its defaults, with a FIFO of 20,000."""
    torch.set_num_threads(2)
    warnings.simplefilter("ignore")
    rows = []
    for kind, space in KINDS.items():
        random = np.random.default_rng(0)
        batches = [frames(space, random) for _ in range(rounds + 2)]
        for bonus in bonuses:
            settings = {"replay_capacity": 20_000} if "replay_capacity" in setting_names(bonus) else {}
            model = make_bonus(bonus, space, BUTTONS, device=device, **settings)
            times = []
            for batch in batches:
                started = time.perf_counter()
                model.observe(batch)
                times.append(time.perf_counter() - started)
            usual = round(float(np.median(times[2:])), 3)
            row = {"states": kind, "bonus": bonus, "seconds": usual, "longest": round(max(times), 2)}
            print(row, flush=True)
            rows.append(row)
    write("cost" if device == "cpu" else f"cost-{device}", rows, ["states", "bonus", "seconds", "longest"])


def write(name: str, rows: list[dict[str, Any]], columns: list[str]) -> None:
    with open(RESULTS / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("chain", "tv", "maze", "cost")
    parser.add_argument("parts", nargs="*", default=parts, metavar="PART", help=", ".join(parts))
    parser.add_argument("--bonuses", nargs="+", help="default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="of the worlds")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of the cost")
    options = parser.parse_args()
    bonuses = options.bonuses or list(BONUSES)
    for part in options.parts:
        if part in WORLDS:
            worlds(part, options.seeds, [bonus for bonus in bonuses if bonus != "histogram"], options.workers)
        elif part == "maze":
            maze(bonuses, options.workers)
        elif part == "cost":
            cost([bonus for bonus in bonuses if bonus not in ("none", "histogram")], options.device)
        else:
            raise SystemExit(f"There is no part {part!r}: use {', '.join(parts)}.")


if __name__ == "__main__":
    main()
