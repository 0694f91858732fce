"""Does a bonus on Doom's frames know places? No agent is trained: a player wanders, and rooms are kept back and then let in.

    python benchmarks/places.py                  # about 20 minutes on one core, a third of it amortized
    python benchmarks/places.py rnd simhash      # prints the figures of some bonuses

84,000 frames of 20 games played by sticky random actions come in batches of 4,000, every bonus at its defaults. Frames
of a region are left out of the first 16 batches; the other 5 have them. Of the first batch that has them, and of the last:

- new: how well its scores tell the region's frames from the others, as the area under the ROC curve (0.5 is chance).
- rare: the rank correlation of its scores with how rarely the place (a cell of 32 units) was visited, this batch included, in
  the frames that were let in.

`vime` and `icm` rate transitions, not places, and are left out. With all bonuses, writes results/places/places.csv.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from ex2 import Batch, make_bonus, make_vector_env
from ex2.tasks import task_map
from ex2.training.config import configure

OUT = Path("results") / "places" / "places.csv"
GAMES, ROLLOUT, BATCHES, WITHOUT = 20, 200, 21, 16
STICKY, ACTIONS = 0.65, (0.6, 0.18, 0.18, 0.04)  # how often an action is repeated; of others: forward, right, left, none
CELL = 32  # map units
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "kernel-exemplar": ("kernel-exemplar", {}),
    "kernel-exemplar-neighbours": ("kernel-exemplar", {"bonus.projection": "neighbours"}),
    **{name: (name, {}) for name in ("k-exemplar", "rnd", "simhash", "kde", "amortized")},
}


def wander() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Batches of frames [T, N, 32, 32, 3], where the player was [T, N, 2], and whether the two belong together [T, N]."""
    random, env, rooms = np.random.default_rng(0), make_vector_env("doom", GAMES), task_map("doom")
    assert rooms is not None
    env.reset(seed=1)
    action = random.choice(4, GAMES, p=ACTIONS)
    batches = []
    for _ in range(BATCHES):
        steps = []
        for _ in range(ROLLOUT):
            action = np.where(random.random(GAMES) < STICKY, action, random.choice(4, GAMES, p=ACTIONS))
            frames, _, terminated, truncated, infos = env.step(action)
            # Where an episode ended, the frame is the next one's first, and the place is where it ended.
            steps.append((frames.copy(), rooms.places(frames, infos), ~(terminated | truncated)))
        frames, places, valid = (np.stack(part) for part in zip(*steps, strict=True))
        batches.append((frames, places, valid))
    env.close()
    return batches


def regions(places: np.ndarray) -> dict[str, np.ndarray]:
    x, y = places[..., 0], places[..., 1]
    return {"east": x >= 768, "south": (y < -256) & (x < 768), "north-west": (x < 577) & (y > -64)}


def measure(variant: str, region: str, batches: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> list[dict[str, Any]]:
    """The figures of the first batch with the region's frames, and of the last."""
    name, settings = VARIANTS[variant]
    frame = spaces.Box(0, 255, batches[0][0].shape[2:], np.uint8)
    bonus = make_bonus(name, frame, spaces.Discrete(4), configure("doom", name, overrides=settings).bonus_settings, seed=0)
    visits: Counter[tuple[int, ...]] = Counter()
    rows = []
    for number, (frames, places, valid) in enumerate(batches):
        inside = regions(places)[region]
        mask = valid & (number >= WITHOUT or ~inside)
        scores, _ = bonus.observe(Batch.of(frames, np.zeros(mask.shape, np.int64), frames, mask=mask))
        cells = [tuple(cell) for cell in np.floor(places[mask] / CELL).astype(int)]
        visits.update(cells)
        if number in (WITHOUT, BATCHES - 1):
            new = roc_auc_score(inside[mask], scores.numpy()[mask])
            rare = spearmanr(scores.numpy()[mask], [-visits[cell] for cell in cells]).statistic
            figures = {"new": round(float(new), 3), "rare": round(float(rare), 3)}
            rows.append({"bonus": variant, "region": region, "batch": number, **figures})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bonuses", nargs="*", help=f"some of {', '.join(VARIANTS)} (default: all)")
    chosen = parser.parse_args().bonuses or list(VARIANTS)
    if unheard := set(chosen) - set(VARIANTS):
        parser.error(f"There is no {', '.join(sorted(unheard))}: use some of {', '.join(VARIANTS)}.")
    if not OUT.parent.is_dir():
        parser.error(f"There is no folder {OUT.parent} here: start this in the repository's root.")
    torch.set_num_threads(1)
    batches = wander()
    rows = []
    for variant in chosen:
        for region in regions(batches[0][1]):
            rows += measure(variant, region, batches)
            print(*rows[-2:], sep="\n", flush=True)
    if set(chosen) == set(VARIANTS):
        with OUT.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
