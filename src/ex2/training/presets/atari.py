"""What the three games share. The paper ran plain TRPO and the amortized model on them."""

from ex2.shaping import Weight
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import AMORTIZED, Preset, Tuned
from ex2.training.trpo import TRPOSettings

HELD = {"replay_capacity": 60_000, "min_replay": 1_000}


def atari(weight: float, kl_weight: float) -> Preset:
    """A game's preset, by the paper's weight of the bonus and of the amortized model's KL."""
    light, heavy = Weight(start=weight), Weight(start=10 * weight)
    return Preset(
        steps=50_000_000,
        num_envs=50,
        rollout_steps=2_000,  # 100,000 steps an iteration
        groups=2,
        threads=2,
        clip_reward=True,
        stack=4,
        checkpoint_every=1,
        task={},
        policy=PolicySettings(convolutions=((32, 8, 4), (16, 4, 2)), hidden=(256, 256), activation="relu", zero_critic=True),
        trpo=TRPOSettings(gae_lambda=0.97, cg_max_steps=10, curvature_share=0.02, batch_size=2_000, n_critic_updates=2),
        ppo=PPOSettings(gae_lambda=0.97, batch_size=2_000, n_epochs=4),
        weight=light,
        bonuses={
            "kernel-exemplar": Tuned(light, HELD),
            "amortized": Tuned(light, AMORTIZED | HELD | {"kl_weight": kl_weight, "steps": 1_000, "first_steps": 1_000}),
            # Scores of these deviate by 0.01 to 0.1, where -log p does so by about 1. Not tried on a game yet.
            "simhash": Tuned(heavy),
            "rnd": Tuned(heavy, {"share": 0.25}),
            "icm": Tuned(heavy),
        },
    )
