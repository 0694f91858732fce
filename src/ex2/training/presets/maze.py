"""The 2D maze."""

from ex2.shaping import Weight
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import AMORTIZED, K_EXEMPLAR, Preset, Tuned
from ex2.training.trpo import TRPOSettings


def fading(start: float) -> Weight:
    """A weight that is gone after four fifths of the training."""
    return Weight(start=start, schedule="linear", end=0.0, until=0.8)


HELD = {"replay_capacity": 200_000, "min_replay": 10_000}

PRESET = Preset(
    steps=800_000,
    num_envs=20,
    rollout_steps=200,  # 20 x 200 = 4,000 steps an iteration
    threads=1,  # these networks are too small for more to help
    task={},
    # 32-32 relu on the raw position, as in the paper. The critic, for which the paper has linear features, sees the position
    # scaled to [-1, 1].
    policy=PolicySettings(hidden=(32, 32), activation="relu", scale_critic=True),
    # sb3-contrib's damping of 0.1 outweighs the Fisher matrix where observations are as small as here: the actor is slow to
    # learn to act by its position, and is held at walls for long (docs/design.md). So it is with a Fisher matrix of a quarter
    # of the states: plain TRPO then ended at -130, -132, -200, -62 (seeds 200 to 203).
    trpo=TRPOSettings(gae_lambda=0.97, cg_damping=0.03, batch_size=500),
    ppo=PPOSettings(gae_lambda=0.97, batch_size=500),
    weight=fading(0.1),
    bonuses={
        "kernel-exemplar": Tuned(fading(0.1), HELD),  # as it comes: smoothing is automatic
        # The paper rates state-action pairs, trains 1,000 steps of 128 pairs an iteration, has a KL weight of 0.01 and a
        # constant bonus weight of 0.01. Noise on the states instead of in a learned latent, some exemplars scattered over the
        # arena, and a weight that fades do better in 80 steps.
        "amortized": Tuned(
            fading(0.1),
            AMORTIZED
            | HELD
            | {
                "inputs": "state",
                "state_noise": 0.3,
                "kl_weight": 1e-4,
                "learning_rate": 3e-3,
                "steps": 80,
                "first_steps": 1_500,
                "scatter": 0.25,
            },
        ),
        # The paper: state-action pairs, K = 5, a constant bonus weight of 1.0, a trunk of 16 units.
        "k-exemplar": Tuned(
            fading(0.1),
            K_EXEMPLAR
            | HELD
            | {
                "inputs": "state",
                "k": 5,
                "state_noise": 0.3,
                "latent_noise": 0.0,
                "hidden": 32,
                "gain": 1.5,
                "trunk_learning_rate": 1e-3,
                "steps": 40,
                "newton_steps": 5,
                "newton_negatives": 400,
                "draws": 4,
            },
        ),
        "kde": Tuned(fading(0.1), HELD | {"bandwidth": 0.2, "subsample": 2_000}),
        "histogram": Tuned(fading(0.1), {"replay_capacity": 1_000_000, "bins": 50}),
        # In two dimensions planes through the middle would tell directions apart and nothing else.
        "simhash": Tuned(fading(10.0), {"bits": 32, "offset": 0.5}),
        "vime": Tuned(fading(0.01)),
        "rnd": Tuned(fading(2.0)),
        "icm": Tuned(fading(4.0)),
    },
)
