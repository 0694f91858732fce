"""The critic of a Stable-Baselines3 policy, for a bonus with returns of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn

from ex2.errors import UsageError


class PolicyValues(nn.Module):
    """The critic of a policy, copied, and from 0."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        if not isinstance(policy, ActorCriticPolicy) or hasattr(policy, "lstm_actor"):
            raise UsageError(
                f"episodic=False does not work with {type(policy).__name__}: its values need more than observations."
            )
        asked, _ = policy.obs_to_tensor(policy.observation_space.sample())
        with torch.no_grad():
            policy.get_distribution(asked)  # else it holds the last update's, which cannot be copied
        self.policy = copy.deepcopy(policy)
        nn.init.zeros_(self.policy.value_net.weight)
        nn.init.zeros_(self.policy.value_net.bias)
        weights = list(self.policy.parameters())
        parts = torch.autograd.grad(self(asked).sum(), weights, allow_unused=True)
        self._used = [weight for weight, part in zip(weights, parts, strict=True) if part is not None]

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Those that values depend on: of an actor's own layers there is nothing to learn."""
        return iter(self._used)

    def forward(self, observations: Tensor) -> Tensor:
        return self.policy.predict_values(observations)
