"""The contract every bonus keeps, and the registry of their names.

A bonus sees batches of transitions and answers with a number for each: how novel it is. `fit` trains it on the newest batch,
`score` rates a batch and changes nothing, `remember` adds a batch to what has been seen; `observe` does the three in this
order, on the same states. A bonus is built from spaces, owns its random generator, and can be saved and restored exactly.
"""

from __future__ import annotations

import abc
import importlib
import inspect
import math
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from ex2.batch import Batch
from ex2.errors import UsageError, unknown
from ex2.inputs import Inputs
from ex2.replay import Fifo
from ex2.shaping import FORMS, bonus_of_density

Metrics = dict[str, float]


class Bonus(abc.ABC):
    """Base of all bonuses.

    Args:
        observation_space, action_space: of one environment.
        inputs: what is rated: "state", "next-state" or "state-action".
        action_scale: how much actions count beside a vector state, for "state-action".
        entries: the indices of the numbers of a vector observation that count, or the keys of a Dict; all of them by default.
        seed: of the generator that every random draw comes from.
        device: where the networks run; what has been visited stays in main memory.
    """

    fixed: frozenset[str] = frozenset()
    """Settings of the base classes that this bonus does not take."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        inputs: str = "state",
        action_scale: float = 1.0,
        entries: list | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        if "inputs" in self.fixed and inputs != "state":
            raise UsageError(f"inputs={inputs!r}: {type(self).__name__} looks at whole transitions, leave it out.")
        self.inputs = Inputs(observation_space, action_space, inputs, action_scale, entries)
        self.generator = torch.Generator().manual_seed(seed)
        self.device = torch.device(device)

    @abc.abstractmethod
    def fit(self, batch: Batch) -> Metrics:
        """Trains on the newest batch; returns what there is to report."""

    @abc.abstractmethod
    def score(self, batch: Batch) -> Tensor:
        """The bonus of each transition, float32 [T, N] on the CPU, 0 where masked. Changes nothing."""

    @abc.abstractmethod
    def remember(self, batch: Batch) -> None:
        """Adds the batch to what has been seen."""

    def check(self, batch: Batch) -> None:
        """Refuses a batch that cannot be fitted, before anything has changed."""
        self.inputs.check(batch)

    @property
    def ready(self) -> bool:
        """Whether enough has been seen for a bonus."""
        return True

    def observe(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Fit, score, remember: in this order, on the same states. A batch that is refused leaves all as it was."""
        self.check(batch)
        metrics = self.fit(batch)
        scores = self.score(batch)
        self.remember(batch)
        return scores, metrics

    def scoring_generator(self) -> torch.Generator:
        """A generator for draws while scoring: the bonus's own stays where it is, and the same batch scores the same."""
        copy = torch.Generator()
        copy.set_state(self.generator.get_state())
        return copy

    def state_dict(self) -> dict[str, Any]:
        """Everything that later answers depend on, as nested dicts of tensors and plain values."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was called."""
        self.generator.set_state(state["generator"])

    def to(self, device: str | torch.device) -> Bonus:
        """Moves the networks; returns the bonus itself."""
        self.device = torch.device(device)
        return self


class DensityBonus(Bonus):
    """A bonus that follows from a density p over visited states: f(p) of `ex2.shaping`, and no bonus until enough was seen.

    Args:
        replay_capacity: how many visited states the FIFO holds.
        min_replay: there is no bonus before it holds this many.
        form, count_offset, state_count: how a density becomes a bonus, see `ex2.shaping.bonus_of_density`.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        replay_capacity: int = 200_000,
        min_replay: int = 0,
        form: str = "log",
        count_offset: float = 0.0,
        state_count: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **settings)
        if form not in FORMS:
            raise unknown("form of bonus", form, FORMS)
        self.replay = Fifo(replay_capacity, self.inputs.width, self.inputs.dtype)
        self.min_replay = min_replay
        self.form = {"form": form, "count_offset": count_offset, "state_count": state_count}

    @property
    def ready(self) -> bool:
        """Whether enough has been seen for a bonus."""
        return len(self.replay) >= max(self.min_replay, 1)

    @abc.abstractmethod
    def log_density(self, rows: Tensor) -> Tensor:
        """log p of rows [M, width] as `inputs` makes them, [M]. Changes nothing."""

    def log_density_of_batch(self, batch: Batch) -> Tensor:
        """log p of every transition, [T, N], 0 where masked."""
        rows = self.inputs.rows(batch)
        log_density = torch.zeros(batch.shape)
        log_density[batch.mask] = self.log_density(rows[batch.mask])
        return log_density

    def score(self, batch: Batch) -> Tensor:
        self.inputs.check(batch)
        if not self.ready or not batch.mask.any():
            return torch.zeros(batch.shape)
        bonus = bonus_of_density(self.log_density_of_batch(batch), len(self.replay), **self.form)  # type: ignore[arg-type]
        return torch.where(batch.mask, bonus, torch.zeros_like(bonus))

    def remember(self, batch: Batch) -> None:
        self.replay.add(self.inputs.rows(batch)[batch.mask])

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"replay": self.replay.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.replay.load_state_dict(state["replay"])


@dataclass(frozen=True)
class Entry:
    """Where a registered bonus lives, and what it is in one line."""

    path: str
    summary: str

    def load(self) -> type[Bonus]:
        module, name = self.path.split(":")
        return getattr(importlib.import_module(module), name)


BONUSES = {
    "none": Entry("ex2.bonuses.none:NoBonus", "no bonus: the plain algorithm"),
    "kernel-exemplar": Entry(
        "ex2.exemplar.kernel:KernelExemplar", "the exemplar model in closed form: a known kernel, one density"
    ),
    "amortized": Entry("ex2.exemplar.amortized:AmortizedExemplar", "the paper's amortized exemplar model"),
    "k-exemplar": Entry("ex2.exemplar.k_exemplar:KExemplar", "the paper's K-exemplar model"),
    "rnd": Entry("ex2.bonuses.rnd:RandomDistillation", "the error in imitating a random network (RND)"),
    "icm": Entry("ex2.bonuses.icm:IntrinsicCuriosity", "the error in foreseeing features of the next state (ICM)"),
    "vime": Entry("ex2.bonuses.vime:InformationGain", "what a transition teaches a Bayesian model of the dynamics (VIME)"),
    "simhash": Entry("ex2.bonuses.simhash:SimHash", "visits counted by hashed codes; learned codes for images (SimHash)"),
    "kde": Entry("ex2.bonuses.kde:KernelDensityBonus", "a kernel density estimate of the visited states"),
    "histogram": Entry("ex2.bonuses.histogram:Histogram", "visits counted on a grid, for few dimensions"),
}


def make_bonus(name: str, observation_space: spaces.Space, action_space: spaces.Space, **settings: Any) -> Bonus:
    """Builds a registered bonus by name.

    >>> box = spaces.Box(-1.0, 1.0, (2,))
    >>> make_bonus("histogram", box, box, bins=10).bins
    10
    """
    known = parameters(name)
    for setting in settings:
        if setting not in {"seed", "device", *known}:
            raise unknown(f"setting of the bonus {name!r}", setting, known)
        value = settings[setting]
        for number in value if isinstance(value, list | tuple) else [value]:
            if isinstance(number, float) and not math.isfinite(number):
                raise UsageError(f"{setting}={value} must be finite.")
    check_device(str(settings.get("device", "cpu")))
    if "+" in name:
        settings["parts"] = name.split("+")
    return kind_of(name)(observation_space, action_space, **settings)


def kind_of(name: str) -> type[Bonus]:
    """The class of a registered bonus; of names joined by "+", that of a combined one."""
    if "+" in name:
        return Entry("ex2.bonuses.combined:Combined", "").load()
    if name not in BONUSES:
        raise unknown("bonus", name, BONUSES)
    return BONUSES[name].load()


def parameters(name: str) -> dict[str, inspect.Parameter]:
    """The settings of a bonus by name; those of a combined one's parts have the part's name in front.

    >>> "rnd.hidden" in parameters("rnd+kde")
    True
    """
    found = parameters_of(kind_of(name))
    if "+" in name:
        for part in name.split("+"):
            found |= {f"{part}.{setting}": value for setting, value in parameters(part).items()}
    return found


def check_device(name: str) -> None:
    """Refuses a device that PyTorch does not know or this machine does not have."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"There is no device {name!r}: use cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"The device {name!r} is not there: PyTorch sees no GPU, use cpu.")


def parameters_of(kind: type[Bonus]) -> dict[str, inspect.Parameter]:
    """The keyword settings of a bonus class, its bases' included, but for its seed and device."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        if issubclass(base, Bonus):
            for parameter in inspect.signature(base.__init__).parameters.values():
                if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in {"seed", "device", *kind.fixed}:
                    found.setdefault(parameter.name, parameter)
    return found


def settings_of(kind: type[Bonus]) -> dict[str, Any]:
    """The keyword settings of a bonus class with their defaults."""
    return {name: parameter.default for name, parameter in parameters_of(kind).items()}


def as_bonus(bonus: Bonus | str, observation_space: spaces.Space, action_space: spaces.Space, **settings: Any) -> Bonus:
    """The bonus itself, or one built by name; settings go with a name only."""
    if isinstance(bonus, str):
        return make_bonus(bonus, observation_space, action_space, **settings)
    if settings:
        raise UsageError(f"Settings {sorted(settings)} were passed beside a built bonus: pass them when you build it.")
    return bonus
