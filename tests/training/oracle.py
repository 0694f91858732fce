"""A rollout of ours, and the same rollout in the hands of Stable-Baselines3's algorithms."""

from __future__ import annotations

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from ex2.training.config import configure
from ex2.training.loop import Trainer
from ex2.training.returns import values_of


def rolled_out(task, algo="trpo", steps=None, **overrides):
    """A trainer with one rollout, random advantages [T, N] to learn from, and the returns that go with them."""
    settings = {"num_envs": 4, "rollout_steps": 32, "algo.batch_size": 32, "policy.zero_critic": False}
    settings |= {"algo.curvature_share": 1.0} if algo == "trpo" else {}
    trainer = Trainer(configure(task, "none", algo=algo, steps=steps, overrides=settings | overrides))
    rollout = trainer.collector.collect(trainer.config.rollout_steps)
    trainer.collector.close()
    values, _ = values_of(trainer.policy.critic, rollout)
    advantages = np.random.default_rng(1).normal(size=rollout.rewards.shape).astype(np.float32)
    return trainer, rollout, advantages, advantages + values[:-1]


class Spaces(gymnasium.Env):
    """Nothing but spaces."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


def theirs(kind, trainer, rollout, advantages, returns, **settings):
    """An algorithm of Stable-Baselines3 with our networks' weights and our rollout in its buffer."""
    policy, env = trainer.policy, trainer.collector.groups[0].env
    hidden = list(policy.settings.hidden)
    activation = {"relu": nn.ReLU, "tanh": nn.Tanh}[policy.settings.activation]
    model = kind(
        "MlpPolicy",
        DummyVecEnv([lambda: Spaces(env.single_observation_space, env.single_action_space)] * rollout.rewards.shape[1]),
        n_steps=len(rollout.rewards),
        gamma=trainer.algorithm.settings.gamma,
        gae_lambda=trainer.algorithm.settings.gae_lambda,
        learning_rate=trainer.algorithm.settings.learning_rate,
        policy_kwargs={
            "net_arch": {"pi": hidden, "vf": hidden},
            "activation_fn": activation,
            "optimizer_kwargs": {"eps": 1e-5},
        },
        device="cpu",
        **settings,
    )
    model.set_logger(Logger(None, []))
    for pair in pairs(policy, model.policy):
        pair[1].data.copy_(pair[0])
    buffer = model.rollout_buffer
    for step in range(len(rollout.rewards)):
        buffer.add(
            rollout.batch.obs[step].numpy(),
            rollout.actions.numpy().reshape(*advantages.shape, -1)[step],
            rollout.rewards[step],
            np.zeros(len(advantages[0])),
            torch.zeros(len(advantages[0])),
            torch.as_tensor(rollout.log_probs[step]),
        )
    buffer.advantages[:], buffer.returns[:] = advantages, returns
    return model


def pairs(ours, other):
    """Our parameters beside those of a policy of Stable-Baselines3."""
    linear = [layer for layer in ours.actor if isinstance(layer, nn.Linear)] + [ours.actor[-1].linear]
    beside = [layer for layer in other.mlp_extractor.policy_net if isinstance(layer, nn.Linear)] + [other.action_net]
    linear += [layer for layer in ours.critic if isinstance(layer, nn.Linear)]
    beside += [layer for layer in other.mlp_extractor.value_net if isinstance(layer, nn.Linear)] + [other.value_net]
    found = [(getattr(a, name), getattr(b, name)) for a, b in zip(linear, beside, strict=True) for name in ("weight", "bias")]
    return found if ours.actor[-1].log_std is None else [*found, (ours.actor[-1].log_std, other.log_std)]


def assert_same_update(policy, model, before):
    """Every parameter has moved as theirs has, up to float error: 2 % of the way."""
    moved = 0.0
    for (mine, other), was in zip(pairs(policy, model.policy), before, strict=True):
        change = (other - was).norm()
        moved += change.item()
        assert (mine - other).norm() <= 0.02 * change + 1e-6
    assert moved > 0.01
