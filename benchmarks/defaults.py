"""The default bonus with nothing chosen: where a bonus is needed, and where none is.

    python benchmarks/defaults.py strangers    # Stable-Baselines3's PPO with BonusCallback() and without
    python benchmarks/defaults.py dense        # our TRPO where it learns well by itself
    python benchmarks/defaults.py dense --tasks CartPole-v1 --seeds 0 1
    python benchmarks/defaults.py off-policy   # Stable-Baselines3's DQN and SAC with BonusCallback() and without

A stranger's task is solved when the mean return of the last 20 episodes of a training is above what is written beside it here;
`first` is the step at which it was so for the first time. PPO has Stable-Baselines3's settings but for 16 environments of 128
steps and minibatches of 256, and observations are normalised: by VecNormalize, but MiniGrid's codes, which it sees as a
vector, by their range (a code that is rarely there would be worth ten deviations, and PPO learns nothing with or without a
bonus). It takes `pip install minigrid imageio`. Without a bonus it is PPO alone, with it rewards are on the scale of their
returns, too.

Off-policy, DQN on MountainCar-v0 has the settings that rl-baselines3-zoo publishes for it, and SAC on MountainCarContinuous-v0
Stable-Baselines3's own, with 1 at the goal and 0 elsewhere. One job is one seed, in a process of its own; results are added to
results/KIND/scores.csv as they come, and what it holds already is not run again.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ex2.lab.results import SCORES
from ex2.lab.statistics import clopper_pearson

STRANGERS = {  # environment steps, and the return of a solved task
    "MountainCar-v0": (300_000, -150.0),
    "MountainCarContinuous-v0": (100_000, 80.0),
    "MiniGrid-DoorKey-6x6-v0": (200_000, 0.8),
    "MiniGrid-MultiRoom-N4-S5-v1": (300_000, 0.6),
}
CODES = 10.0  # the largest code in MiniGrid's observations
DENSE = {"CartPole-v1": 100_000, "Pendulum-v1": 200_000, "HalfCheetah-v5": 300_000, "Hopper-v5": 300_000}
OFF_POLICY = {"MountainCar-v0": (60_000, -150.0), "MountainCarContinuous-v0": (50_000, 0.9)}
DQN = {
    "learning_rate": 4e-3,
    "batch_size": 128,
    "buffer_size": 10_000,
    "learning_starts": 1_000,
    "gamma": 0.98,
    "target_update_interval": 600,
    "train_freq": 16,
    "gradient_steps": 8,
    "exploration_fraction": 0.2,
    "exploration_final_eps": 0.07,
    "policy_kwargs": {"net_arch": [256, 256]},
}
SEEDS = {  # those that are reported; settings were chosen on others
    "strangers": dict.fromkeys(STRANGERS, range(820, 830)),
    "dense": dict.fromkeys(DENSE, range(800, 805)) | dict.fromkeys(["HalfCheetah-v5", "Hopper-v5"], range(880, 890)),
    "off-policy": dict.fromkeys(OFF_POLICY, range(800, 810)),
}
ALGORITHMS = {"strangers": "ppo (Stable-Baselines3)", "off-policy": "dqn or sac (Stable-Baselines3)", "dense": "trpo"}
Job = tuple[str, str, int]


def stranger(job: Job) -> dict[str, object]:
    """A training as somebody else's script has it."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    from ex2.adapters.sb3 import BonusCallback

    torch.set_num_threads(1)
    task, bonus, seed = job
    steps, solved = STRANGERS[task]

    def make() -> gymnasium.Env:
        if task.startswith("MiniGrid"):
            from minigrid.wrappers import ImgObsWrapper

            seen = gymnasium.wrappers.FlattenObservation(ImgObsWrapper(gymnasium.make(task)))
            box = gymnasium.spaces.Box(0.0, 1.0, seen.observation_space.shape)
            return Monitor(gymnasium.wrappers.TransformObservation(seen, lambda codes: (codes / CODES).astype("float32"), box))
        return Monitor(gymnasium.make(task))

    envs = VecNormalize(DummyVecEnv([make] * 16), norm_obs=not task.startswith("MiniGrid"), norm_reward=False)
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=256, seed=seed, device="cpu")
    watch = watcher(solved)
    model.learn(steps, callback=[watch] if bonus == "none" else [watch, BonusCallback(bonus)])
    return {"task": task, "bonus": bonus, "seed": seed, "steps": steps, "score": round(watch.score, 3), "first": watch.first}


def watcher(solved: float) -> Any:
    """A callback that knows the score so far, and when the task was solved for the first time."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Watch(BaseCallback):
        first = math.nan
        score = math.nan

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            recent = [episode["r"] for episode in list(self.model.ep_info_buffer or [])[-20:]]
            self.score = float(np.mean(recent)) if recent else math.nan
            if len(recent) == 20 and self.score >= solved and math.isnan(self.first):
                self.first = self.num_timesteps

    return Watch()


def off_policy(job: Job) -> dict[str, object]:
    """DQN and SAC as their users have them."""
    import gymnasium
    import stable_baselines3
    import torch
    from stable_baselines3.common.monitor import Monitor

    from ex2.adapters.sb3 import BonusCallback

    class GoalOnly(gymnasium.Wrapper):  # MountainCarContinuous pays 100 for the goal, and takes for each push
        def step(self, action: Any) -> Any:
            obs, _, terminated, truncated, info = self.env.step(action)
            return obs, float(terminated), terminated, truncated, info

    torch.set_num_threads(1)
    task, bonus, seed = job
    steps, solved = OFF_POLICY[task]
    env = gymnasium.make(task)
    if task == "MountainCar-v0":
        model = stable_baselines3.DQN("MlpPolicy", Monitor(env), seed=seed, device="cpu", **DQN)
    else:
        model = stable_baselines3.SAC("MlpPolicy", Monitor(GoalOnly(env)), seed=seed, device="cpu")
    watch = watcher(solved)
    model.learn(steps, callback=[watch] if bonus == "none" else [watch, BonusCallback(bonus)])
    return {"task": task, "bonus": bonus, "seed": seed, "steps": steps, "score": round(watch.score, 3), "first": watch.first}


KINDS = {"strangers": (stranger, STRANGERS), "off-policy": (off_policy, OFF_POLICY)}


def dense(job: Job) -> dict[str, object]:
    import ex2

    task, bonus, seed = job
    with tempfile.TemporaryDirectory() as folder:
        result = ex2.train(task, bonus, seed=seed, steps=DENSE[task], out=Path(folder) / "run")
        scores = ex2.Run(result.folder).history()["score"]
    last = float(np.nanmean(scores[-len(scores) // 10 :]))  # of the last tenth of the training
    return {"task": task, "bonus": bonus, "seed": seed, "steps": DENSE[task], "score": round(last, 3), "first": math.nan}


def recorded(kind: str, found: dict[str, object]) -> dict[str, object]:
    """A row of scores.csv."""
    task, bonus, seed = found["task"], found["bonus"], found["seed"]
    budget = {"strangers": STRANGERS, "off-policy": OFF_POLICY}.get(kind, {}).get(str(task))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    row = dict.fromkeys(SCORES, math.nan) | found
    row |= {"experiment": kind, "arm": bonus, "algo": ALGORITHMS[kind], "overrides": "{}", "step": found["steps"]}
    row |= {"preset": "default"} if kind == "dense" else {}
    row |= {"steps": budget[0] if budget else found["steps"], "solved_at": budget[1] if budget else math.nan, "commit": commit}
    row["command"] = f"python benchmarks/defaults.py {kind} --tasks {task} --bonuses {bonus} --seeds {seed}"
    return row


def report(scores: pd.DataFrame) -> None:
    """What there is to say of each task and bonus."""
    for (task, bonus), own in scores.groupby(["task", "bonus"], sort=False):
        line = f"{task} {bonus}: mean {own['score'].mean():.2f}, seed by seed {', '.join(f'{x:.2f}' for x in own['score'])}"
        if own["solved_at"].notna().all():
            low, high = clopper_pearson(int((own["score"] >= own["solved_at"]).sum()), len(own))
            solved, first = int((own["score"] >= own["solved_at"]).sum()), own["first"].dropna()
            line += f"; solved {solved} of {len(own)} ({low:.0%} to {high:.0%})"
            line += f", first after {first.median():,.0f} steps (median of {len(first)})" if len(first) else ""
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["strangers", "dense", "off-policy"])
    parser.add_argument("--tasks", nargs="+", help="default: all of the kind")
    parser.add_argument("--bonuses", nargs="+", default=["kernel-exemplar", "none"])
    parser.add_argument("--seeds", type=int, nargs="+", help="default: those that are reported")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--again", action="store_true", help="run what the file holds already, too")
    parser.add_argument("--out", type=Path, help="default: results/KIND/scores.csv; what it holds stays, and is not run again")
    options = parser.parse_args()
    run, known = KINDS.get(options.kind, (dense, DENSE))
    tasks = options.tasks or list(known)
    if strange := set(tasks) - set(known):
        parser.error(f"no such task of {options.kind}: {', '.join(sorted(strange))}; there are {', '.join(known)}")
    out = options.out or Path("results") / options.kind / "scores.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    seeds = {task: options.seeds or SEEDS[options.kind][task] for task in tasks}
    jobs = [(task, bonus, seed) for task in tasks for seed in seeds[task] for bonus in options.bonuses]
    rows = pd.read_csv(out, dtype={"commit": str}).to_dict("records") if out.exists() else []
    if options.again:
        rows = [row for row in rows if (row["task"], row["bonus"], row["seed"]) not in jobs]
    done = {(row["task"], row["bonus"], row["seed"]) for row in rows}
    jobs = [job for job in jobs if job not in done]
    with ProcessPoolExecutor(options.workers, max_tasks_per_child=1) as pool:
        for future in as_completed([pool.submit(run, job) for job in jobs]):
            rows.append(recorded(options.kind, future.result()))
            print(rows[-1], flush=True)
            pd.DataFrame(rows)[list(SCORES)].to_csv(out, index=False, float_format="%.6g")
    report(pd.DataFrame([row for row in rows if row["task"] in tasks]))


if __name__ == "__main__":
    main()
