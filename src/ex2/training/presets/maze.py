"""The 2D maze."""

from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import Preset
from ex2.training.trpo import TRPOSettings

PRESET = Preset(
    steps=800_000,
    num_envs=20,
    rollout_steps=200,  # 20 x 200 = 4,000 steps an iteration
    threads=1,  # these networks are too small for more to help
    task={},
    policy=PolicySettings(hidden=(32, 32), activation="relu"),
    trpo=TRPOSettings(gae_lambda=0.97, batch_size=500),
    ppo=PPOSettings(gae_lambda=0.97, batch_size=500),
    bonus={},
)
