"""The intrinsic curiosity module (Pathak et al. 2017): novel is what an agent cannot foresee of its own doing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from ex2.batch import Batch
from ex2.bonus import EntrySettings, Metrics
from ex2.bonuses.learned import RATED_AT_ONCE, ErrorBonus, ErrorSettings
from ex2.inputs import Inputs
from ex2.networks import CLIPPED_AT, Stem, mlp
from ex2.settings import setting


class Curiosity(nn.Module):
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
        seen = self.features(self.stem.see(pictures, numbers.clamp(-CLIPPED_AT, CLIPPED_AT)))
        old, new = seen.split(len(before))
        foreseen = self.forward_model(torch.cat([old, action], dim=1))
        return 0.5 * (foreseen - new).square().sum(1), self.inverse(torch.cat([old, new], dim=1))


@dataclass(frozen=True, kw_only=True)
class IntrinsicCuriositySettings(ErrorSettings, EntrySettings):
    hidden: int = setting(64, "units of the networks' hidden layers", least=1)
    features: int = setting(32, "how many features there are", least=1)
    forward_share: float = setting(0.2, "the forward model's share of the loss, the paper's beta", above=0.0, below=1.0)


class IntrinsicCuriosity(ErrorBonus):
    """How far the features of the next state are from those foreseen from the state and the action: 1/2 ||phi^' - phi'||^2.

    Features are what it takes to tell which action was taken, so what an agent has no hand in leaves no trace in them:

        minimise (1 - forward_share) * inverse loss + forward_share * forward loss,

    the inverse loss being cross-entropy for discrete actions and squared error for all others, scaled to [-1, 1] if bounded.
    """

    Settings = IntrinsicCuriositySettings
    settings: IntrinsicCuriositySettings
    networks: Curiosity

    def check(self, batch: Batch) -> None:
        self.inputs.check(batch, transitions=True)

    def build(self) -> nn.Module:
        return Curiosity(self.inputs, self.inputs.actions, self.settings.hidden, self.settings.features)

    def loss(self, *fields: Tensor) -> Tensor:
        before, action, after = fields
        error, answers = self.networks(before, action, after)
        discrete = isinstance(self.inputs.action_space, spaces.Discrete)
        inverse = cross_entropy(answers, action) if discrete else mse_loss(answers, action)
        share = self.settings.forward_share
        loss: Tensor = (1.0 - share) * inverse + share * error.mean()
        return loss

    @torch.no_grad()
    def errors(self, batch: Batch) -> Tensor:
        parts = zip(*(field.split(RATED_AT_ONCE) for field in self.inputs.transitions(batch)), strict=True)
        return torch.cat([self.networks(*(field.to(self.device) for field in part))[0].cpu() for part in parts])

    def prepare(self, batch: Batch) -> Metrics:
        before, _, _ = self.inputs.transitions(batch)
        self.networks.stem.update(before)
        return super().prepare(batch)

    def remember(self, batch: Batch) -> None:
        self.learn(*self.inputs.transitions(batch))
