"""DoomMyWayHome+."""

from ex2.shaping import Weight
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import AMORTIZED, FEW_HEADS, K_EXEMPLAR, Preset, Tuned
from ex2.training.trpo import TRPOSettings

HELD = {"replay_capacity": 250_000, "min_replay": 8_000}
LIGHT, HEAVY = Weight(start=1e-4), Weight(start=1e-3)

PRESET = Preset(
    steps=1_200_000,
    num_envs=20,
    rollout_steps=200,  # 4,000 steps an iteration
    threads=2,
    entropy=1e-5,
    task={},
    policy=PolicySettings(convolutions=((16, 4, 2), (16, 4, 2)), hidden=(32, 32), activation="relu", zero_critic=True),
    # A GAE lambda of 1, as in the authors' code. The vest is a hundred steps away: with 0.97 a find hardly reaches the first of
    # them, and one run in three keeps it; with 1, 12 of 27 (exemplar models, results/doom.md).
    trpo=TRPOSettings(gae_lambda=1.0, cg_max_steps=10, curvature_share=0.05, batch_size=500, n_critic_updates=2),
    ppo=PPOSettings(gae_lambda=0.97, batch_size=500, n_epochs=4),
    weight=LIGHT,
    bonuses={
        "kernel-exemplar": Tuned(LIGHT, HELD),
        # Weight and KL weight of the authors' code; the paper has 1e-4 and 0.01. It trains 1,000 steps an iteration.
        "amortized": Tuned(
            Weight(start=2e-4),
            AMORTIZED | HELD | {"kl_weight": 0.001, "steps": 300, "first_steps": 2_000, "learning_rate": 3e-4},
        ),
        "k-exemplar": Tuned(LIGHT, K_EXEMPLAR | HELD | FEW_HEADS | {"k": 5}),
        "kde": Tuned(LIGHT, HELD | {"subsample": 2_000}),
        "simhash": Tuned(HEAVY),
        "vime": Tuned(LIGHT),
        "rnd": Tuned(Weight(start=0.01), {"share": 0.25}),
        "icm": Tuned(HEAVY),
    },
)
