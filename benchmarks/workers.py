"""What Ray workers give and cost on one machine: a training's speed with 1 and 2 of them against none, by turns.

    python benchmarks/workers.py        # some minutes on 2 cores; writes results/workers/workers.json

All trainings of a task are in memory at once and take turns, an iteration each. A ratio is the median over the turns. By the
clock, what else the machine does counts, and more for more processes. By processor time it does not: an iteration takes the
training's own and that of the busiest worker, which is the clock's where each has a core of its own. (The games of Doom are
processes of their own, whose time is not known.) The default bonus; the presets' environments, networks and batches; MuJoCo in
one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import ray

from ex2.training.config import configure
from ex2.training.loop import Trainer

TASKS = ("maze", "gather", "Humanoid-v5", "doom")
COUNTS = (0, 1, 2)


def size(values: Any) -> int:
    """Bytes of all arrays in nested values."""
    if isinstance(values, np.ndarray):
        return values.nbytes
    parts = values.values() if isinstance(values, dict) else values if isinstance(values, list | tuple) else ()
    return sum(size(part) for part in parts)


class Timed:
    """A trainer whose collecting is timed, and what goes to and fro is counted."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.collect, self.collecting = trainer, trainer.collector.collect, 0.0
        self.rows: list[tuple[float, float, float]] = []  # by the clock; processor time, of which collecting
        trainer.collector.collect = self.timed  # type: ignore[method-assign]

    def timed(self, steps: int) -> Any:
        started = time.process_time()
        rollout = self.collect(steps)
        self.collecting = time.process_time() - started
        return rollout

    def turn(self) -> None:
        used, own, started = self.used(), time.process_time(), time.perf_counter()
        self.trainer.iterate()
        whole, own = time.perf_counter() - started, time.process_time() - own
        busiest = max((after - before for after, before in zip(self.used(), used, strict=True)), default=0.0)
        self.rows.append((whole, own + busiest, self.collecting))

    def used(self) -> list[float]:
        """Processor time of each worker."""
        remotes = getattr(self.trainer.collector, "remotes", [])
        return ray.get([remote.worker.__ray_call__.remote(lambda worker: time.process_time()) for remote in remotes])

    def moved(self) -> dict[str, int]:
        """Bytes of an iteration: the actor's weights, which go to each worker, the noise, and the parts that come back."""
        collector, policy = self.trainer.collector, self.trainer.policy
        weights = {name: value.numpy() for name, value in policy.actor.state_dict().items()}
        steps = self.trainer.config.rollout_steps
        noise = policy.actions.noise(steps, collector.count, self.trainer.generator).numpy()
        sent = [(weights, noise[:, remote.where]) for remote in collector.remotes]
        asked = [remote.worker.take.remote(*one) for remote, one in zip(collector.remotes, sent, strict=True)]
        parts = sum(size(part) for part, _, _ in ray.get(asked))
        return {"weights": size(weights), "noise": size(noise), "parts": parts}


def measured(task: str, turns: int) -> dict[str, Any]:
    threads = {"task.threads": 1} if task in ("maze", "gather") else {}
    configs = [configure(task, workers=count, threads=1, overrides=threads) for count in COUNTS]
    with ExitStack() as stack:
        trainers = [Timed(stack.enter_context(closing(Trainer(config)))) for config in configs]
        for turn in range(turns + 2):
            for timed in trainers[turn % 3 :] + trainers[: turn % 3]:
                timed.turn()
        moved = trainers[-1].moved()
    seconds = np.array([timed.rows[2:] for timed in trainers])  # [0, 1 and 2 workers, turns, three of them]
    by_clock, by_processor = (np.median(seconds[0, :, i] / seconds[:, :, i], axis=1) for i in (0, 1))
    none, one = np.median(seconds[:2], axis=1)
    config = configs[0]
    row = {"task": task, "num_envs": config.num_envs, "rollout_steps": config.rollout_steps, "turns": turns}
    row |= {"one": float(by_clock[1]), "two": float(by_clock[2])}
    row |= {"one_by_processor": float(by_processor[1]), "two_by_processor": float(by_processor[2])}
    row |= {"collecting": float(none[2]), "rest": float(none[1] - none[2]), "more": float(one[1] - none[1])}
    return row | moved | {"load": os.getloadavg()[0], "seconds": seconds.round(4).tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8, help="iterations of each training, behind two to warm up")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--out", type=Path, default=Path("results/workers"))
    options = parser.parse_args()
    ray.init("local", num_cpus=sum(COUNTS), include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    rows = []
    for task in options.tasks:
        rows.append(measured(task, options.turns))
        print({name: value for name, value in rows[-1].items() if name != "seconds"}, flush=True)
        (options.out / "workers.json").write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
