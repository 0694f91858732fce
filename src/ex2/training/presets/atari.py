"""What the three games share."""

from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import Preset
from ex2.training.trpo import TRPOSettings

ATARI = Preset(
    steps=50_000_000,
    num_envs=50,
    rollout_steps=2_000,  # 100,000 steps an iteration
    groups=2,
    threads=2,
    clip_reward=True,
    stack=4,
    checkpoint_every=1,
    task={},
    policy=PolicySettings(convolutions=((32, 8, 4), (16, 4, 2)), hidden=(256, 256), activation="relu"),
    trpo=TRPOSettings(gae_lambda=0.97, cg_max_steps=10, curvature_share=0.02, batch_size=2_000, n_critic_updates=2),
    ppo=PPOSettings(gae_lambda=0.97, batch_size=2_000, n_epochs=4),
    bonus={},
)
