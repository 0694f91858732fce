"""What adapters cost: trainings of other libraries with a bonus that costs nothing, and with the default one, against without.

    python benchmarks/adapters.py    # results/adapters.csv

Each row alternates between the trainings that it compares, in one process with one thread, and has the least seconds of
processor time that each took: other jobs on the machine only ever add to them.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from ex2.adapters.gymnasium import BonusVectorWrapper
from ex2.adapters.sb3 import BonusCallback

SB3 = {  # environment, how many, steps; episodes of one length, so that an agent that learns otherwise has no other resets
    "PPO": ("Pendulum-v1", 4, 8_192),
    "A2C": ("Pendulum-v1", 4, 8_000),
    "TRPO": ("Pendulum-v1", 4, 8_192),
    "DQN": ("MountainCar-v0", 1, 6_000),
    "SAC": ("Pendulum-v1", 1, 800),
}
COLUMNS = ["what", "bonus", "plain_seconds", "seconds", "ratio", "steps_per_second"]


def sb3(name: str, bonus: str | None) -> int:
    env, count, steps = SB3[name]
    kind = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
    made = make_vec_env(env, count, seed=0) if count > 1 else Monitor(gymnasium.make(env))
    model = kind("MlpPolicy", made, seed=0, device="cpu")
    model.learn(steps, callback=None if bonus is None else BonusCallback(bonus))
    return steps


def vector(bonus: str | None) -> int:
    """A random agent on real physics: an environment alone is all there is to compare with."""
    envs = gymnasium.make_vec("ex2/Maze-v0", num_envs=16)
    envs = envs if bonus is None else BonusVectorWrapper(envs, bonus)
    envs.reset(seed=0)
    for _ in range(500):
        envs.step(envs.action_space.sample())
    return 500 * 16


def compare(what: str, run: Callable[[str | None], int], bonus: str, repeats: int) -> dict[str, object]:
    run(None), run(bonus)
    seconds: dict[str | None, list[float]] = {None: [], bonus: []}
    for _ in range(repeats):
        for chosen in seconds:
            started = time.process_time()
            steps = run(chosen)
            seconds[chosen].append(time.process_time() - started)
    plain, own = (min(seconds[chosen]) for chosen in (None, bonus))
    row = {"what": what, "bonus": bonus, "plain_seconds": round(plain, 2), "seconds": round(own, 2)}
    return row | {"ratio": round(own / plain, 3), "steps_per_second": round(steps / own)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", default=[*SB3, "vector"])
    parser.add_argument("--bonuses", nargs="+", default=["none", "kernel-exemplar"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/adapters.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for what in options.what:
        for bonus in options.bonuses:
            run = vector if what == "vector" else (lambda chosen, what=what: sb3(what, chosen))
            rows.append(compare(what, run, bonus, options.repeats))
            print(rows[-1], flush=True)
            with options.out.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
