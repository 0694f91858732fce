"""The paper's own hyperparameters, as published: `ex2 train doom --bonus amortized --preset paper`.

Where the paper and the authors' code differ it is the paper's value. Not theirs is the critic: a network, where the paper has
linear features or none, and that first episodes are cut short where an episode has two rollouts. The bonus is -log p less its
median times a constant weight, on no scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ex2.errors import UsageError, unknown
from ex2.shaping import Weight
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import Preset
from ex2.training.trpo import TRPOSettings


@dataclass(frozen=True)
class Published:
    """A bonus on a task: its weight, and its settings."""

    weight: float
    settings: dict[str, Any]


MODEL = {"form": "log", "metric": "learned", "state_noise": 0.0, "information_rate": None, "schedule": "constant"}
AMORTIZED = MODEL | {"pairs": 128, "scatter": 0.0, "samples": 8, "learning_rate": 1e-4, "gain": 1.0}
K_EXEMPLAR = MODEL | {"latent_noise": 0.1, "draws": 8, "hidden": 16}

GAMES = PolicySettings(convolutions=((32, 8, 4), (16, 4, 2)), hidden=(256, 256), activation="relu", standardise="none")
ROOMS = PolicySettings(convolutions=((16, 4, 2), (16, 4, 2)), hidden=(32, 32), activation="relu", standardise="none")
VECTORS = PolicySettings(hidden=(32, 32), activation="relu", standardise="none")


def bonuses(
    weights: tuple[float, float | None], held: tuple[int, int], steps: tuple[int, int], kl_weight: float, k: int, inputs: str
) -> dict[str, Published]:
    """The two models on a task: weights of amortized and K-exemplar, FIFO and least replay, steps and first steps."""
    shared = {"replay_capacity": held[0], "min_replay": held[1], "steps": steps[0], "first_steps": steps[1], "inputs": inputs}
    found = {"amortized": Published(weights[0], AMORTIZED | shared | {"kl_weight": kl_weight})}
    if weights[1] is not None:
        found["k-exemplar"] = Published(weights[1], K_EXEMPLAR | shared | {"k": k})
    return found


BONUSES = {
    "maze": bonuses((0.01, 1.0), (200_000, 10_000), (1_000, 5_000), 0.01, 5, "state-action"),
    "cheetah": bonuses((0.001, 0.001), (250_000, 10_000), (2_000, 2_000), 0.1, 5, "state-action"),
    "gather": bonuses((1e-4, 1.0), (500_000, 10_000), (1_000, 1_000), 10.0, 1, "state"),
    "doom": bonuses((1e-4, 1e-4), (250_000, 8_000), (1_000, 2_000), 0.01, 5, "state"),
    "freeway": bonuses((1e-5, None), (60_000, 1_000), (1_000, 1_000), 0.1, 0, "state"),
    "frostbite": bonuses((1e-3, None), (60_000, 1_000), (1_000, 1_000), 0.1, 0, "state"),
    "venture": bonuses((1e-4, None), (60_000, 1_000), (1_000, 1_000), 1e-3, 0, "state"),
}
BATCHES: dict[str, dict[str, Any]] = {
    "maze": {"steps": 800_000, "num_envs": 20, "rollout_steps": 200, "entropy": 1e-6, "policy": VECTORS},
    "cheetah": {"steps": 5_000_000, "num_envs": 10, "rollout_steps": 500, "policy": VECTORS},
    "gather": {"steps": 100_000_000, "num_envs": 100, "rollout_steps": 500, "policy": VECTORS},
    "doom": {"steps": 1_200_000, "num_envs": 20, "rollout_steps": 200, "threads": 2, "entropy": 1e-5, "policy": ROOMS},
}
GAME = {"steps": 50_000_000, "num_envs": 50, "rollout_steps": 2_000, "groups": 2, "threads": 2, "policy": GAMES}
GAME |= {"clip_reward": True, "stack": 4, "checkpoint_every": 1}


def paper_preset(task: str, bonus: str) -> Preset:
    """What the paper ran; a bonus that it did not run on the task is refused."""
    if task not in BONUSES:
        raise unknown("task of the paper", task, BONUSES)
    published = BONUSES[task] | {"none": Published(0.0, {})}
    if bonus not in published:
        raise UsageError(f"The paper has no hyperparameters for {bonus!r} on {task!r}: it has them for {', '.join(published)}.")
    chosen, pictures = published[bonus], task in ("doom", "freeway", "frostbite", "venture")
    return Preset(
        **BATCHES.get(task, GAME),
        scaled=False,
        episode_counts=False,
        task={},
        # Of pictures the Fisher matrix is of fewer states than theirs, for speed; the line search holds the region on all.
        trpo=TRPOSettings(gae_lambda=1.0, cg_max_steps=10, curvature_share=0.05 if pictures else 1.0),
        ppo=PPOSettings(gae_lambda=1.0),
        weight=Weight(start=chosen.weight),
        bonus=chosen.settings,
    )
