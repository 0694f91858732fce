"""The default bonus with nothing chosen: where a bonus is needed, and where none is.

    python benchmarks/defaults.py strangers    # Stable-Baselines3's PPO with BonusCallback() and without; results/strangers.csv
    python benchmarks/defaults.py dense        # our TRPO where it learns well by itself; results/dense.csv
    python benchmarks/defaults.py dense --tasks CartPole-v1 --seeds 0 1

A stranger's task is solved when the mean return of the last 20 episodes of a training is above what is written beside it here;
`first` is the step at which it was so for the first time. PPO has Stable-Baselines3's settings but for 16 environments of 128
steps and minibatches of 256, and observations are normalised: by VecNormalize, but MiniGrid's codes, which it sees as a
vector, by their range (a code that is rarely there would be worth ten deviations, and PPO learns nothing with or without a
bonus). It takes `pip install minigrid imageio`. Without a bonus it is PPO alone, with it rewards are on the scale of their
returns, too.
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import beta

STRANGERS = {  # environment steps, and the return of a solved task
    "MountainCar-v0": (300_000, -150.0),
    "MountainCarContinuous-v0": (100_000, 80.0),
    "MiniGrid-DoorKey-6x6-v0": (200_000, 0.8),
    "MiniGrid-MultiRoom-N4-S5-v1": (300_000, 0.6),
}
CODES = 10.0  # the largest code in MiniGrid's observations
DENSE = {"CartPole-v1": 100_000, "Pendulum-v1": 200_000, "HalfCheetah-v5": 300_000, "Hopper-v5": 300_000}
COLUMNS = ["task", "bonus", "seed", "steps", "score", "first"]
Job = tuple[str, str, int]


def stranger(job: Job) -> dict[str, object]:
    """A training as somebody else's script has it."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    from ex2.adapters.sb3 import BonusCallback

    torch.set_num_threads(1)
    task, bonus, seed = job
    steps, solved = STRANGERS[task]

    class Watch(BaseCallback):
        first = math.nan
        score = math.nan

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            recent = [episode["r"] for episode in list(self.model.ep_info_buffer or [])[-20:]]
            self.score = float(np.mean(recent)) if recent else math.nan
            if self.score >= solved and math.isnan(self.first):
                self.first = self.num_timesteps

    def make() -> gymnasium.Env:
        if task.startswith("MiniGrid"):
            from minigrid.wrappers import ImgObsWrapper

            seen = gymnasium.wrappers.FlattenObservation(ImgObsWrapper(gymnasium.make(task)))
            box = gymnasium.spaces.Box(0.0, 1.0, seen.observation_space.shape)
            return Monitor(gymnasium.wrappers.TransformObservation(seen, lambda codes: (codes / CODES).astype("float32"), box))
        return Monitor(gymnasium.make(task))

    envs = VecNormalize(DummyVecEnv([make] * 16), norm_obs=not task.startswith("MiniGrid"), norm_reward=False)
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=256, seed=seed, device="cpu")
    watch = Watch()
    model.learn(steps, callback=[watch] if bonus == "none" else [watch, BonusCallback(bonus)])
    return {"task": task, "bonus": bonus, "seed": seed, "steps": steps, "score": round(watch.score, 3), "first": watch.first}


def dense(job: Job) -> dict[str, object]:
    import ex2

    task, bonus, seed = job
    with tempfile.TemporaryDirectory() as folder:
        result = ex2.train(task, bonus, seed=seed, steps=DENSE[task], out=Path(folder) / "run")
        scores = ex2.Run(result.folder).history()["score"]
    last = float(np.nanmean(scores[-len(scores) // 10 :]))  # of the last tenth of the training
    return {"task": task, "bonus": bonus, "seed": seed, "steps": DENSE[task], "score": round(last, 3), "first": math.nan}


def interval(successes: int, count: int) -> str:
    """Clopper and Pearson's, 95 %, as percentages."""
    low = beta.ppf(0.025, successes, count - successes + 1) if successes else 0.0
    high = beta.ppf(0.975, successes + 1, count - successes) if successes < count else 1.0
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def report(kind: str, rows: list[dict[str, object]]) -> None:
    """What there is to say of each task and bonus."""
    for task, bonus in dict.fromkeys((str(row["task"]), str(row["bonus"])) for row in rows):
        own = [row for row in rows if row["task"] == task and row["bonus"] == bonus]
        scores = np.array([float(str(row["score"])) for row in own])
        line = f"{task} {bonus}: mean {scores.mean():.2f}, seed by seed {', '.join(f'{score:.2f}' for score in scores)}"
        if kind == "strangers":
            solved = int((scores >= STRANGERS[task][1]).sum())
            first = [float(str(row["first"])) for row in own if not math.isnan(float(str(row["first"])))]
            line += f"; solved {solved} of {len(own)} ({interval(solved, len(own))})"
            line += f", first after {np.median(first):,.0f} steps (median of {len(first)})" if first else ""
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["strangers", "dense"])
    parser.add_argument("--tasks", nargs="+", help="default: all of the kind")
    parser.add_argument("--bonuses", nargs="+", default=["kernel-exemplar", "none"])
    parser.add_argument("--seeds", type=int, nargs="+", help="default: 10 of strangers' tasks, 5 of dense ones")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--out", type=Path, help="default: results/KIND.csv; what it holds of other runs stays")
    options = parser.parse_args()
    tasks = options.tasks or list(STRANGERS if options.kind == "strangers" else DENSE)
    seeds = options.seeds or list(range(800, 810 if options.kind == "strangers" else 805))
    out = options.out or Path(f"results/{options.kind}.csv")
    jobs = [(task, bonus, seed) for task in tasks for seed in seeds for bonus in options.bonuses]
    rows = list(csv.DictReader(out.open())) if out.exists() else []
    rows = [row for row in rows if (row["task"], row["bonus"], int(row["seed"])) not in jobs]
    with ProcessPoolExecutor(options.workers, max_tasks_per_child=1) as pool:
        for row in pool.map(partial({"strangers": stranger, "dense": dense}[options.kind]), jobs):
            print(row, flush=True)
            rows.append(row)
            with out.open("w", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(rows)
    report(options.kind, [row for row in rows if row["task"] in tasks])


if __name__ == "__main__":
    main()
