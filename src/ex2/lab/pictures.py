"""What a page shows of runs themselves: maps over the training, the states of lowest and highest bonus, a film of the agent."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import matplotlib
import numpy as np
import torch
from PIL import Image

from ex2 import novelty
from ex2.arrays import Array
from ex2.bonuses.none import NoBonus
from ex2.errors import UsageError
from ex2.lab.page import Html, bytes_of, data_uri, element
from ex2.tasks import find_task, task_map
from ex2.training.environments import environments
from ex2.training.evaluation import play
from ex2.training.run import Run
from ex2.training.snapshots import PARTS, extent_of, read_snapshots

LAYERS = {
    "visits": ("visits", "viridis"),
    "density": ("density", "cividis"),
    "bonus": ("bonus", "magma"),
}
STOPS = 12  # of a map of colours, between which a page finds the others
FRAMES, SMALL = 72, 176  # of a film, and how many pixels wide one is at the most
COLUMNS = 8  # of frames in the one picture that holds a film
FILM_SECONDS = 6.0
FILM_STEPS = 5_000  # of an episode at the most: some do not end
SILENT = {"SDL_AUDIODRIVER": "dummy", "SDL_VIDEODRIVER": "dummy"}
"""What keeps pygame, which draws some tasks, from looking for a sound card and a screen, and from complaining of none."""
MOST_FRAMES = 300  # that are held while it is played


@dataclass(frozen=True)
class Shown:
    """A run that a page shows."""

    run: Run
    method: str
    colour: str
    score: float


def maps_of(task: str, shown: Sequence[Shown], problems: list[str]) -> dict[str, Any] | None:
    """The snapshots of one run of each method, on the scale that they share; None where there are none."""
    arena = task_map(task)
    if arena is None:
        return None
    found = []
    for one in shown:
        try:
            if (moments := read_snapshots(one.run.folder)) is not None:
                found.append((one, moments))
        except UsageError as error:
            problems.append(str(error))
    if not found:
        return None
    cells = found[0][1]["visits"].shape[1:]
    reachable = None if arena.reachable is None or len(cells) == 1 else arena.reachable(cells[0])
    logs = [{name: _log(name, moments[name], reachable) for name in PARTS} for _, moments in found]
    methods: list[dict[str, Any]] = [
        {"name": one.method, "colour": one.colour, "steps": moments["steps"].tolist(), "layers": []} for one, moments in found
    ]
    for name, (title, colours) in LAYERS.items():
        for method, own in zip(methods, logs, strict=True):
            values = own[name]
            known = values[np.isfinite(values)]
            if not len(known):
                continue
            shared = np.concatenate([other[name].ravel() for other in logs]) if name == "visits" else known
            low, high = float(np.nanmin(shared[np.isfinite(shared)])), float(np.nanmax(shared[np.isfinite(shared)]))
            layer = {"name": title, "colours": colours, "values": bytes_of(values, low, high, np.uint8)}
            method["layers"].append(layer | {"ends": [10**low, 10**high]})
    methods = [method for method in methods if method["layers"]]
    places = [(place, name) for place, name in ((arena.start, "S"), (arena.goal, "G")) if place is not None and len(cells) == 2]
    return {
        "kind": "maps",
        "methods": methods,
        "steps": sorted({step for method in methods for step in method["steps"]}),
        "cells": list(cells),
        "axes": arena.axes,
        "extent": extent_of(arena),
        "walls": np.asarray(arena.walls, float).reshape(-1, 2, 2).tolist() if len(cells) == 2 else [],
        "places": places,
        "goals": list(arena.goal or ()) if len(cells) == 1 else [],
        "colours": {name: _stops(name) for _, name in LAYERS.values()},
        "milliseconds": 350,
    }


def extremes_of(run: Run, seed: int = 0) -> Html | None:
    """The states of lowest and highest bonus in episodes of the agent, as pictures or numbers; None without a bonus."""
    loaded, config = run.load(), run.config
    if isinstance(loaded.bonus, NoBonus) or not loaded.bonus.ready:
        return None
    rows = []
    with contextlib.closing(environments(config, novelty.PLAYERS)) as env:
        steps = min(find_task(config.task).episode_steps, novelty.MOST_STEPS)
        watched = novelty.watch(loaded, env, seed, steps, task_map(config.task))
        for name, chosen in zip(("lowest", "highest"), novelty.extremes(watched), strict=True):
            items = []
            for at in chosen:
                text = f"bonus {watched.bonuses[at]:.3g}"
                picture = novelty.picture_of(env, watched, at)
                if picture is None:
                    numbers = np.array2string(watched.observations[at].ravel()[: novelty.NUMBERS], precision=2, separator=" ")
                    seen = element("pre", numbers.strip("[]"))
                else:
                    alt = f"What the agent sees at step {at[0]} of an episode, with one of the {name} bonuses, {text}"
                    seen = element("img", src=data_uri(_encoded(_small(picture)), "image/webp"), alt=alt, loading="lazy")
                items.append(element("li", seen, element("span", text)))
            rows += [element("h4", f"{name.capitalize()} bonus"), element("ul", *items, class_="thumbs")]
    return Html("".join(rows))


def film_of(run: Run, seed: int = 0) -> dict[str, Any] | None:
    """An episode of a run's agent, or its first FILM_STEPS, all frames in one picture; None where the task cannot be drawn."""
    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
    loaded, generator = run.load(), torch.Generator().manual_seed(seed)
    frames, steps, every = list[Image.Image](), 0, 1

    def keep(frame: Array) -> None:
        """Every frame, and when they are many, every second of those that are there, and so on."""
        nonlocal steps, every
        if steps % every == 0:
            frames.append(_small(frame))
        if len(frames) > MOST_FRAMES:
            del frames[1::2]
            every *= 2
        steps += 1

    try:
        with contextlib.closing(environments(run.config, 1, render_mode="rgb_array")) as env:
            (score,) = play(env, lambda seen: loaded.policy.act(seen, generator), 1, seed, keep=keep, most=FILM_STEPS)
    except (UsageError, gymnasium.error.Error):  # it has no pictures, or what draws them is not installed
        return None
    chosen = [frames[index] for index in np.unique(np.linspace(0, len(frames) - 1, FRAMES).round().astype(int))]
    width, height = chosen[0].size
    sheet = Image.new("RGB", (width * COLUMNS, height * -(-len(chosen) // COLUMNS)))
    for index, frame in enumerate(chosen):
        sheet.paste(frame, (index % COLUMNS * width, index // COLUMNS * height))
    what = "An episode" if steps < FILM_STEPS else f"The first {steps:,} steps of an episode"
    text = f"{what} of {run.config.task} by the agent of {run.folder.name}: {steps:,} steps, return {score:.3g}"
    return {
        "kind": "film",
        "image": data_uri(_encoded(sheet, lossless=False), "image/webp"),
        "frames": len(chosen),
        "columns": COLUMNS,
        "width": width,
        "height": height,
        "milliseconds": round(1000 * FILM_SECONDS / FRAMES),
        "text": text,
    }


def _log(name: str, values: Array, reachable: Array | None) -> Array:
    """The logarithms of a layer's values, NaN where nobody can be, or nothing is known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.asarray(values / np.log(10.0) if name == "density" else np.log10(values), float)
    logs = np.where(np.isfinite(logs), logs, np.nan)
    if name != "visits" and reachable is not None:
        logs = np.where(reachable, logs, np.nan)
    if name == "density" and np.isfinite(logs).any():
        logs = np.maximum(logs, np.nanmax(logs) - 5.0)  # five orders of magnitude are what an eye tells apart
    return logs


def _stops(name: str) -> list[list[int]]:
    colours = matplotlib.colormaps[name](np.linspace(0, 1, STOPS))[:, :3]
    return [[round(255 * part) for part in colour] for colour in colours.tolist()]


def _small(picture: Array) -> Image.Image:
    """As a page shows it: large pictures smaller, and small ones enlarged with their pixels sharp."""
    image = Image.fromarray(np.ascontiguousarray(picture).astype(np.uint8)).convert("RGB")
    if image.width > SMALL:
        return image.resize((SMALL, round(SMALL * image.height / image.width)), Image.Resampling.LANCZOS)
    times = SMALL // image.width
    return image.resize((times * image.width, times * image.height), Image.Resampling.NEAREST) if times > 1 else image


def _encoded(image: Image.Image, lossless: bool = True) -> bytes:
    held = io.BytesIO()
    image.save(held, "WEBP", lossless=lossless, quality=80, method=4)
    return held.getvalue()
