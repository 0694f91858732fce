"""The agent: an actor and its critics, as plain modules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from ex2.errors import UsageError
from ex2.networks import CLIPPED_AT, Moments
from ex2.settings import Settings, setting
from ex2.training.distributions import Categorical, Gaussian, distribution_of

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
HIDDEN_GAIN, ACTION_GAIN, VALUE_GAIN = math.sqrt(2.0), 0.01, 1.0  # of the orthogonal initial weights


@dataclass(frozen=True, kw_only=True)
class PolicySettings(Settings):
    """The networks of an agent."""

    hidden: tuple[int, ...] = setting((64, 64), "Units of the actor's layers.", least=1, most=65_536)
    critic_hidden: tuple[int, ...] | None = setting(
        None, "Units of the critic's layers; None for those of the actor.", least=1, most=65_536
    )
    activation: str = setting("tanh", "Behind each layer.", among=tuple(ACTIVATIONS))
    convolutions: tuple[tuple[int, ...], ...] = setting(
        (), "(filters, kernel, stride) of each layer before those, a relu behind each; for pictures.", least=1
    )
    standardise: str = setting(
        "both",
        "Who sees each number of a vector by its running mean and deviation, so that small ones are heard beside large ones.",
        among=("none", "critic", "both"),
    )
    zero_critic: bool = setting(
        True,
        "The critic begins with 0 everywhere. Without a reward, targets and advantages then stay exactly 0 and the agent stays "
        "as it is; a critic that begins with random values is explored after like a bonus.",
    )
    initial_std: float = setting(1.0, "Of actions at the start, for Box.", above=0)

    def check(self) -> None:
        if any(len(layer) != 3 for layer in self.convolutions):
            raise UsageError(f"convolutions={self.convolutions} must be (filters, kernel, stride) for each layer.")


class Standardised(nn.Module):
    """Each number by the running mean and deviation that all who standardise share."""

    def __init__(self, moments: Moments) -> None:
        super().__init__()
        self.moments = moments

    def forward(self, observations: Tensor) -> Tensor:
        seen: Tensor = self.moments(observations)
        return seen.clamp(-CLIPPED_AT, CLIPPED_AT)


class Outputs(nn.Module):
    """An actor's last layer: logits, or means beside log deviations, which are parameters of their own."""

    def __init__(self, width: int, kind: Categorical | Gaussian, log_std: float) -> None:
        super().__init__()
        gaussian = isinstance(kind, Gaussian)
        self.linear = _linear(width, kind.size if isinstance(kind, Gaussian) else kind.width, ACTION_GAIN)
        self.log_std = nn.Parameter(torch.full((kind.width // 2,), log_std)) if gaussian else None

    def forward(self, features: Tensor) -> Tensor:
        outputs = self.linear(features)
        return outputs if self.log_std is None else torch.cat([outputs, self.log_std.expand_as(outputs)], 1)


class Policy(nn.Module):
    """Actor, critic and, where a bonus's returns do not end with an episode, a critic for those; no layer is shared.

    (TRPO's trust region holds for the actor's parameters only, so a critic must not move them.)
    """

    def __init__(
        self,
        observation_space: spaces.Space[object],
        action_space: spaces.Space[object],
        settings: PolicySettings,
        episodic: bool = True,
    ) -> None:
        super().__init__()
        self.observation_space, self.settings = observation_space, settings
        self.actions = distribution_of(action_space)
        self.pictures = is_picture(observation_space)
        self.width = _width(observation_space)
        if settings.convolutions and not self.pictures:
            raise UsageError(f"convolutions are for pictures, uint8 of three dimensions, not for {observation_space}.")
        self.moments = None if settings.standardise == "none" or self.pictures else Moments(self.width)
        self.actor = self._network(settings.hidden, "actor")
        self.critic = self._network(settings.critic_hidden or settings.hidden, "critic")
        self.bonus_critic = None
        if not episodic:
            self.bonus_critic = self._network(settings.critic_hidden or settings.hidden, "critic")
        for critic in (self.critic if settings.zero_critic else None, self.bonus_critic):
            if critic is not None:
                for value in critic[-1].parameters():
                    nn.init.zeros_(value)

    def _network(self, hidden: tuple[int, ...], role: str) -> nn.Sequential:
        settings, layers = self.settings, list[nn.Module]()
        width = self.width
        if settings.convolutions:
            layers, width = _convolutions(_channels_first(self.observation_space), settings.convolutions)
        elif self.pictures:
            layers.append(nn.Flatten())
        elif self.moments is not None and settings.standardise in (role, "both"):
            layers.append(Standardised(self.moments))
        for before, after in itertools.pairwise([width, *hidden]):
            layers += [_linear(before, after, HIDDEN_GAIN), ACTIVATIONS[settings.activation]()]
        last = hidden[-1] if hidden else width
        if role == "critic":
            return nn.Sequential(*layers, _linear(last, 1, VALUE_GAIN))
        assert isinstance(self.actions, Categorical | Gaussian)
        return nn.Sequential(*layers, Outputs(last, self.actions, math.log(settings.initial_std)))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def actor_now(self) -> Callable[[Tensor], Tensor]:
        """The actor as it is, without what modules do around each layer: for the many small calls of a rollout."""
        steps = [step for layer in self.actor for step in _plain(layer)]

        def act(seen: Tensor) -> Tensor:
            for step in steps:
                seen = step(seen)
            return seen

        return act

    def see(self, observations: Tensor) -> Tensor:
        """Observations [M, ...] as environments give them -> what networks take: floats, pictures channels first, 0 to 1."""
        space = self.observation_space
        if self.pictures:
            first = observations.permute(0, 3, 1, 2) if _channels_last(space) else observations
            return first.to(torch.float32, memory_format=torch.channels_last).mul_(1.0 / 255.0)
        if isinstance(space, spaces.Discrete):
            return nn.functional.one_hot((observations - int(space.start)).long(), int(space.n)).float()
        if isinstance(space, spaces.MultiDiscrete):
            places = observations.long().flatten(1) - torch.as_tensor(space.start.flatten(), device=observations.device)
            parts = zip(places.unbind(1), space.nvec.flatten().tolist(), strict=True)
            return torch.cat([nn.functional.one_hot(part, count) for part, count in parts], 1).float()
        return observations.reshape(len(observations), -1).float()

    @torch.no_grad()
    def act(self, observations: np.ndarray, generator: torch.Generator, deterministic: bool = False) -> np.ndarray:
        """Actions for observations [N, ...], as an environment takes them."""
        parameters = self.actor(self.see(torch.as_tensor(observations, device=self.device))).cpu()
        noise = self.actions.noise(1, len(observations), generator)[0]
        chosen = self.actions.mode(parameters) if deterministic else self.actions.sample(parameters, noise)
        return self.actions.to_env(chosen.numpy())

    def take_in(self, observations: Tensor) -> None:
        """Takes observations [M, ...] into the moments that numbers are standardised by."""
        if self.moments is not None:
            self.moments.update(self.see(observations))

    def take_actor(self, other: Mapping[str, Tensor], source: str) -> None:
        """Begins with the actor of another run's policy, as it was saved; the critics stay as they are."""
        taken = {name.removeprefix("actor."): value for name, value in other.items() if name.startswith("actor.")}
        try:
            self.actor.load_state_dict(taken)
        except RuntimeError:
            raise UsageError(
                f"The actor of {source} does not fit: task and policy.hidden, convolutions, standardise must be these."
            ) from None


def _plain(layer: nn.Module) -> list[Callable[[Tensor], Tensor]]:
    """A layer as functions, its parameters as they are."""
    if isinstance(layer, nn.Linear):
        return [partial(_affine, layer.bias.detach(), layer.weight.detach().T)]
    if isinstance(layer, nn.ReLU):
        return [torch.relu_]
    if isinstance(layer, nn.Tanh):
        return [torch.tanh_]
    if isinstance(layer, Standardised):
        return [layer.moments.now(), lambda seen: seen.clamp_(-CLIPPED_AT, CLIPPED_AT)]
    if isinstance(layer, Outputs):
        return [*_plain(layer.linear), *([] if layer.log_std is None else [partial(_beside, layer.log_std.detach())])]
    return [layer]


def _affine(bias: Tensor, weight: Tensor, seen: Tensor) -> Tensor:
    return torch.addmm(bias, seen, weight)


def _beside(log_std: Tensor, means: Tensor) -> Tensor:
    return torch.cat([means, log_std.expand_as(means)], 1)


def _linear(before: int, after: int, gain: float) -> nn.Linear:
    layer = nn.Linear(before, after)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def _convolutions(shape: tuple[int, ...], wanted: tuple[tuple[int, ...], ...]) -> tuple[list[nn.Module], int]:
    """Layers for pictures of this shape, channels first, and the width of what they give."""
    channels, height, width = shape
    layers: list[nn.Module] = []
    for filters, kernel, stride in wanted:
        layer = nn.Conv2d(channels, filters, kernel, stride)
        nn.init.orthogonal_(layer.weight, HIDDEN_GAIN)
        assert layer.bias is not None
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
        channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    if min(height, width) < 1:
        raise UsageError(f"Images of shape {shape} are too small for the convolutions {wanted}.")
    return [*layers, nn.Flatten()], channels * height * width


def is_picture(space: spaces.Space[object]) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3


def _channels_last(space: spaces.Space[object]) -> bool:
    """Whether a picture's channels are its last dimension, as `ex2.inputs` tells it."""
    assert space.shape is not None
    return space.shape[2] < space.shape[0]


def _channels_first(space: spaces.Space[object]) -> tuple[int, ...]:
    assert space.shape is not None
    return (space.shape[2], *space.shape[:2]) if _channels_last(space) else tuple(space.shape)


def _width(space: spaces.Space[object]) -> int:
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise UsageError(f"A policy does not take observations of {space}: use Box, Discrete, MultiDiscrete or MultiBinary.")
    return int(spaces.flatdim(space))
