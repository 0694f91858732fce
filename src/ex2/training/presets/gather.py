"""SwimmerGather."""

from ex2.shaping import Weight
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.presets.preset import AMORTIZED, FEW_HEADS, K_EXEMPLAR, Preset, Tuned
from ex2.training.trpo import TRPOSettings

HELD = {"replay_capacity": 500_000, "min_replay": 10_000}
LIGHT, HEAVY = Weight(start=1e-4), Weight(start=1e-3)

PRESET = Preset(
    steps=100_000_000,
    num_envs=50,
    rollout_steps=100,  # 5,000 steps an iteration; the paper has 50,000, in which too few updates come together
    threads=1,
    task={},
    policy=PolicySettings(hidden=(32, 32), activation="relu", zero_critic=True),
    # A stroke pays off late: a long discount (the paper has 0.99), and a GAE lambda of 1 as in the authors' code.
    trpo=TRPOSettings(gamma=0.995, gae_lambda=1.0, cg_max_steps=10, batch_size=500),
    ppo=PPOSettings(gae_lambda=0.97, batch_size=500),
    weight=LIGHT,
    bonuses={
        # Novel in the position of the centre of mass: what the sensors see is new in each episode, wherever the swimmer is. It
        # learns to swim, ahead or backwards, and not to steer; examples/gather.py does, in two runs.
        # With the paper's 1e-4 what happens to lie on its way (1 or -1) outweighs the bonus, and it stays within a metre.
        "kernel-exemplar": Tuned(Weight(start=0.01, schedule="linear", end=0.0, until=0.6), HELD | {"entries": [10, 11]}),
        # The paper's KL weight; in our few steps the model collapses with it.
        "amortized": Tuned(LIGHT, AMORTIZED | HELD | {"kl_weight": 10.0, "steps": 80, "first_steps": 1_500}),
        "k-exemplar": Tuned(LIGHT, K_EXEMPLAR | HELD | FEW_HEADS | {"k": 1}),  # the paper has a weight of 1.0
        "kde": Tuned(LIGHT, HELD | {"subsample": 2_000}),
        "simhash": Tuned(HEAVY),
        "vime": Tuned(LIGHT),
        "rnd": Tuned(HEAVY),
        "icm": Tuned(HEAVY),
    },
)
