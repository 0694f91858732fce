"""Tianshou 2 in the words of the conformance suite (`harnesses`)."""

from __future__ import annotations

import pickle

import numpy as np
import tianshou.algorithm as algorithms
import torch
from harnesses import GAMMA, LAMBDA, WEIGHT, Played
from tianshou.algorithm.algorithm_base import TrainingStats
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.modelfree.sac import SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.exploration import GaussianNoise
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import ModuleWithVectorOutput
from tianshou.utils.net.continuous import ContinuousActorDeterministic, ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch import nn
from walk import Features, Known, Walk, places

from ex2.adapters.tianshou import BonusOffPolicyWrapper, BonusOnPolicyWrapper, plain

PLAIN = {"weight": WEIGHT, "scaled": False, "centre": "none"}
OPTIM = AdamOptimizerFactory(lr=1e-2)
COUNTERS = ("_iter", "_cnt", "_last")
"""Of updates, which Tianshou's DQN and TD3 do not save."""


class Seen(ModuleWithVectorOutput):
    """Features of observations of any kind, as Tianshou's networks take them."""

    def __init__(self, kind: str) -> None:
        super().__init__(8)
        self.features = Features(kind)

    def forward(self, obs, state=None, info=None):
        return self.features(obs), state


class Values(nn.Module):
    """Q-values of the two actions, or a row of quantiles of each."""

    def __init__(self, seen: Seen, quantiles: int = 1) -> None:
        super().__init__()
        self.seen, self.last, self.quantiles = seen, nn.Linear(8, 2 * quantiles), quantiles

    def forward(self, obs, state=None, info=None):
        features, state = self.seen(obs, state)
        found = self.last(features)
        return (found if self.quantiles == 1 else found.unflatten(-1, (2, self.quantiles))), state


class Critic(ContinuousCritic):
    """Takes dicts, which Tianshou's own does not."""

    def __init__(self, kind: str) -> None:
        super().__init__(preprocess_net=ModuleWithVectorOutput.from_module(Features(kind), 9))

    def forward(self, obs, act, info=None):
        return self.last(torch.cat([self.preprocess(obs), torch.as_tensor(act)], -1))


class OnPolicy:
    """PPO, A2C, NPG and TRPO."""

    wrapper, parameters, settings, steps, continuous = BonusOnPolicyWrapper, OnPolicyTrainerParams, {"gather": 1}, 128, False
    rhythm = {"batch_size": 32, "collection_step_num_env_steps": 64, "update_step_num_repetitions": 2}  # noqa: RUF012

    def __init__(self, algorithm: str, kind: str) -> None:
        self.algorithm, self.kind = getattr(algorithms, algorithm), kind
        self.walk = Walk(kind, self.continuous)
        self.spaces = {"action_space": self.walk.action_space, "observation_space": self.walk.observation_space}
        self.policy = DiscreteActorPolicy

    def envs(self):
        made = DummyVectorEnv([lambda: Walk(self.kind, self.continuous)] * 2)
        made.seed(0)
        return made

    def known(self):
        return Known(self.walk.observation_space, self.walk.action_space)

    def bare(self):
        """The algorithm without a bonus."""
        actor = DiscreteActor(preprocess_net=self.seen(), action_shape=2)
        critic = DiscreteCritic(preprocess_net=self.seen())
        policy = self.policy(actor=actor, **self.spaces)
        return self.algorithm(policy=policy, critic=critic, optim=OPTIM, gamma=GAMMA, gae_lambda=LAMBDA)

    def seen(self):
        return Seen(self.kind)

    def agent(self, bonus=None, seed=0, **settings):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (which Tianshou draws from)
        bare = self.bare()
        return bare if bonus is None else self.wrapper(bare, bonus, **self.settings | settings)

    def buffer(self):
        return VectorReplayBuffer(400, 2)

    def learn(self, agent, buffer, steps=None, tests=False, **rhythm):
        """Returns those of the episodes of the training and of a test, as Tianshou's collectors report them."""
        returns = []

        class Reports(Collector[CollectStats]):
            def collect(self, *args, **keywords):
                found = super().collect(*args, **keywords)
                returns.extend(found.returns)
                return found

        parameters = self.parameters(
            training_collector=Reports(agent, self.envs(), buffer, exploration_noise=True),
            test_collector=Reports(agent, self.envs()) if tests else None,
            test_step_num_episodes=3,
            max_epochs=1,
            epoch_num_steps=steps or self.steps,
            verbose=False,
            show_progress=False,
            **self.rhythm | rhythm,
        )
        agent.run_training(parameters)
        return returns

    def numbers(self, agent):
        state = getattr(agent, "wrapped_algorithm", agent).state_dict()
        return np.concatenate([values.numpy().ravel() for values in state.values() if isinstance(values, torch.Tensor)])

    def learned_from(self, bonus, **rhythm):
        """The batch that an agent would learn from, if it did."""
        agent, batches = self.agent(bonus, **({} if bonus is None else PLAIN)), []

        def kept(batch, *args, **keywords):
            batches.append(batch)
            return TrainingStats()

        getattr(agent, "wrapped_algorithm", agent)._update_with_batch = kept
        self.learn(agent, self.buffer(), **rhythm)
        (batch,) = batches
        return batch, places(plain(batch.obs), 1)

    def play(self, bonus):
        batch, where = self.learned_from(bonus, collection_step_num_env_steps=self.steps)

        def columns(values):
            return np.asarray(values).reshape(2, -1).T  # the buffer holds one environment behind the other

        ends = columns(batch.terminated | batch.truncated)
        rest = np.stack([columns(values) for values in (batch.v_s, batch.terminated, places(plain(batch.obs_next), 1))])
        return Played(columns(where), columns(batch.returns), rest, ends, GAMMA * LAMBDA, np.ones_like(ends))

    def train(self, weight):
        agent = self.agent() if weight is None else self.agent("rnd", weight=weight)
        self.learn(agent, self.buffer())
        return self.numbers(agent)

    def resumed(self, folder):
        """All but the environments is read back; these cannot be saved, so both times their episodes begin anew."""
        found = []
        for again in (False, True):
            agent, buffer = self.agent("kernel-exemplar", total_steps=2 * self.steps), self.buffer()
            self.learn(agent, buffer)
            if again:
                torch.save(agent.state_dict(), folder / "agent")
                (folder / "buffer").write_bytes(pickle.dumps(buffer))
                state, numpys, before = torch.get_rng_state(), np.random.get_state(), agent.wrapped_algorithm  # noqa: NPY002
                agent = self.agent("kernel-exemplar", seed=1, total_steps=2 * self.steps)
                agent.load_state_dict(torch.load(folder / "agent"))
                buffer = pickle.loads((folder / "buffer").read_bytes())
                buffer.set_batch(buffer._meta)  # whose parts Tianshou reads as copies of it, which then go stale
                vars(agent.wrapped_algorithm).update({name: vars(before)[name] for name in COUNTERS if name in vars(before)})
                torch.set_rng_state(state)
                np.random.set_state(numpys)  # noqa: NPY002
            self.learn(agent, buffer)
            assert agent.explorer.metrics["exploration/std"] > 0
            found.append(self.numbers(agent))
        return found

    def evaluate(self):
        return self.learn(self.agent(self.known(), weight=1000.0), self.buffer(), tests=True)

    def own_policy(self):
        """A policy and networks of a user's own."""

        class OwnSeen(Seen):
            pass

        self.seen, self.policy = lambda: OwnSeen(self.kind), type("OwnPolicy", (self.policy,), {})
        return self.train("auto")


class OffPolicy(OnPolicy):
    """DQN and QRDQN."""

    wrapper, parameters, settings, steps = BonusOffPolicyWrapper, OffPolicyTrainerParams, {"gather": 40}, 160
    rhythm = {"batch_size": 64, "collection_step_num_env_steps": 16, "update_step_num_gradient_steps_per_sample": 0.125}  # noqa: RUF012

    def __init__(self, algorithm: str, kind: str) -> None:
        super().__init__(algorithm, kind)
        self.policy = QRDQNPolicy if algorithm == "QRDQN" else DiscreteQLearningPolicy

    def bare(self):
        quantiles = {"num_quantiles": 5} if issubclass(self.policy, QRDQNPolicy) else {}
        policy = self.policy(model=Values(self.seen(), *quantiles.values()), eps_training=0.9, **self.spaces)
        return self.algorithm(policy=policy, optim=OPTIM, gamma=GAMMA, target_update_freq=3, **quantiles)

    def play(self, bonus):
        """Of several targets of a step, of quantiles, each has to have the bonus in it."""
        once = {"collection_step_num_env_steps": 200, "update_step_num_gradient_steps_per_sample": 1 / 200}
        batch, where = self.learned_from(bonus, steps=200, **once)
        returns = batch.returns.numpy().reshape(64, -1)
        each = returns.shape[1]
        rest = [returns - batch.rew[:, None], np.tile(batch.terminated[:, None], each)]
        where, ends = np.repeat(where, each)[None], np.ones((1, 64 * each), bool)
        return Played(where, returns.reshape(1, -1), np.stack(rest), ends, 0.0, ends)


class Continuous(OffPolicy):
    """SAC and TD3."""

    continuous = True

    def __init__(self, algorithm: str, kind: str) -> None:
        super().__init__(algorithm, kind)
        self.policy = SACPolicy if algorithm == "SAC" else ContinuousDeterministicPolicy

    def bare(self):
        known = {"preprocess_net": self.seen(), "action_shape": (1,)}
        if issubclass(self.policy, SACPolicy):
            actor, noise = ContinuousActorProbabilistic(**known, unbounded=True, conditioned_sigma=True), None
        else:
            actor, noise = ContinuousActorDeterministic(**known), GaussianNoise(sigma=0.9)
        policy = self.policy(actor=actor, exploration_noise=noise, **self.spaces)
        return self.algorithm(
            policy=policy, policy_optim=OPTIM, critic=Critic(self.kind), critic_optim=OPTIM, gamma=GAMMA, tau=0.1
        )
