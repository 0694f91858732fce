"""Random network distillation (Burda, Edwards, Storkey, Klimov 2018): novel is what a network has not learned to imitate."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ex2.batch import Batch
from ex2.bonus import Metrics
from ex2.bonuses.learned import CHUNK, ErrorBonus
from ex2.errors import UsageError
from ex2.inputs import Inputs
from ex2.networks import Stem, mlp

GAIN = 2.0**0.5  # of the orthogonal initial weights


class Networks(nn.Module):
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
        return (self.predictor_head(self.predictor.see(*seen)) - answers).square().mean(1)


class RandomDistillation(ErrorBonus):
    """The error of a network f^(x) that learns to give the outputs of a random network f(x), x the state an action led to.

    Inputs are standardised by running moments and clipped to [-5, 5], pixel by pixel for images, and errors are divided by the
    running deviation of their discounted sums, as in the paper. Its own stream of returns that does not end with an episode is
    an option of the trainer (`ex2 train ... --set episodic=false`, `BonusCallback(episodic=False)`).

    Args:
        hidden, outputs: sizes of both networks.
        share: of a batch's states that are trained on; less than 1 slows learning down where batches are large.
    """

    networks: Networks

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        inputs: str = "next-state",
        learning_rate: float = 1e-4,
        hidden: int = 128,
        outputs: int = 64,
        share: float = 1.0,
        **settings: Any,
    ) -> None:
        if min(hidden, outputs) < 1 or not 0.0 < share <= 1.0:
            raise UsageError(f"hidden={hidden} and outputs={outputs} must be at least 1, share={share} above 0 and at most 1.")
        self.sizes = {"hidden": hidden, "outputs": outputs}
        self.share = share
        super().__init__(observation_space, action_space, inputs=inputs, learning_rate=learning_rate, **settings)

    def build(self) -> nn.Module:
        return Networks(self.inputs, **self.sizes)

    def loss(self, *fields: Tensor) -> Tensor:
        return self.networks(fields[0]).mean()

    @torch.no_grad()
    def errors(self, batch: Batch) -> Tensor:
        rows = self.inputs.rows(batch)[batch.mask]
        return torch.cat([self.networks(part.to(self.device)).cpu() for part in rows.split(CHUNK)])

    def fit(self, batch: Batch) -> Metrics:
        self.networks.target.update(self.inputs.rows(batch)[batch.mask])
        return super().fit(batch)

    def remember(self, batch: Batch) -> None:
        rows = self.inputs.rows(batch)[batch.mask]
        if self.share < 1.0:
            rows = rows[torch.rand(len(rows), generator=self.generator) < self.share]
        self.learn(rows)
