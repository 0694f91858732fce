"""The agent: a Stable-Baselines3 algorithm with the network a preset asks for."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from ex2.errors import UsageError, unknown
from ex2.inputs import is_bounded
from ex2.networks import CLIPPED_AT, Moments
from ex2.training.config import Config, Seeds
from ex2.training.frames import FrameRolloutBuffer
from ex2.training.rollout import Rollouts
from ex2.training.trpo import TRPO


class PPO(Rollouts, stable_baselines3.PPO):
    """Stable-Baselines3's PPO, with faster rollouts."""


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


class Standardised(BaseFeaturesExtractor):
    """Vectors, each number by its running mean and deviation: small ones (a sensor's) are heard beside large ones (a speed)."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space, spaces.flatdim(space))
        self.moments = Moments(self.features_dim)

    def forward(self, observations: Tensor) -> Tensor:
        return self.moments(observations.flatten(1)).clamp(-CLIPPED_AT, CLIPPED_AT)


def take_in(agent: OnPolicyAlgorithm) -> None:
    """Takes the observations of a rollout into the moments of a critic that standardises."""
    extractor = agent.policy.vf_features_extractor
    if isinstance(extractor, Standardised):
        seen = agent.rollout_buffer.observations
        extractor.moments.update(torch.as_tensor(seen.reshape(-1, extractor.features_dim), device=agent.device))


class Convolutions(BaseFeaturesExtractor):
    """Images [M, channels, height, width] through convolutions of (filters, kernel, stride), each followed by a relu."""

    def __init__(self, space: spaces.Box, layers: list[list[int]]) -> None:
        channels, height, width = space.shape
        convolutions: list[nn.Module] = []
        for layer in layers:
            if not isinstance(layer, list) or len(layer) != 3 or min(layer) < 1:
                raise UsageError(f"The convolution {layer} is not [filters, kernel, stride], each at least 1.")
            filters, kernel, stride = layer
            convolutions += [nn.Conv2d(channels, filters, kernel, stride), nn.ReLU()]
            channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if min(height, width) < 1:
            raise UsageError(f"Images of shape {space.shape} are too small for the convolutions {layers}.")
        super().__init__(space, channels * height * width)
        self.layers = nn.Sequential(*convolutions, nn.Flatten())

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations)


class ScaledCriticPolicy(ActorCriticPolicy):
    """An actor that sees observations as they are, and a critic that sees them scaled, or standardised."""

    def __init__(self, *args: Any, critic_features: type[Scaled] | type[Standardised] = Scaled, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "share_features_extractor": False})
        assert isinstance(self.observation_space, spaces.Box)
        self.vf_features_extractor = critic_features(self.observation_space)


def make_agent(config: Config, env: VecEnv) -> OnPolicyAlgorithm:
    """The algorithm of a configuration on its environments, seeded, and silent: what it logs is read from its logger."""
    policy = dict(config.policy)
    if policy.get("activation", "tanh") not in ACTIVATIONS:
        raise unknown("activation", policy["activation"], ACTIVATIONS)
    hidden = list(policy.get("hidden", [64, 64]))
    if not all(type(units) is int and units > 0 for units in hidden):
        raise UsageError(f"hidden={hidden} must be whole numbers of at least 1, the units of each layer.")
    critic = list(policy.get("critic_hidden", hidden))
    if not all(type(units) is int and units > 0 for units in critic):
        raise UsageError(f"critic_hidden={critic} must be whole numbers of at least 1, the units of each layer.")
    if config.algo_settings.get("use_sde"):
        raise UsageError("use_sde is not for our rollouts, which draw each action by itself: leave it out.")
    if policy.get("initial_std", 1.0) <= 0.0:
        raise UsageError(f"initial_std={policy['initial_std']} must be above 0.")
    space = env.observation_space
    if policy.get("scale_critic") and not (is_bounded(space) and np.issubdtype(space.dtype, np.floating)):
        raise UsageError(f"scale_critic needs observations with bounds to scale by, not {space}.")
    if policy.get("standardise_critic") and (len(space.shape or ()) != 1 or policy.get("scale_critic")):
        raise UsageError(f"standardise_critic is for vectors, not for {space}, and not together with scale_critic.")
    if config.stack > 1 and (len(space.shape or ()) != 3 or space.shape[0] != config.stack):  # type: ignore[index]
        raise UsageError(
            f"stack={config.stack} does not fit observations of shape {space.shape}: it must be their first number."
        )
    settings: dict[str, Any] = {
        "net_arch": {"pi": hidden, "vf": critic},
        "activation_fn": ACTIVATIONS[policy.get("activation", "tanh")],
        "log_std_init": math.log(policy.get("initial_std", 1.0)),
        "optimizer_kwargs": {"eps": 1e-5, "fused": True},  # a kernel for all parameters, where Adam would have dozens
    }
    if policy.get("standardise_critic"):
        settings["critic_features"] = Standardised
    if "convolutions" in policy:
        # The critic has layers of its own: TRPO's trust region holds for the actor's parameters only.
        settings |= {
            "features_extractor_class": Convolutions,
            "features_extractor_kwargs": {"layers": policy["convolutions"]},
            "share_features_extractor": False,
        }
    kind = ALGORITHMS[config.algo]
    seeds = Seeds.of(config.seed)
    horizon: dict[str, Any] = {"total_steps": config.steps} if config.algo == "trpo" else {}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
            if "convolutions" in policy:  # which it does not recognise, and calls wasted on a GPU
                warnings.filterwarnings("ignore", message="You are trying to run")
            agent = kind(
                ScaledCriticPolicy if policy.get("scale_critic") or policy.get("standardise_critic") else "MlpPolicy",
                env,
                n_steps=config.rollout_steps,
                policy_kwargs=settings,
                rollout_buffer_class=FrameRolloutBuffer if config.stack > 1 else None,
                seed=seeds.algorithm,
                device=config.device,
                **horizon,
                **config.algo_settings,
            )
    except (TypeError, ValueError, AssertionError, ZeroDivisionError) as error:
        raise UsageError(f"{config.algo} does not take these settings ({error}): see its page in Stable-Baselines3.") from None
    if policy.get("zero_critic"):
        # Without a reward, targets and advantages then stay exactly 0 and the agent stays as it is. A critic that begins with
        # random values is explored after like a bonus, once its advantages are scaled to unit variance (docs/design.md).
        nn.init.zeros_(agent.policy.value_net.weight)
        nn.init.zeros_(agent.policy.value_net.bias)
    env.seed(seeds.environment)
    agent.set_logger(Logger(None, []))
    return agent


def take_actor(policy: ActorCriticPolicy, other: dict[str, Tensor], source: str) -> None:
    """Begins with the actor of another run's policy, as it was saved; the critic stays as it is."""
    critic = ("value_net.", "mlp_extractor.value_net.", "vf_features_extractor.")
    own = {name for name in policy.state_dict() if not name.startswith(critic)}
    taken = {name: value for name, value in other.items() if name in own}
    try:
        if set(taken) != own:
            raise RuntimeError
        policy.load_state_dict(policy.state_dict() | taken)
    except RuntimeError:
        raise UsageError(
            f"The actor of {source} does not fit: its task, policy.hidden and policy.convolutions must be these."
        ) from None
