"""Any other Gymnasium environment: a preset that its spaces suggest."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ex2.errors import UsageError
from ex2.shaping import Weight
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import Preset, Tuned
from ex2.training.trpo import TRPOSettings

LARGE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # convolutions for pictures of at least 36 pixels a side
SMALL = ((16, 4, 2), (16, 4, 2))  # and of at least 10


def preset_for(env_id: str, **settings: Any) -> Preset:
    """Networks, batch and weight for an environment's observations."""
    try:
        env = gymnasium.make(env_id, **settings)
    except Exception as error:  # whatever an environment's own code raises
        raise UsageError(f"The environment {env_id!r} cannot be made ({type(error).__name__}: {error}).") from None
    space = env.observation_space
    env.close()
    pictures = isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3
    side = min(sorted(space.shape or (0,))[-2:]) if pictures else 0
    if side >= 10:
        layers = LARGE if side >= 36 else SMALL
        policy = PolicySettings(convolutions=layers, hidden=(256,), activation="relu", zero_critic=True)
    else:
        policy = PolicySettings(
            hidden=(64, 64), activation="tanh", standardise="none" if pictures else "both", zero_critic=True
        )
    weight = Weight(start=0.1)
    return Preset(
        steps=1_000_000,
        num_envs=16,
        rollout_steps=256,  # 4,096 steps an iteration
        threads=2 if side >= 10 else 1,
        task={},
        policy=policy,
        trpo=TRPOSettings(gae_lambda=0.97, cg_max_steps=10, batch_size=512, curvature_share=0.25 if side >= 10 else 1.0),
        ppo=PPOSettings(batch_size=512, n_epochs=4 if side >= 10 else 10),
        weight=weight,
        bonuses={"kernel-exemplar": Tuned(weight, {"replay_capacity": 50_000 if side >= 36 else 200_000})},
    )
