"""SparseHalfCheetah."""

from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import Preset
from ex2.training.trpo import TRPOSettings

PRESET = Preset(
    steps=5_000_000,
    num_envs=50,
    rollout_steps=100,  # 5,000 steps an iteration
    threads=1,
    task={},
    policy=PolicySettings(hidden=(32, 32), activation="relu"),
    # The reward is at the end of 500 steps: a long discount (the paper has 0.99) lets the first ones hear of it.
    trpo=TRPOSettings(gamma=0.995, gae_lambda=0.97, batch_size=500),
    ppo=PPOSettings(gamma=0.995, gae_lambda=0.97, batch_size=500),
    bonus={},
)
