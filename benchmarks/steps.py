"""How much faster a batch of environments is than one, measured side by side in one run.

python benchmarks/steps.py --seconds 3
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import numpy as np

import ex2


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
    return steps / (time.perf_counter() - started)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="single and batched alternate; the median ratio is reported")
    options = parser.parse_args()
    print("| task | environments | steps/s | one environment, steps/s | ratio |\n|---|---|---|---|---|")
    for name, task in ex2.TASKS.items():
        for num_envs in (20, 256, 1024):
            pairs = [
                (batched(name, num_envs, options.seconds), single(task.env_id, options.seconds)) for _ in range(options.rounds)
            ]
            many, one = np.median(pairs, axis=0)
            ratio = np.median([a / b for a, b in pairs])
            print(f"| {name} | {num_envs} | {many:,.0f} | {one:,.0f} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
