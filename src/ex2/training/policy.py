"""The agent: a Stable-Baselines3 algorithm with the network a preset asks for."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from gymnasium import spaces
from sb3_contrib import TRPO
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from ex2.errors import UsageError, unknown
from ex2.training.config import Config, Seeds

ALGORITHMS: dict[str, type[OnPolicyAlgorithm]] = {"trpo": TRPO, "ppo": PPO}
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


class Scaled(BaseFeaturesExtractor):
    """Bounded observations, scaled to [-1, 1]."""

    middle: Tensor
    reach: Tensor

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space, spaces.flatdim(space))
        self.register_buffer("middle", torch.as_tensor((space.high + space.low) / 2).flatten())
        self.register_buffer("reach", torch.as_tensor((space.high - space.low) / 2).flatten())

    def forward(self, observations: Tensor) -> Tensor:
        return (observations.flatten(1) - self.middle) / self.reach


class ScaledCriticPolicy(ActorCriticPolicy):
    """An actor that sees observations as they are, and a critic that sees them scaled."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "share_features_extractor": False})
        assert isinstance(self.observation_space, spaces.Box)
        self.vf_features_extractor = Scaled(self.observation_space)


def make_agent(config: Config, env: VecEnv) -> OnPolicyAlgorithm:
    """The algorithm of a configuration on its environments, seeded, and silent: what it logs is read from its logger."""
    policy = dict(config.policy)
    if policy.get("activation", "tanh") not in ACTIVATIONS:
        raise unknown("activation", policy["activation"], ACTIVATIONS)
    hidden = list(policy.get("hidden", [64, 64]))
    settings: dict[str, Any] = {
        "net_arch": {"pi": hidden, "vf": hidden},
        "activation_fn": ACTIVATIONS[policy.get("activation", "tanh")],
    }
    kind = ALGORITHMS[config.algo]
    seeds = Seeds.of(config.seed)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
            agent = kind(
                ScaledCriticPolicy if policy.get("scale_critic") else "MlpPolicy",
                env,
                n_steps=config.rollout_steps,
                policy_kwargs=settings,
                seed=seeds.algorithm,
                device=config.device,
                **config.algo_settings,
            )
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"{config.algo} does not take these settings ({error}): see its page in Stable-Baselines3.") from None
    env.seed(seeds.environment)
    agent.set_logger(Logger(None, []))
    return agent
