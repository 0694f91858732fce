"""Random network distillation (Burda, Edwards, Storkey, Klimov 2018): novel is what a network has not learned to imitate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ex2.batch import Batch
from ex2.bonus import BonusSettings, Metrics
from ex2.bonuses.learned import RATED_AT_ONCE, ErrorBonus, ErrorSettings
from ex2.inputs import INPUTS, Inputs
from ex2.networks import Stem, mlp
from ex2.settings import setting

GAIN = 2.0**0.5  # of the orthogonal initial weights


class Distillation(nn.Module):
    """f, which nothing trains, and f^ with two layers more; both on standardised, clipped inputs."""

    def __init__(self, inputs: Inputs, hidden: int, outputs: int) -> None:
        super().__init__()
        self.target, self.predictor = Stem(inputs, whiten=True), Stem(inputs)
        width = self.target.width
        self.target_head = nn.Sequential(mlp([width, hidden], nn.ReLU), nn.Linear(hidden, outputs))
        self.predictor_head = nn.Sequential(mlp([width, hidden, hidden, hidden], nn.ReLU), nn.Linear(hidden, outputs))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(module.weight, GAIN)
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        for value in [*self.target.parameters(), *self.target_head.parameters()]:
            value.requires_grad_(False)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows [M, row] -> ||f^(x) - f(x)||^2, the mean over outputs, [M]."""
        seen = self.target.standardised(rows)
        with torch.no_grad():
            answers = self.target_head(self.target.see(*seen))
        errors: Tensor = self.predictor_head(self.predictor.see(*seen)) - answers
        return errors.square().mean(1)


@dataclass(frozen=True, kw_only=True)
class RandomDistillationSettings(ErrorSettings, BonusSettings):
    inputs: str = setting("next-state", 'what is rated: "state", "next-state" or "state-action"', among=INPUTS)
    learning_rate: float = setting(1e-4, "of Adam", above=0.0)
    hidden: int = setting(128, "units of both networks' hidden layers", least=1)
    outputs: int = setting(64, "of both networks", least=1)
    share: float = setting(
        1.0,
        "of a batch's states that are trained on; less than 1 slows learning down where batches are large",
        above=0.0,
        most=1.0,
    )


class RandomDistillation(ErrorBonus):
    """The error of a network f^(x) that learns to give the outputs of a random network f(x), x the state an action led to.

    Inputs are standardised by running moments and clipped to [-5, 5], pixel by pixel for images. That errors are divided by the
    running deviation of their discounted sums is done for every bonus (`ex2.shaping`); its own stream of returns that does not
    end with an episode is an option of the trainer (`ex2 train ... --set episodic=false`, `BonusCallback(episodic=False)`).
    """

    Settings = RandomDistillationSettings
    settings: RandomDistillationSettings
    networks: Distillation

    def build(self) -> nn.Module:
        return Distillation(self.inputs, self.settings.hidden, self.settings.outputs)

    def loss(self, *fields: Tensor) -> Tensor:
        errors: Tensor = self.networks(fields[0])
        return errors.mean()

    @torch.no_grad()
    def errors(self, batch: Batch) -> Tensor:
        rows = self.inputs.rows(batch)[batch.mask]
        return torch.cat([self.networks(part.to(self.device)).cpu() for part in rows.split(RATED_AT_ONCE)])

    def prepare(self, batch: Batch) -> Metrics:
        self.networks.target.update(self.inputs.rows(batch)[batch.mask])
        return super().prepare(batch)

    def remember(self, batch: Batch) -> None:
        rows = self.inputs.rows(batch)[batch.mask]
        if self.settings.share < 1.0:
            rows = rows[torch.rand(len(rows), generator=self.generator) < self.settings.share]
        self.learn(rows)
