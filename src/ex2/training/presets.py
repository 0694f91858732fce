"""The settings of every task, as data. `ex2.training.config` turns them into the full configuration of a run.

Where a preset departs from the paper it says so; the measurements behind it are in docs/design.md.
"""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "maze": {
        "steps": 800_000,
        "num_envs": 20,
        "rollout_steps": 200,  # 20 x 200 = 4,000 steps an iteration
        "threads": 1,  # these networks are too small for more to help
        # 32-32 relu on the raw position, as in the paper. The critic, for which the paper has linear features, sees the
        # position scaled to [-1, 1].
        "policy": {"hidden": [32, 32], "activation": "relu", "scale_critic": True},
        "algo": {
            "trpo": {
                "gamma": 0.99,
                "gae_lambda": 0.97,
                "target_kl": 0.01,
                # sb3-contrib's 0.1 outweighs the Fisher matrix where observations are as small as here: the actor is slow to
                # learn to act by its position, and is held at walls for long (docs/design.md).
                "cg_damping": 0.03,
                "learning_rate": 1e-3,
                "batch_size": 500,
                "n_critic_updates": 10,
            },
            "ppo": {"gamma": 0.99, "gae_lambda": 0.97, "learning_rate": 3e-4, "batch_size": 500, "n_epochs": 10},
        },
        "bonus": {
            "none": {"weight": {"start": 0.0}},
            # Our own model, as it comes: smoothing is automatic.
            "kernel-exemplar": {
                "weight": {"start": 0.1, "schedule": "linear", "end": 0.0, "until": 0.8},
                "settings": {"replay_capacity": 200_000, "min_replay": 10_000},
            },
            # The paper rates state-action pairs, trains 1,000 steps of 128 pairs an iteration, has a KL weight of 0.01 and a
            # constant bonus weight of 0.01. Noise on the states instead of in a learned latent, some exemplars scattered over
            # the arena, and a weight that fades do better in 80 steps.
            "amortized": {
                "weight": {"start": 0.1, "schedule": "linear", "end": 0.0, "until": 0.8},
                "settings": {
                    "inputs": "state",
                    "replay_capacity": 200_000,
                    "min_replay": 10_000,
                    "state_noise": 0.1,
                    "kl_weight": 1e-4,
                    "gain": 3.0,
                    "learning_rate": 3e-3,
                    "steps": 80,
                    "first_steps": 1_500,
                    "pairs": 128,
                    "scatter": 0.25,
                },
            },
            # The paper: state-action pairs, K = 5, a constant bonus weight of 1.0, a trunk of 16 units.
            "k-exemplar": {
                "weight": {"start": 0.1, "schedule": "linear", "end": 0.0, "until": 0.8},
                "settings": {
                    "inputs": "state",
                    "replay_capacity": 200_000,
                    "min_replay": 10_000,
                    "k": 5,
                    "state_noise": 0.1,
                    "latent_noise": 0.0,
                    "hidden": 32,
                    "gain": 4.0,
                    "trunk_learning_rate": 1e-3,
                    "steps": 40,
                    "newton_steps": 5,
                    "newton_negatives": 400,
                    "draws": 4,
                },
            },
            "kde": {
                "weight": {"start": 0.1, "schedule": "linear", "end": 0.0, "until": 0.8},
                "settings": {"replay_capacity": 200_000, "min_replay": 10_000, "bandwidth": 0.1, "subsample": 2_000},
            },
            "histogram": {
                "weight": {"start": 0.1, "schedule": "linear", "end": 0.0, "until": 0.8},
                "settings": {"replay_capacity": 1_000_000, "bins": 50},
            },
        },
    },
}
