"""A key, a door, a goal: Stable-Baselines3's PPO on MiniGrid with an exploration bonus, and without it.

    pip install 'ex2[sb3]' minigrid imageio
    python examples/door_key.py
    python examples/door_key.py --bonus none

The agent sees the 7 x 7 places before it, and which way it looks. The bonus is on both, as numbers: MiniGrid's codes of things
are no colours. The reward is 1 less the time it took at the goal, and 0 elsewhere.
"""

from __future__ import annotations

import argparse

import gymnasium
import minigrid  # noqa: F401 (registers the environments)
import numpy as np
from gymnasium.wrappers import FlattenObservation, TransformObservation
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from ex2.adapters.sb3 import BonusCallback


def make(task: str) -> gymnasium.Env:
    env = gymnasium.make(task)
    image, direction = env.observation_space["image"], env.observation_space["direction"]
    seen = gymnasium.spaces.Dict({"image": image, "direction": direction})  # without the mission, which is words
    env = TransformObservation(env, lambda obs: {"image": obs["image"], "direction": obs["direction"]}, seen)
    flat = FlattenObservation(env)
    space = gymnasium.spaces.Box(0.0, 255.0, flat.observation_space.shape, np.float32)
    return TransformObservation(flat, lambda obs: obs.astype(np.float32), space)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="MiniGrid-DoorKey-6x6-v0")
    parser.add_argument("--bonus", default="kernel-exemplar")
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    envs = make_vec_env(lambda: make(args.task), 16, seed=args.seed)
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=256, seed=args.seed, device="cpu", verbose=1)
    model.learn(args.steps, callback=None if args.bonus == "none" else BonusCallback(args.bonus), log_interval=10)
    recent = [episode["r"] for episode in list(model.ep_info_buffer)[-20:]]
    print(f"{args.steps:,} steps, the last 20 episodes: {np.mean(recent) if recent else float('nan'):.2f}")


if __name__ == "__main__":
    main()
