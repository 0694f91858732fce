"""RLlib in the words of the conformance suite (`harnesses`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import ray
import torch
from harnesses import GAMMA, LAMBDA, WEIGHT, Played
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.evaluation.postprocessing import Postprocessing
from walk import Known, Walk, places

from ex2.adapters.rllib import with_bonus

PLAIN = {"weight": WEIGHT, "scaled": False, "centre": "none"}


@cache
def session() -> None:
    """Starts Ray, which takes seconds, once for all tests of a process; it stops by itself when that ends."""
    paths = {"PYTHONPATH": str(Path(__file__).parent)}
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": paths})


def learner(algorithm):
    return algorithm.learner_group._learner


def batch_of(algorithm, episodes):
    """What the pipeline of an algorithm's learner makes of episodes, which it changes."""
    one = learner(algorithm)
    made = one._learner_connector(rl_module=one.module, batch={}, episodes=episodes, shared_data={}, metrics=one.metrics)
    return {name: value.detach().numpy() for name, value in made["default_policy"].items() if hasattr(value, "detach")}


class Configured(Walk):
    """As RLlib makes environments; rewards are whole numbers, as many environments give them."""

    def __init__(self, config) -> None:
        super().__init__(config["kind"])

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, int(reward), *rest


class OwnModule(DefaultPPOTorchRLModule):
    """A module with layers of a user's own."""

    def setup(self):
        super().setup()
        self.own = torch.nn.Linear(2, 2)

    def _forward(self, batch, **keywords):
        return self._changed(super()._forward(batch, **keywords))

    def _forward_train(self, batch, **keywords):
        return self._changed(super()._forward_train(batch, **keywords))

    def _changed(self, outputs):
        return outputs | {Columns.ACTION_DIST_INPUTS: self.own(outputs[Columns.ACTION_DIST_INPUTS])}


class PPO:
    """PPO with an environment runner in this process, so that its random state is one that can be kept. What several runners
    in processes of their own gather, and a checkpoint of those, is in test_rllib.py."""

    def __init__(self, kind: str) -> None:
        session()
        self.kind = kind

    def known(self):
        walk = Walk(self.kind)
        return Known(walk.observation_space, walk.action_space)

    def config(self, bonus=None, **settings):
        made = (
            PPOConfig()
            .environment(Configured, env_config={"kind": self.kind})
            .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
            .training(gamma=GAMMA, lambda_=LAMBDA, train_batch_size=128, minibatch_size=64, num_epochs=2)
            .rl_module(model_config={"fcnet_hiddens": [8]})
            .debugging(seed=0)
        )
        return made if bonus is None else with_bonus(made, bonus, gather=1, **settings)

    def numbers(self, algorithm):
        state = learner(algorithm).module.get_state()["default_policy"]
        return np.concatenate([np.ravel(values) for values in state.values()])

    def play(self, bonus):
        """Left out is PPO's artificial step behind every stretch, from which it bootstraps and which the loss masks."""
        algorithm = self.config(bonus, **({} if bonus is None else PLAIN)).build_algo()
        batch = batch_of(algorithm, algorithm.env_runner_group.local_env_runner.sample(num_timesteps=256))
        with torch.no_grad():
            critic = learner(algorithm).module["default_policy"]
            values = critic.compute_values({Columns.OBS: torch.as_tensor(batch[Columns.OBS])}).numpy()
        algorithm.stop()
        real = batch[Columns.LOSS_MASK].astype(bool)
        ends, after = ~np.append(real[1:], False), np.append(values[1:], 0.0)
        rest = np.stack([batch[Columns.TERMINATEDS], batch[Columns.TRUNCATEDS], values, after])
        learned = batch[Postprocessing.VALUE_TARGETS]  # advantages are standardised
        where, learned, ends = (part[real][:, None] for part in (places(batch[Columns.OBS], 1), learned, ends))
        return Played(where, learned, rest[:, real], ends, GAMMA * LAMBDA, np.ones_like(ends))

    def trained(self, config, iterations=2):
        algorithm = config.build_algo()
        for _ in range(iterations):
            algorithm.train()
        found = self.numbers(algorithm)
        algorithm.stop()
        return found

    def train(self, weight):
        return self.trained(self.config() if weight is None else self.config("rnd", weight=weight, total_steps=256))

    def resumed(self, folder):
        """Whole episodes are sampled, so that no environment is between them when it is saved. RLlib does not save the
        coefficient of PPO's divergence from the policy before, which is therefore left out."""
        found = []
        for again in (False, True):
            config = self.config("kernel-exemplar", total_steps=512).training(use_kl_loss=False)
            algorithm = config.env_runners(batch_mode="complete_episodes").build_algo()
            for _ in range(2):
                algorithm.train()
            if again:
                path = algorithm.save_to_path(folder / "agent")
                state, numpys = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
                algorithm.stop()
                algorithm = Algorithm.from_checkpoint(path)
                torch.set_rng_state(state)
                np.random.set_state(numpys)  # noqa: NPY002
            for _ in range(2):
                algorithm.train()
            assert learner(algorithm).connector.explorer.metrics["exploration/std"] > 0
            found.append(self.numbers(algorithm))
            algorithm.stop()
        return found

    def evaluate(self):
        config = self.config(self.known(), weight=1000.0).evaluation(evaluation_interval=1, evaluation_duration=3)
        algorithm = config.build_algo()
        results = [algorithm.train() for _ in range(3)]
        algorithm.stop()
        rows = [part["env_runners"] for result in results for part in (result, result["evaluation"])]
        return [row[f"episode_return_{name}"] for row in rows for name in ("min", "max")]

    def own_policy(self):
        spec = RLModuleSpec(module_class=OwnModule, model_config={"fcnet_hiddens": [8]})
        return self.trained(self.config("rnd", weight="auto", total_steps=256).rl_module(rl_module_spec=spec))
