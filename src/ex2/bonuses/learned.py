"""What RND, ICM, VIME and learned hashing share: networks that learn from a batch, after it was rated."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ex2.batch import Batch
from ex2.bonus import Bonus, Metrics
from ex2.bonuses.learner import Learner
from ex2.settings import Settings, setting

RATED_AT_ONCE = 1_024  # rows


@dataclass(frozen=True, kw_only=True)
class LearnedSettings(Settings):
    """Of a bonus with networks of its own."""

    learning_rate: float = setting(1e-3, "of Adam", above=0.0)
    minibatch: int = setting(256, "how many transitions are trained on at a time", least=1)


class LearnedBonus(Bonus):
    """Base of bonuses with networks of their own.

    A batch is rated by what was known before it: `prepare` takes it into running moments and no further, `remember` trains.
    (The autoencoder of `simhash` learns in `prepare`: what it knows is how to code, not what is familiar.)
    """

    Settings = LearnedSettings
    settings: LearnedSettings

    def setup(self) -> None:
        super().setup()
        self.learner = Learner(self.build, self.generator.initial_seed(), self.device, self.settings.learning_rate)
        self.networks = self.learner.networks

    @abc.abstractmethod
    def build(self) -> nn.Module:
        """Makes the networks; called with PyTorch's generator seeded."""

    @abc.abstractmethod
    def loss(self, *fields: Tensor) -> Tensor:
        """What Adam lowers, for a minibatch of the fields that `descend` was given."""

    def descend(self, *fields: Tensor) -> None:
        """One step of Adam."""
        self.learner.step(lambda *some: (self.loss(*some),), fields)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"learner": self.learner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.learner.load_state_dict(state["learner"])

    def to(self, device: str | torch.device) -> LearnedBonus:
        super().to(device)
        self.learner.to(self.device)
        return self


@dataclass(frozen=True, kw_only=True)
class ErrorSettings(LearnedSettings):
    """Of a bonus that is a prediction error."""

    epochs: int = setting(1, "how often the transitions of a batch are trained on", least=1)


class ErrorBonus(LearnedBonus):
    """A bonus that is a prediction error. They shrink by orders of magnitude; `ex2.shaping` scales them."""

    Settings = ErrorSettings
    settings: ErrorSettings

    def learn(self, *fields: Tensor) -> None:
        """Trains on fields [M, ...] for some epochs."""
        count = len(fields[0])
        for _ in range(self.settings.epochs if count else 0):
            order = torch.randperm(count, generator=self.generator)
            for rows in order.split(self.settings.minibatch):
                self.descend(*(field[rows] for field in fields))

    @abc.abstractmethod
    def errors(self, batch: Batch) -> Tensor:
        """The error of each transition that happened, [M]."""

    def prepare(self, batch: Batch) -> Metrics:
        return {}

    def score(self, batch: Batch) -> Tensor:
        self.check(batch)
        scores = torch.zeros(batch.shape)
        if batch.mask.any():
            scores[batch.mask] = self.errors(batch)
        return scores
