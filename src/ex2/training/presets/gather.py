"""SwimmerGather."""

from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import Preset
from ex2.training.trpo import TRPOSettings

PRESET = Preset(
    steps=100_000_000,
    num_envs=50,
    rollout_steps=100,  # 5,000 steps an iteration; the paper has 50,000, in which too few updates come together
    threads=1,
    task={},
    policy=PolicySettings(hidden=(32, 32), activation="relu"),
    # A stroke pays off late: a long discount (the paper has 0.99), and a GAE lambda of 1 as in the authors' code.
    trpo=TRPOSettings(gamma=0.995, gae_lambda=1.0, cg_max_steps=10, batch_size=500),
    ppo=PPOSettings(gae_lambda=0.97, batch_size=500),
    bonus={},
)
