"""How fast the tasks step: a batch against one Gymnasium environment, and training against the bare batch, pair by pair.

    python benchmarks/steps.py                              # writes results/steps, about ten minutes
    python benchmarks/steps.py --only trainings --root PATH # the second one for another checkout, too, in turns

A cell of the second table is a training's steps a second as a share of those of the bare batch under random actions, and the
number itself; the batch is this checkout's and runs on the CPU, wherever the training does.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd

import ex2
from ex2.training.config import configure

BATCHES = {"maze": (20, 1_024), "cheetah": (50, 1_024), "gather": (50, 1_024), "doom": (8, 20)}
ATARI = (8, 32)
SHORTER = {"freeway": {"num_envs": 32, "rollout_steps": 250, "algo.batch_size": 1_000}}
"""Settings for the training figure on a CPU, where the preset's iteration takes minutes."""
HERE = Path(__file__).resolve().parent.parent
TRAINING = "import json, sys, ex2; ex2.train(*json.loads(sys.argv[1]), **json.loads(sys.argv[2]))"


def single(env_id: str, seconds: float) -> float:
    """Steps per second of one Gymnasium environment under random actions."""
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(100)]
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        _, _, terminated, truncated, _ = env.step(actions[steps % 100])
        steps += 1
        if terminated or truncated:
            env.reset()
    rate = steps / (time.perf_counter() - started)
    env.close()
    return rate


def batched(name: str, num_envs: int, seconds: float) -> float:
    """Steps per second of a batch under random actions."""
    env = ex2.make_vector_env(name, num_envs)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(20)]
    calls, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        env.step(actions[calls % 20])
        calls += 1
    rate = calls * num_envs / (time.perf_counter() - started)
    env.close()
    return rate


def shorter(name: str, device: str) -> dict[str, Any]:
    """The settings that a training is measured with, beside its preset."""
    return dict(SHORTER.get(name, {})) if device == "cpu" else {}


def trained(root: Path, name: str, bonus: str, iterations: int, device: str) -> float:
    """Steps per second of a whole training by a checkout, without its first iterations: the median of the rest."""
    settings: dict[str, Any] = shorter(name, device)
    if bonus == "none":
        settings["policy.zero_critic"] = False  # else there would be no update to time where there is no reward
    steps = iterations * configure(name, bonus, overrides=settings).iteration_steps
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        given = {"steps": steps, "out": str(out), "overrides": settings, "device": device}
        command = [sys.executable, "-W", "ignore", "-c", TRAINING, json.dumps([name, bonus]), json.dumps(given)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(root / "src")})
        with open(out / "metrics.csv", newline="") as file:
            rates = [float(row["steps_per_second"]) for row in csv.DictReader(file)]
    return float(np.median(rates[-max(len(rates) // 2, 1) :]))


def environments(options: argparse.Namespace) -> None:
    """The first table."""
    rows = []
    for name in options.tasks:
        for num_envs in BATCHES.get(name, ATARI):
            pairs = [
                (batched(name, num_envs, options.seconds), single(ex2.TASKS[name].env_id, options.seconds))
                for _ in range(options.rounds)
            ]
            many, one = np.median(pairs, axis=0)
            ratio = round(float(np.median([a / b for a, b in pairs])), 1)
            row = {"task": name, "environments": num_envs, "steps_s": round(many), "one_steps_s": round(one), "ratio": ratio}
            rows.append(row)
            print(row, flush=True)
    pd.DataFrame(rows).to_csv(options.out / "environments.csv", index=False)


def trainings(options: argparse.Namespace) -> None:
    """The second table: this checkout is `now`, the other `before`. They and the batch take turns; a share is their median."""
    roots, rows = [*([options.root.resolve()] if options.root else []), HERE], []
    for name in options.tasks:
        num_envs = configure(name, overrides=shorter(name, options.device)).num_envs
        bare = np.zeros((options.turns, len(options.bonuses)))
        rates = np.zeros((len(roots), *bare.shape))
        for turn, column in np.ndindex(*bare.shape):
            bare[turn, column] = batched(name, num_envs, options.seconds)
            for line, root in enumerate(roots):
                rates[line, turn, column] = trained(root, name, options.bonuses[column], options.iterations, options.device)
        for column, line in np.ndindex(len(options.bonuses), len(roots)):
            own, beside = rates[line, :, column], bare[:, column]
            row = {"task": name, "bonus": options.bonuses[column], "checkout": "now" if roots[line] == HERE else "before"}
            row |= {"environments": num_envs, "bare_steps_s": round(np.median(bare))}
            row |= {"share": round(float(np.median(own / beside)), 2), "steps_s": round(np.median(own))}
            rows.append(row)
            print(row, flush=True)
    pd.DataFrame(rows).to_csv(options.out / "trainings.csv", index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("environments", "trainings"), help="one of the two tables")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement of environments")
    parser.add_argument("--rounds", type=int, default=3, help="single and batched alternate; the median ratio is reported")
    parser.add_argument("--iterations", type=int, default=8, help="of each training")
    parser.add_argument("--turns", type=int, default=1, help="of each training; the median share is reported")
    parser.add_argument("--tasks", nargs="+", default=["maze", "cheetah", "gather", "doom", "freeway"])
    parser.add_argument("--bonuses", nargs="+", default=["none", "kernel-exemplar", "amortized"], help="of the trainings")
    parser.add_argument("--device", default="cpu", help="of the trainings")
    parser.add_argument("--root", type=Path, help="another checkout, whose trainings are measured beside this one's")
    parser.add_argument("--out", type=Path, default=Path("results/steps"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.only != "trainings":
        environments(options)
    if options.only != "environments":
        trainings(options)


if __name__ == "__main__":
    main()
