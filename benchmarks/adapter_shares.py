"""What of a training's processor time is spent in the adapter for Stable-Baselines3 itself.

    python benchmarks/adapter_shares.py    # results/adapters/shares.csv

The same trainings as in benchmarks/adapters.py, timed from within: on a busy machine the ratio of two trainings says little,
and the share within one repeats. What the library does in the adapter's place (storing and drawing) is taken off, and so is
reading the clock. What an adapter costs others, such as memory that they had near, is not in it.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.buffers import ReplayBuffer

from adapters import SB3, sb3
from ex2.adapters.sb3 import BonusCallback
from ex2.adapters.sb3_replay import BonusReplayBuffer

PARTS = {  # methods, by what they are called here
    BonusCallback: {
        "_init_callback": "start",
        "_on_training_start": "start",
        "_on_step": "step",
        "_on_rollout_start": "rollout",
        "_relabel": "rollout",
        "_on_rollout_end": "rollout",
    },
    BonusReplayBuffer: {"add": "step", "sample": "sample"},
}
COLUMNS = ["what", "bonus", "share", "start", "step", "rollout", "sample"]
READS = 20_000
spent: dict[str, float] = {}


def timed(kind: Any, method: str, part: str, sign: int, reading: float) -> None:
    """Counts the time in a method for a part, or against it; each reading of the clock takes part in what it measures."""
    own = getattr(kind, method)

    def measured(*positional: Any, **named: Any) -> Any:
        started = time.thread_time()
        try:
            return own(*positional, **named)
        finally:
            took = time.thread_time() - started - reading
            spent[part] += took if sign > 0 else -took - 2 * reading
            spent["clock"] += 2 * reading

    setattr(kind, method, measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", default=list(SB3), choices=list(SB3))
    parser.add_argument("--bonuses", nargs="+", default=["none", "kernel-exemplar"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/adapters/shares.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.thread_time()
    for _ in range(READS):
        time.thread_time()
    reading = (time.thread_time() - started) / READS
    for method in ("add", "sample"):
        timed(ReplayBuffer, method, PARTS[BonusReplayBuffer][method], -1, reading)
    for kind, methods in PARTS.items():
        for method, part in methods.items():
            timed(kind, method, part, 1, reading)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for what in options.what:
            for bonus in options.bonuses:
                found = sorted((share(what, bonus) for _ in range(options.repeats + 1)), key=lambda row: row["share"])
                row = {name: round(value, 4) for name, value in found[options.repeats // 2].items()}
                writer.writerow({"what": what, "bonus": bonus} | row)
                file.flush()
                print(what, bonus, row, [round(one["share"], 4) for one in found], flush=True)


def share(what: str, bonus: str) -> dict[str, float]:
    """The adapter's time in one training over all else, and part by part."""
    spent.update(dict.fromkeys([*COLUMNS[3:], "clock"], 0.0))
    started = time.thread_time()
    sb3(what, bonus)
    total = time.thread_time() - started
    own = sum(spent[part] for part in COLUMNS[3:])
    rest = total - own - spent["clock"]
    return {"share": own / rest} | {part: spent[part] / rest for part in COLUMNS[3:]}


if __name__ == "__main__":
    main()
