"""What adapters cost: trainings of other libraries with a bonus that costs nothing, and with the default one, against without.

    python benchmarks/adapters.py    # results/adapters/ratios.csv

The trainings that are compared are run in turn, in one process with one thread, in another order each time. A ratio is the
median of the ratios of processor time within such a turn, so what else the machine does meets both sides alike; `low` and
`high` are the quartiles. Seconds are medians. Trainings take a second or more, so that what is done once is not what is seen.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gymnasium
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from ex2.adapters.gymnasium import BonusVectorWrapper
from ex2.adapters.sb3 import BonusCallback

SB3 = {  # environment, how many, steps; episodes of one length, so that an agent that learns otherwise has no other resets
    "PPO": ("Pendulum-v1", 4, 8_192),
    "A2C": ("Pendulum-v1", 4, 12_000),
    "TRPO": ("Pendulum-v1", 4, 16_384),
    "DQN": ("MountainCar-v0", 1, 6_000),
    "SAC": ("Pendulum-v1", 1, 400),
}
CAR, PEER_STEPS = "MountainCar-v0", 4_000  # of TorchRL, Tianshou and RLlib
COLUMNS = ["what", "bonus", "plain_seconds", "seconds", "ratio", "low", "high", "steps_per_second"]


def sb3(name: str, bonus: str | None) -> int:
    env, count, steps = SB3[name]
    kind = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
    made = make_vec_env(env, count, seed=0) if count > 1 else Monitor(gymnasium.make(env))
    model = kind("MlpPolicy", made, seed=0, device="cpu")
    model.learn(steps, callback=None if bonus is None else BonusCallback(bonus))
    return steps


def vector(bonus: str | None) -> int:
    """A random agent on real physics: an environment alone is all there is to compare with."""
    envs = gymnasium.make_vec("ex2/Maze-v0", num_envs=16)
    envs = envs if bonus is None else BonusVectorWrapper(envs, bonus)
    envs.reset(seed=0)
    for _ in range(500):
        envs.step(envs.action_space.sample())
    return 500 * 16


def torchrl(bonus: str | None) -> int:
    """PPO as TorchRL's users write it."""
    from tensordict.nn import TensorDictModule
    from torch.distributions import Categorical
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv
    from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    from ex2.adapters.torchrl import BonusTransform

    torch.manual_seed(0)
    env = GymEnv(CAR, categorical_action_encoding=True)
    network = TensorDictModule(MLP(in_features=2, out_features=3, num_cells=[64, 64]), ["observation"], ["logits"])
    actor = ProbabilisticActor(network, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True)
    critic = ValueOperator(MLP(in_features=2, out_features=1, num_cells=[64, 64]), in_keys=["observation"])
    loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    optim = torch.optim.Adam(loss.parameters(), 3e-4)
    postproc = None if bonus is None else BonusTransform(env, bonus, total_steps=PEER_STEPS)
    batches = {"frames_per_batch": 1_000, "total_frames": PEER_STEPS, "auto_register_policy_transforms": False}
    for data in Collector(env, actor, postproc=postproc, **batches):
        for _ in range(4):
            advantage(data)
            for part in data[torch.randperm(len(data))].split(100):
                terms = loss(part)
                optim.zero_grad()
                sum(value for name, value in terms.items() if name.startswith("loss")).backward()
                optim.step()
    return PEER_STEPS


def tianshou(bonus: str | None, on_policy: bool) -> int:
    """Tianshou's PPO or DQN, as its trainers run them."""
    import tianshou.algorithm as algorithms
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, CollectStats, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    from ex2.adapters.tianshou import BonusOffPolicyWrapper, BonusOnPolicyWrapper

    torch.manual_seed(0)
    envs = DummyVectorEnv([lambda: gymnasium.make(CAR)] * 4)
    envs.seed(0)
    spaces = {"action_space": envs.action_space[0], "observation_space": envs.observation_space[0]}
    optim = AdamOptimizerFactory(lr=3e-4)
    rhythm = {"max_epochs": 1, "epoch_num_steps": PEER_STEPS, "verbose": False, "show_progress": False}
    if on_policy:
        body = {"preprocess_net": Net(state_shape=2, hidden_sizes=[64, 64])}
        policy = DiscreteActorPolicy(actor=DiscreteActor(action_shape=3, **body), **spaces)
        algorithm = algorithms.PPO(policy=policy, critic=DiscreteCritic(**body), optim=optim)
        wrapper, kind = BonusOnPolicyWrapper, OnPolicyTrainerParams
        rhythm |= {"collection_step_num_env_steps": 1_000, "batch_size": 100, "update_step_num_repetitions": 4}
    else:
        model = Net(state_shape=2, action_shape=3, hidden_sizes=[64, 64])
        policy = DiscreteQLearningPolicy(model=model, eps_training=0.1, **spaces)
        algorithm = algorithms.DQN(policy=policy, optim=optim, target_update_freq=100)
        wrapper, kind = BonusOffPolicyWrapper, OffPolicyTrainerParams
        rhythm |= {"collection_step_num_env_steps": 16, "batch_size": 64, "update_step_num_gradient_steps_per_sample": 0.25}
    algorithm = algorithm if bonus is None else wrapper(algorithm, bonus)
    collector = Collector[CollectStats](algorithm, envs, VectorReplayBuffer(20_000, 4), exploration_noise=True)
    algorithm.run_training(kind(training_collector=collector, **rhythm))
    return PEER_STEPS


def rllib(bonus: str | None) -> int:
    """RLlib's PPO, all of it in this process."""
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig

    from ex2.adapters.rllib import with_bonus

    ray.init(ignore_reinit_error=True, include_dashboard=False, log_to_driver=False, num_cpus=1)
    config = PPOConfig().environment(CAR).env_runners(num_env_runners=0).debugging(seed=0, log_level="ERROR")
    config = config.training(train_batch_size=1_000, minibatch_size=100, num_epochs=4)
    algorithm = (config if bonus is None else with_bonus(config, bonus, total_steps=PEER_STEPS)).build_algo()
    for _ in range(PEER_STEPS // 1_000):
        algorithm.train()
    algorithm.stop()
    return PEER_STEPS


TRAININGS: dict[str, Callable[[str | None], int]] = {
    **{name: partial(sb3, name) for name in SB3},
    "vector": vector,
    "TorchRL PPO": torchrl,
    "Tianshou PPO": partial(tianshou, on_policy=True),
    "Tianshou DQN": partial(tianshou, on_policy=False),
    "RLlib PPO": rllib,
}


def compare(what: str, run: Callable[[str | None], int], bonuses: list[str], repeats: int) -> list[dict[str, str | float]]:
    seconds: dict[str | None, list[float]] = {chosen: [] for chosen in (None, *bonuses)}
    order, steps = list(seconds), 0
    for chosen in order:  # what is done once in a process
        run(chosen)
    for turn in range(repeats):
        random.Random(turn).shuffle(order)
        for chosen in order:
            started = time.process_time()
            steps = run(chosen)
            seconds[chosen].append(time.process_time() - started)
    plain = statistics.median(seconds[None])
    rows: list[dict[str, str | float]] = []
    for bonus in bonuses:
        own = statistics.median(seconds[bonus])
        low, ratio, high = statistics.quantiles([b / a for a, b in zip(seconds[None], seconds[bonus], strict=True)], n=4)
        row = {"ratio": round(ratio, 3), "low": round(low, 3), "high": round(high, 3), "steps_per_second": round(steps / own)}
        rows.append({"what": what, "bonus": bonus, "plain_seconds": round(plain, 2), "seconds": round(own, 2)} | row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", default=list(TRAININGS), choices=list(TRAININGS))
    parser.add_argument("--bonuses", nargs="+", default=["none", "kernel-exemplar"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("results/adapters/ratios.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for what in options.what:
        rows += compare(what, TRAININGS[what], options.bonuses, options.repeats)
        print(*rows[-len(options.bonuses) :], sep="\n", flush=True)
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
