"""Which bonus tells new from known, in which space: every bonus at its defaults, in worlds whose visits are known.

    python benchmarks/novelty.py                            # some minutes on 2 cores; writes results/novelty
    python benchmarks/novelty.py --bonuses kernel-exemplar --seeds 1 2 3

Ten batches of 2,048 states, 32 steps of 64 environments, are observed. Reported is the rank correlation of the tenth batch's
scores with the true rarity of its states, minus the logarithm of how likely a visit is, and the seconds for all ten. A bonus
that refuses a world is left blank, one that gives all states the same score has 0.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from matplotlib.figure import Figure
from scipy.special import logsumexp
from scipy.stats import spearmanr

from ex2 import BONUSES, Batch, UsageError, make_bonus
from ex2.plots import INK, save

STEPS, ENVS, BATCHES = 32, 64, 10
COUNT = STEPS * ENVS
ACTIONS = spaces.Discrete(3)
RESULTS = Path(__file__).parent.parent / "results"
Draw = Callable[[np.random.Generator, int], tuple[Any, np.ndarray]]


@dataclass(frozen=True)
class World:
    """`draw(random, batch)` gives states, [2048, ...] in the order of time, and their rarities [2048]."""

    space: spaces.Space
    draw: Draw


@dataclass(frozen=True)
class Mixture:
    """Round Gaussians: where the latent numbers of a world are."""

    centres: np.ndarray
    weights: np.ndarray
    widths: np.ndarray

    @classmethod
    def of(cls, dimensions: int, random: np.random.Generator, components: int = 6) -> Mixture:
        centres = random.normal(size=(components, dimensions))
        return cls(centres, random.dirichlet(np.ones(components)), random.uniform(0.3, 0.8, components))

    def draw(self, random: np.random.Generator, count: int = COUNT) -> np.ndarray:
        chosen = random.choice(len(self.weights), count, p=self.weights)
        return self.centres[chosen] + self.widths[chosen, None] * random.normal(size=(count, self.centres.shape[1]))

    def rarity(self, points: np.ndarray) -> np.ndarray:
        apart = ((points[:, None] - self.centres) ** 2).sum(-1) / (2 * self.widths**2)
        return -logsumexp(np.log(self.weights) - apart - points.shape[1] * np.log(self.widths), axis=1)

    def walk(self, points: np.ndarray, random: np.random.Generator, step: float) -> np.ndarray:
        """A step of a random walk that stays where the mixture is (Metropolis)."""
        for _ in range(3):
            asked = points + step * random.normal(size=points.shape)
            taken = np.log(random.random(len(points))) < self.rarity(points) - self.rarity(asked)
            points = np.where(taken[:, None], asked, points)
        return points


def zipf(count: int, random: np.random.Generator) -> np.ndarray:
    """How often each of so many places is visited: one half as often as another, and so on."""
    probabilities = 1.0 / np.arange(1, count + 1)
    return random.permutation(probabilities / probabilities.sum())


def latents(
    dimensions: int, width: int, random: np.random.Generator, bounded: bool = True, reach: float = 1.0, units: bool = False
) -> World:
    """Latent numbers seen as many others, in no order of time."""
    mixture, mixing = Mixture.of(dimensions, random), random.normal(size=(dimensions, width)) / np.sqrt(dimensions)
    scale = np.exp(random.uniform(np.log(0.01), np.log(100.0), width)) if units else 1.0

    def draw(random: np.random.Generator, batch: int) -> tuple[Any, np.ndarray]:
        points = mixture.draw(random)
        seen = points @ mixing
        return (scale * (reach * np.tanh(seen / 3) if bounded else seen)).astype(np.float32), mixture.rarity(points)

    limit = 1.0 if bounded else np.inf
    return World(spaces.Box(-limit, limit, (width,)), draw)


def places(pictures: np.ndarray, space: spaces.Space, random: np.random.Generator) -> World:
    """A table of places, some visited far more often than others."""
    probabilities = zipf(len(pictures), random)

    def draw(random: np.random.Generator, batch: int) -> tuple[Any, np.ndarray]:
        index = random.choice(len(pictures), COUNT, p=probabilities)
        return pictures[index], -np.log(probabilities[index])

    return World(space, draw)


def views(count: int, random: np.random.Generator) -> np.ndarray:
    """Small pictures of codes, as MiniGrid has them: mostly floor, and a few things."""
    pictures = np.zeros((count, 7, 7, 3), np.uint8)
    pictures[..., 0] = 1
    for picture in pictures:
        for row, column in random.integers(0, 7, (4, 2)):
            picture[row, column] = random.integers([2, 0, 0], [11, 6, 3])
    return pictures


def sprites(corners: np.ndarray) -> np.ndarray:
    """A yellow square of 5 pixels on a grey picture of 32x32, at each corner [count, 2]."""
    pictures = np.full((len(corners), 32, 32, 3), 40, np.uint8)
    for picture, (row, column) in zip(pictures, corners.astype(int), strict=True):
        picture[row : row + 5, column : column + 5] = [240, 200, 30]
    return pictures


def walking(mixture: Mixture, look: Callable[[np.ndarray, np.random.Generator], Any], step: float) -> Draw:
    """64 walkers in the latent space, whose steps are looked at; with each batch they begin anew."""

    def draw(random: np.random.Generator, batch: int) -> tuple[Any, np.ndarray]:
        here, trail = mixture.draw(random, ENVS), []
        for _ in range(STEPS):
            here = mixture.walk(here, random, step)
            trail.append(here)
        points = np.concatenate(trail)
        return look(points, random), mixture.rarity(points)

    return draw


def noisy(dimensions: int, noise: int, random: np.random.Generator) -> World:
    """Slow numbers beside others that are drawn anew at every step."""

    def look(points: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return np.concatenate([np.tanh(points / 3), random.uniform(-1, 1, (len(points), noise))], 1).astype(np.float32)

    return World(spaces.Box(-1, 1, (dimensions + noise,)), walking(Mixture.of(dimensions, random), look, 0.3))


def television(random: np.random.Generator) -> World:
    """A sprite that walks, and a corner of the picture that flickers."""
    mixture = Mixture(np.array([[8.0, 8.0], [20.0, 18.0], [9.0, 22.0]]), np.array([0.5, 0.3, 0.2]), np.array([1.5, 2.2, 1.8]))

    def look(points: np.ndarray, random: np.random.Generator) -> np.ndarray:
        pictures = sprites(points.clip(0, 27))
        pictures[:, :8, 24:] = random.integers(0, 256, (len(points), 8, 8, 3))
        return pictures

    return World(spaces.Box(0, 255, (32, 32, 3), np.uint8), walking(mixture, look, 0.7))


def mixed(random: np.random.Generator) -> World:
    """A Dict of a place, the room it is in and a picture of a thing there. Rare: rare places in rare rooms with rare things."""
    mixture, rooms, things = Mixture.of(2, random), zipf(8, random), zipf(6, random)
    looks = random.integers(0, 256, (6, 12, 12, 1)).astype(np.uint8)

    def draw(random: np.random.Generator, batch: int) -> tuple[Any, np.ndarray]:
        points, room, thing = mixture.draw(random), random.choice(8, COUNT, p=rooms), random.choice(6, COUNT, p=things)
        rarity = mixture.rarity(points) - np.log(rooms[room]) - np.log(things[thing])
        return {"place": points.astype(np.float32), "room": room, "view": looks[thing]}, rarity

    box = spaces.Box(-np.inf, np.inf, (2,))
    view = spaces.Box(0, 255, (12, 12, 1), np.uint8)
    return World(spaces.Dict({"place": box, "room": spaces.Discrete(8), "view": view}), draw)


def moving(random: np.random.Generator) -> World:
    """Visits that move on from batch to batch, and in the end come back to all that was visited."""
    mixing, way = random.normal(size=(3, 15)), random.normal(size=3)
    centres = np.linspace(-2, 2, BATCHES - 1)[:, None] * way / np.linalg.norm(way)
    every = Mixture(centres, np.full(BATCHES - 1, 1 / (BATCHES - 1)), np.linspace(0.3, 0.7, BATCHES - 1))

    def draw(random: np.random.Generator, batch: int) -> tuple[Any, np.ndarray]:
        now = every if batch == BATCHES - 1 else Mixture(centres[[batch]], np.ones(1), every.widths[[batch]])
        points = now.draw(random)
        return (points @ mixing).astype(np.float32), every.rarity(points)

    return World(spaces.Box(-np.inf, np.inf, (15,)), draw)


BYTES = {"low": 0, "high": 255, "dtype": np.uint8}
WORLDS: dict[str, Callable[[np.random.Generator], World]] = {
    "3 latents as 12": lambda random: latents(3, 12, random),
    "3 as 40": lambda random: latents(3, 40, random),
    "3 as 120": lambda random: latents(3, 120, random),
    "3 as 1,000": lambda random: latents(3, 1_000, random),
    "2 as 50": lambda random: latents(2, 50, random),
    "a thousandth of the bounds": lambda random: latents(3, 20, random, reach=0.001),
    "no bounds": lambda random: latents(3, 40, random, bounded=False),
    "units from 0.01 to 100": lambda random: latents(3, 20, random, bounded=False, units=True),
    "10 noisy numbers": lambda random: noisy(3, 10, random),
    "50 noisy numbers": lambda random: noisy(3, 50, random),
    "moving visits": moving,
    "Discrete(100)": lambda random: places(np.arange(100), spaces.Discrete(100), random),
    "300 one-hot places": lambda random: places(np.eye(300, dtype=np.float32), spaces.Box(0, 1, (300,)), random),
    "500 views of 7x7": lambda random: places(views(500, random), spaces.Box(shape=(7, 7, 3), **BYTES), random),
    "a sprite at 200 places": lambda random: places(
        sprites(np.argwhere(np.ones((28, 28)))[random.permutation(784)[:200]]), spaces.Box(shape=(32, 32, 3), **BYTES), random
    ),
    "a sprite and a television": television,
    "Dict of place, room, view": mixed,
}


def measure(world: World, name: str, seed: int) -> tuple[float, float]:
    """The rank correlation, and the seconds."""
    random = np.random.default_rng(seed)
    bonus, seconds, found = make_bonus(name, world.space, ACTIONS, seed=seed), 0.0, 0.0

    def shaped(states: Any) -> Any:
        if isinstance(states, dict):
            return {key: shaped(value) for key, value in states.items()}
        return states.reshape(STEPS, ENVS, *states.shape[1:])

    for index in range(BATCHES):
        states, rarity = world.draw(random, index)
        actions = random.integers(3, size=(STEPS, ENVS))
        started = time.perf_counter()
        scores, _ = bonus.observe(Batch.of(shaped(states), actions, shaped(states)))
        seconds += time.perf_counter() - started
        if index == BATCHES - 1:
            flat = scores.flatten().numpy()
            found = 0.0 if np.ptp(flat) == 0 else float(spearmanr(flat, rarity).statistic)
    return found, seconds


def picture(rows: list[dict[str, Any]], path: Path) -> Path:
    """Worlds down, bonuses across, the mean correlation in each field."""
    names, worlds = ([*dict.fromkeys(row[key] for row in rows)] for key in ("bonus", "world"))
    values = np.full((len(worlds), len(names)), np.nan)
    for i, world in enumerate(worlds):
        for j, name in enumerate(names):
            found = [
                row["correlation"] for row in rows if (row["world"], row["bonus"]) == (world, name) and row["correlation"] != ""
            ]
            values[i, j] = np.mean(found) if found else np.nan
    figure = Figure(figsize=(2.6 + 0.95 * len(names), 1.2 + 0.33 * len(worlds)), layout="constrained")
    axis = figure.subplots()
    axis.imshow(values, cmap="RdYlGn", vmin=0.0, vmax=1.0, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        colour = "white" if value > 0.9 or value < 0.1 else INK
        axis.text(j, i, "refused" if np.isnan(value) else f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_yticks(range(len(worlds)), worlds, fontsize=8)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_title("Rank correlation of a bonus with how rarely a state is visited, all at their defaults", fontsize=9)
    return save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Which bonus tells new from known, in which space.")
    parser.add_argument("--bonuses", nargs="+", default=[name for name in BONUSES if name != "none"])
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[100])
    parser.add_argument("--out", type=Path, default=RESULTS / "novelty" / "novelty.csv")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    rows: list[dict[str, Any]] = []
    for world in options.worlds:
        for name in options.bonuses:
            for seed in options.seeds:
                try:
                    found, seconds = measure(WORLDS[world](np.random.default_rng(seed)), name, seed)
                    rows.append(
                        {
                            "world": world,
                            "bonus": name,
                            "seed": seed,
                            "correlation": round(found, 3),
                            "seconds": round(seconds, 2),
                        }
                    )
                except UsageError as refusal:
                    rows.append({"world": world, "bonus": name, "seed": seed, "correlation": "", "seconds": ""})
                    print(f"{world}, {name}: {refusal}")
                    continue
                print(f"{world:28} {name:16} seed {seed}: {found:6.3f} in {seconds:5.1f} s", flush=True)
    with open(options.out, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(picture(rows, options.out.with_suffix(".png")))


if __name__ == "__main__":
    main()
