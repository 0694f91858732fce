"""Any other Gymnasium environment: a preset that its spaces suggest."""

from __future__ import annotations

from typing import Any

import gymnasium

from ex2.errors import UsageError
from ex2.training.policy import PolicySettings, is_picture
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import Preset
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
    side = min(sorted(space.shape or (0,))[-2:]) if is_picture(space) else 0
    layers = LARGE if side >= 36 else SMALL if side >= 10 else ()
    if layers:
        policy = PolicySettings(convolutions=layers, hidden=(256,), activation="relu")
    else:
        policy = PolicySettings(hidden=(64, 64), activation="tanh")
    return Preset(
        steps=1_000_000,
        num_envs=16,
        rollout_steps=256,  # 4,096 steps an iteration
        threads=2 if layers else 1,
        task={},
        policy=policy,
        trpo=TRPOSettings(gae_lambda=0.97, cg_max_steps=10, batch_size=512, curvature_share=0.25 if layers else 1.0),
        ppo=PPOSettings(batch_size=512, n_epochs=4 if layers else 10),
        bonus={},
    )
