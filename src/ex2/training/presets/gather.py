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
    # An object is worth nothing until it is near: a critic that sees it come, and a GAE lambda that listens to it.
    policy=PolicySettings(hidden=(32, 32), critic_hidden=(128, 128), activation="relu"),
    # A stroke pays off late: a long discount (the paper has 0.99).
    trpo=TRPOSettings(gamma=0.995, gae_lambda=0.97, cg_max_steps=10, batch_size=500),
    ppo=PPOSettings(gae_lambda=0.97, batch_size=500),
    # Novelty in the joints likes swimming backwards as well, and the sensors look ahead; in the position and the sensors alone
    # an object that comes nearer is new, so a swimmer goes where it looks. No other task says what novelty is about.
    entries=(10, 11, *range(13, 33)),
    bonus={},
)
