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
FEWEST_ENVIRONMENTS = 5  # that the deviation of errors is estimated from, if there are as many
HALF_LIFE = 4_000  # transitions after which those before count half in the running deviation


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
    gamma: float = setting(0.99, "the discount of the sum whose deviation errors are divided by", least=0.0, below=1.0)


class ErrorBonus(LearnedBonus):
    """A bonus that is a prediction error, in units of how much its discounted sums vary (Burda et al. 2018, section 2.4).

    Errors shrink as networks learn, by orders of magnitude, and no weight would fit them for long. So they are divided by the
    running standard deviation of the discounted sum of errors up to each step, which goes on from batch to batch. It forgets:
    over all batches ever seen, the first errors would outweigh the later ones and leave a bonus of nothing.
    """

    Settings = ErrorSettings
    settings: ErrorSettings

    def setup(self) -> None:
        super().setup()
        self._sums = torch.zeros(0, dtype=torch.float64)  # so far, of each environment
        self._moments = torch.zeros(3, dtype=torch.float64)  # of all such sums: count, mean, squares around it

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
        """Takes errors of the batch, before anything is learned from it, into the running deviation.

        Of some environments only: all of them are rated again when they are scored.
        """
        memory = 0.5 ** (batch.mask.sum().item() / HALF_LIFE)
        batch = batch.environments(slice(None, None, max(batch.shape[1] // FEWEST_ENVIRONMENTS, 1)))
        if not batch.mask.any():
            return {}
        errors = torch.zeros(batch.shape, dtype=torch.float64)
        errors[batch.mask] = self.errors(batch).double()
        if len(self._sums) != batch.shape[1]:
            self._sums = torch.zeros(batch.shape[1], dtype=torch.float64)
        sums = torch.zeros_like(errors)
        for step, error in enumerate(errors):
            self._sums = torch.where(batch.mask[step], self.settings.gamma * self._sums + error, self._sums)
            sums[step] = self._sums
        new = sums[batch.mask]
        count, mean, squares = self._moments.tolist()
        count, squares = memory * count, memory * squares
        apart, total = new.mean().item() - mean, count + len(new)
        squares += (new - new.mean()).square().sum().item() + apart**2 * count * len(new) / total
        self._moments = torch.tensor([total, mean + apart * len(new) / total, squares], dtype=torch.float64)
        return {"error": errors[batch.mask].mean().item(), "deviation": self.deviation}

    @property
    def deviation(self) -> float:
        """What errors are divided by."""
        count, _, squares = self._moments.tolist()
        return (squares / count) ** 0.5 if squares else 1.0

    def score(self, batch: Batch) -> Tensor:
        self.check(batch)
        scores = torch.zeros(batch.shape)
        if batch.mask.any():
            scores[batch.mask] = self.errors(batch) / self.deviation
        return scores

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"sums": self._sums, "moments": self._moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._sums, self._moments = state["sums"].clone(), state["moments"].clone()
