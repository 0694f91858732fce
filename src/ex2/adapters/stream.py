"""Returns of a bonus that do not end with an episode, with a value function of their own (Burda et al. 2018, section 2.3).

What an agent has learned of the world is not lost when it dies, so neither should be what it may still find: with returns that
go on into the next episode, a risk on the way to something new costs no more than the way back.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

from ex2.errors import UsageError
from ex2.networks import Moments
from ex2.training.rollout import Observations, critic_of, fit_critic, prepared

EPOCHS = 4  # over a rollout
MINIBATCH = 500
LEARNING_RATE = 1e-3


class Stream:
    """A critic like the agent's own, from 0, and the advantages of scores that it leaves."""

    def __init__(self, model: OnPolicyAlgorithm, seed: int) -> None:
        if not isinstance(model.policy, ActorCriticPolicy) or hasattr(model.policy, "lstm_actor"):
            raise UsageError(
                f"episodic=False does not work with {type(model.policy).__name__}: its values need more than observations."
            )
        self.model = model
        self.generator = torch.Generator().manual_seed(seed)
        shared = {id(module): module for module in model.policy.modules() if isinstance(module, Moments)}
        self.policy = copy.deepcopy(model.policy, shared)  # all but the moments that the agent's critic standardises by
        nn.init.zeros_(self.policy.value_net.weight)
        nn.init.zeros_(self.policy.value_net.bias)
        self.critic = critic_of(self.policy)
        self.optimiser = torch.optim.Adam(self.critic.parameters(), LEARNING_RATE)
        self.scale = 0.0  # of the values: the deviation of the first rollout's returns, which may be in the hundreds

    def take(self, scores: np.ndarray) -> np.ndarray:
        """The advantages of a rollout's scores [T, N], by generalised advantage estimation over the ends of episodes; then fits
        the critic to their returns. The value behind the last step is that of the observation the next rollout begins with.
        """
        model = self.model
        if not self.scale:  # the critic's values were 0, whatever their scale
            returns = np.zeros((len(scores) + 1, scores.shape[1]))
            for step in reversed(range(len(scores))):
                returns[step] = scores[step] + model.gamma * returns[step + 1]
            self.scale = float(returns[:-1].std())
        seen = Observations(model.rollout_buffer, self.policy)
        with torch.no_grad():
            last = self.critic(prepared(self.policy, model._last_obs))
        values = self.scale * torch.cat([seen.through(self.critic), last]).cpu().numpy().reshape(len(scores) + 1, -1)
        found, running = np.zeros_like(scores), np.zeros(scores.shape[1], scores.dtype)
        for step in reversed(range(len(scores))):
            running = scores[step] + model.gamma * values[step + 1] - values[step] + model.gamma * model.gae_lambda * running
            found[step] = running
        returns = (found + values[:-1]).ravel() / (self.scale or 1.0)
        fit_critic(self.critic, self.optimiser, seen, returns, epochs=EPOCHS, batch_size=MINIBATCH, generator=self.generator)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale,
            "critic": self.critic.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scale = float(state["scale"])
        self.critic.load_state_dict(state["critic"])
        self.optimiser.load_state_dict(self.optimiser.state_dict() | {"state": copy.deepcopy(state["optimiser"]["state"])})
        self.generator.set_state(state["generator"])
