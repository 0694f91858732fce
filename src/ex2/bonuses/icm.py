"""The intrinsic curiosity module (Pathak et al. 2017): novel is what an agent cannot foresee of its own doing."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from ex2.batch import Batch
from ex2.bonus import Metrics
from ex2.bonuses.learned import CHUNK, ErrorBonus
from ex2.errors import UsageError
from ex2.inputs import Inputs
from ex2.networks import LARGEST, Stem, mlp


class Networks(nn.Module):
    """Features phi, the inverse model (phi, phi') -> action, and the forward model (phi, action) -> phi'."""

    def __init__(self, inputs: Inputs, actions: int, hidden: int, features: int) -> None:
        super().__init__()
        self.stem = Stem(inputs)
        self.features = nn.Sequential(mlp([self.stem.width, hidden], nn.ELU), nn.Linear(hidden, features))
        self.inverse = nn.Sequential(mlp([2 * features, hidden], nn.ReLU), nn.Linear(hidden, actions))
        self.forward_model = nn.Sequential(mlp([features + actions, hidden], nn.ReLU), nn.Linear(hidden, features))

    def forward(self, before: Tensor, action: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """1/2 ||phi^' - phi'||^2 [M], and the inverse model's answers [M, actions]."""
        pictures, numbers = self.stem.standardised(torch.cat([before, after]))
        # One number far outside what was seen must not be all that counts, as in RND and VIME.
        seen = self.features(self.stem.see(pictures, numbers.clamp(-LARGEST, LARGEST)))
        old, new = seen.split(len(before))
        foreseen = self.forward_model(torch.cat([old, action], dim=1))
        return 0.5 * (foreseen - new).square().sum(1), self.inverse(torch.cat([old, new], dim=1))


class IntrinsicCuriosity(ErrorBonus):
    """How far the features of the next state are from those foreseen from the state and the action: 1/2 ||phi^' - phi'||^2.

    Features are what it takes to tell which action was taken, so what an agent has no hand in leaves no trace in them:

        minimise (1 - forward_share) * inverse loss + forward_share * forward loss,

    the inverse loss being cross-entropy for discrete actions and squared error for all others, scaled to [-1, 1] if bounded.
    Errors are divided by the running deviation of their discounted sums, which the paper leaves to the weight.

    Args:
        hidden, features: sizes of the networks.
        forward_share: the paper's beta.
    """

    networks: Networks
    fixed = frozenset({"inputs", "action_scale"})

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        hidden: int = 64,
        features: int = 32,
        forward_share: float = 0.2,
        **settings: Any,
    ) -> None:
        if min(hidden, features) < 1 or not 0.0 < forward_share < 1.0:
            raise UsageError(
                f"hidden={hidden} and features={features} must be at least 1, forward_share={forward_share} between 0 and 1."
            )
        self.sizes = {"hidden": hidden, "features": features}
        self.forward_share = forward_share
        super().__init__(observation_space, action_space, **settings)

    def check(self, batch: Batch) -> None:
        self.inputs.check(batch, transitions=True)

    def build(self) -> nn.Module:
        return Networks(self.inputs, self.inputs.actions, **self.sizes)

    def loss(self, *fields: Tensor) -> Tensor:
        before, action, after = fields
        error, answers = self.networks(before, action, after)
        discrete = isinstance(self.inputs.action_space, spaces.Discrete)
        inverse = cross_entropy(answers, action) if discrete else mse_loss(answers, action)
        return (1.0 - self.forward_share) * inverse + self.forward_share * error.mean()

    @torch.no_grad()
    def errors(self, batch: Batch) -> Tensor:
        parts = zip(*(field.split(CHUNK) for field in self.inputs.transitions(batch)), strict=True)
        return torch.cat([self.networks(*(field.to(self.device) for field in part))[0].cpu() for part in parts])

    def fit(self, batch: Batch) -> Metrics:
        before, _, _ = self.inputs.transitions(batch)
        self.networks.stem.update(before)
        return super().fit(batch)

    def remember(self, batch: Batch) -> None:
        self.learn(*self.inputs.transitions(batch))
