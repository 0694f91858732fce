"""Does a run's resident memory stay flat? Trains for a while and prints how much memory it held after how many steps.

    python benchmarks/memory.py maze --seconds 300
    python benchmarks/memory.py freeway --seconds 300 --set bonus.replay_capacity=50000

A FIFO of states becomes resident as it is written, so memory grows until it is full: what is to be flat is the rest.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import ex2
from ex2.commands import parse

ROWS = 20


def resident() -> float:
    """Megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--bonus", default="kernel-exemplar")
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    chosen = parser.parse_args()
    begun, last = time.monotonic(), 0.0
    seen: list[tuple[int, float, int]] = []

    def listen(row: dict[str, float]) -> None:
        nonlocal last
        now = time.monotonic() - begun
        if now - last > chosen.seconds / 200:
            last = now
            seen.append((int(row["step"]), resident(), len(gc.get_objects())))
        if now > chosen.seconds:
            os.kill(os.getpid(), signal.SIGINT)

    settings: dict[str, Any] = {"steps": chosen.steps, "overrides": dict(parse(text) for text in chosen.set)}
    with tempfile.TemporaryDirectory() as folder:
        result = ex2.train(chosen.task, chosen.bonus, out=Path(folder) / "run", listener=listen, **settings)
    print(f"{chosen.task}, {chosen.bonus}, {' '.join(chosen.set)}: {result.steps:,} steps in {result.seconds:.0f} s")
    print(f"{'steps':>12}{'resident MB':>13}{'objects':>10}")
    for step, megabytes, objects in seen[:: max(1, len(seen) // ROWS)]:
        print(f"{step:12,}{megabytes:13.1f}{objects:10,}")
    for quarter in range(4):
        low, high = quarter * result.steps / 4, (quarter + 1) * result.steps / 4
        part = [megabytes for step, megabytes, _ in seen if low < step <= high]
        if part:
            mean = sum(part) / len(part)
            print(f"quarter {quarter + 1}: {mean:.1f} MB on average, {min(part):.1f} to {max(part):.1f}, {len(part)} looks")


if __name__ == "__main__":
    main()
