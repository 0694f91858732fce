"""How fast the tasks step: a batch against one Gymnasium environment, and training against the bare batch, pair by pair.

python benchmarks/steps.py                         # prints both tables (results/steps.md), about ten minutes
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np

import ex2
from ex2.training.config import configure
from ex2.training.loop import history

BATCHES = {"maze": (20, 1_024), "cheetah": (50, 1_024), "gather": (50, 1_024), "doom": (8, 20)}
ATARI = (8, 32)
SHORTER = {"freeway": {"num_envs": 32, "rollout_steps": 250, "algo.batch_size": 1_000}}
"""Settings for the training figure on a CPU, where the preset's iteration takes minutes."""


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


def shorter(name: str, device: str) -> dict[str, int]:
    """The settings that a training is measured with, beside its preset."""
    return dict(SHORTER.get(name, {})) if device == "cpu" else {}


def trained(name: str, bonus: str, iterations: int, device: str) -> float:
    """Steps per second of a whole training, without its first iterations: the median of the rest."""
    settings = shorter(name, device)
    if bonus == "none":
        settings["policy.zero_critic"] = False  # else there would be no update to time where there is no reward
    config = configure(name, bonus, overrides=settings)
    with tempfile.TemporaryDirectory() as folder:
        steps = iterations * config.iteration_steps
        ex2.train(name, bonus, steps=steps, out=Path(folder) / "run", overrides=settings, device=device)
        rates = [row["steps_per_second"] for row in history(Path(folder) / "run")]
    return float(np.median(rates[-(iterations // 2) :]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement of environments")
    parser.add_argument("--rounds", type=int, default=3, help="single and batched alternate; the median ratio is reported")
    parser.add_argument("--iterations", type=int, default=8, help="of each training")
    parser.add_argument("--tasks", nargs="+", default=["maze", "cheetah", "gather", "doom", "freeway"])
    parser.add_argument("--device", default="cpu", help="of the trainings")
    options = parser.parse_args()
    print("| task | environments | steps/s | one environment, steps/s | ratio |\n|---|---|---|---|---|")
    for name in options.tasks:
        for num_envs in BATCHES.get(name, ATARI):
            pairs = [
                (batched(name, num_envs, options.seconds), single(ex2.TASKS[name].env_id, options.seconds))
                for _ in range(options.rounds)
            ]
            many, one = np.median(pairs, axis=0)
            ratio = np.median([a / b for a, b in pairs])
            print(f"| {name} | {num_envs} | {many:,.0f} | {one:,.0f} | {ratio:.1f} |", flush=True)
    bonuses = ("none", "kernel-exemplar", "amortized")
    print("\n| task | environments | bare, steps/s |" + "".join(f" {bonus} |" for bonus in bonuses))
    print("|---|---|---|" + "---|" * len(bonuses))
    for name in options.tasks:
        num_envs = configure(name, overrides=shorter(name, options.device)).num_envs
        bare = batched(name, num_envs, options.seconds)
        shares = [trained(name, bonus, options.iterations, options.device) / bare for bonus in bonuses]
        print(f"| {name} | {num_envs} | {bare:,.0f} |" + "".join(f" {share:.2f} |" for share in shares), flush=True)


if __name__ == "__main__":
    main()
