"""The contract every bonus keeps, and the registry of their names.

A bonus sees batches of transitions and answers with a number for each: how novel it is. `prepare` does whatever it takes before
a batch can be rated, `score` rates it and changes nothing, `remember` makes it part of the past; `observe` does the three in
this order, on the same states. A bonus is built from spaces, owns its random generator, and can be saved and restored exactly.
"""

from __future__ import annotations

import abc
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ex2.batch import Batch
from ex2.episodic import Places
from ex2.errors import UsageError, unknown
from ex2.inputs import INPUTS, Inputs
from ex2.replay import Fifo
from ex2.settings import Settings, defaults, documentation, hints, names, setting
from ex2.shaping import FORMS, bonus_of_density

Metrics = dict[str, float]
AnySettings = Settings  # within a bonus `Settings` is the class of its own


@dataclass(frozen=True, kw_only=True)
class EntrySettings(Settings):
    """Of a bonus that looks at whole transitions."""

    entries: tuple[int | str, ...] | None = setting(
        None, "the indices of the numbers of a vector observation that count, or the keys of a Dict; all of them by default"
    )


@dataclass(frozen=True, kw_only=True)
class BonusSettings(EntrySettings):
    """Of a bonus that rates states."""

    inputs: str = setting("state", 'what is rated: "state", "next-state" or "state-action"', among=INPUTS)
    action_scale: float = setting(1.0, 'how much actions count beside a vector state, for "state-action"', above=0.0)


class Bonus(abc.ABC):
    """Base of all bonuses.

    Built from the spaces of one environment, and settings: an object of the class's `Settings`, or keywords, or both. `seed` is
    of the generator that every random draw comes from, and `device` where networks run; what has been visited stays in main
    memory. A bonus of your own derives its settings from `BonusSettings`, names them as `Settings`, and overrides `setup`.
    """

    Settings: ClassVar[type[AnySettings]] = BonusSettings
    settings: AnySettings

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{documentation(cls.Settings)}".strip()
        if cls.__init__ is Bonus.__init__:
            taken = list(inspect.signature(Bonus.__init__).parameters.values())[1:-1]
            kinds = hints(cls.Settings)
            for name, default in defaults(cls.Settings).items():
                kind = inspect.Parameter.KEYWORD_ONLY
                taken.append(inspect.Parameter(name, kind, default=default, annotation=kinds[name]))
            cls.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        settings: AnySettings | None = None,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        **values: Any,
    ) -> None:
        check_device(str(device))
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
            raise UsageError(f"seed={seed!r} must be a whole number.")
        self.settings = self._chosen(settings, values)
        self.observation_space, self.action_space = observation_space, action_space
        looks = defaults(BonusSettings) | vars(self.settings)
        self.inputs = Inputs(observation_space, action_space, looks["inputs"], looks["action_scale"], looks["entries"])
        self.seed, self.generator = int(seed), torch.Generator().manual_seed(int(seed))
        self.device = torch.device(device)
        self.setup()

    @classmethod
    def _chosen(cls, settings: AnySettings | None, values: dict[str, Any]) -> AnySettings:
        """The settings, with `values` on top."""
        if settings is None:
            return cls.Settings.of(values, f"bonus {_name(cls)!r}")
        if not isinstance(settings, cls.Settings):
            kind = type(settings).__name__
            raise UsageError(f"The bonus {_name(cls)!r} takes {cls.Settings.__name__}, not {kind}; plain values are keywords.")
        return type(settings).of(vars(settings) | values, f"bonus {_name(cls)!r}") if values else settings

    def setup(self) -> None:  # noqa: B027
        """Makes what the bonus holds, from `settings`, `inputs`, `generator` and `device`; begins with that of its base."""

    @abc.abstractmethod
    def prepare(self, batch: Batch) -> Metrics:
        """Whatever it takes before the batch can be rated: exemplars are fitted against the past, running scales and metrics
        are moved. The batch does not count as seen yet. Returns what there is to report."""

    @abc.abstractmethod
    def score(self, batch: Batch) -> Tensor:
        """Rates the batch and changes nothing: the bonus of each transition, float32 [T, N] on the CPU, 0 where masked."""

    @abc.abstractmethod
    def remember(self, batch: Batch) -> None:
        """Makes the batch part of the past, by a FIFO, a count or training: what is in it is familiar from then on."""

    def check(self, batch: Batch) -> None:
        """Refuses a batch that cannot be rated, before anything has changed."""
        self.inputs.check(batch)

    @property
    def ready(self) -> bool:
        """Whether enough has been seen for a bonus."""
        return True

    def places(self, batch: Batch) -> Places | None:
        """The states of a batch as points of the bonus's metric; None if it has none, or not yet. Changes nothing."""
        return None

    def observe(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """Prepare, score, remember: in this order, on the same states. A batch that is refused leaves all as it was."""
        self.check(batch)
        metrics = self.prepare(batch)
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


@dataclass(frozen=True, kw_only=True)
class DensitySettings(BonusSettings):
    """Of a bonus that follows from a density."""

    replay_capacity: int = setting(200_000, "how many visited states the FIFO holds", least=1)
    min_replay: int = setting(0, "there is no bonus before the FIFO holds this many", least=0)
    form: str = setting("sqrt-count", "how a density becomes a bonus, see `ex2.shaping.bonus_of_density`", among=FORMS)
    count_offset: float = setting(0.0, 'added to the visits, for the form "sqrt-count"', least=0.0)
    state_count: float = setting(1.0, 'states there are, |S|, for the form "inverse-count"', above=0.0)


class DensityBonus(Bonus):
    """A bonus that follows from a density p over visited states: f(p) of `ex2.shaping`, and no bonus until enough was seen."""

    Settings = DensitySettings
    settings: DensitySettings

    def setup(self) -> None:
        super().setup()
        self.replay = Fifo(self.settings.replay_capacity, self.inputs.width, self.inputs.dtype)

    @property
    def ready(self) -> bool:
        """Whether enough has been seen for a bonus."""
        return len(self.replay) >= max(self.settings.min_replay, 1)

    @abc.abstractmethod
    def log_density(self, rows: Tensor) -> Tensor:
        """log p of rows [M, width] as `inputs` makes them, [M]. Changes nothing."""

    def log_density_of_batch(self, batch: Batch) -> Tensor:
        """log p of every transition, [T, N], 0 where masked."""
        rows = self.inputs.rows(batch)
        log_density = torch.zeros(batch.shape)
        log_density[batch.mask] = self.log_density(rows[batch.mask])
        return log_density

    def bonus_of(self, log_density: Tensor) -> Tensor:
        """f(p) of log densities of any shape, in the form that the settings say."""
        chosen = self.settings
        return bonus_of_density(log_density, len(self.replay), chosen.form, chosen.count_offset, chosen.state_count)

    def score(self, batch: Batch) -> Tensor:
        self.inputs.check(batch)
        if not self.ready or not batch.mask.any():
            return torch.zeros(batch.shape)
        bonus = self.bonus_of(self.log_density_of_batch(batch))
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
        kind: type[Bonus] = getattr(importlib.import_module(module), name)
        return kind


BONUSES = {
    "none": Entry("ex2.bonuses.none:NoBonus", "no bonus: the plain algorithm"),
    "kernel-exemplar": Entry(
        "ex2.bonuses.exemplar.kernel:KernelExemplar", "the exemplar model in closed form: a known kernel, one density"
    ),
    "amortized": Entry("ex2.bonuses.exemplar.amortized:AmortizedExemplar", "the paper's amortized exemplar model"),
    "k-exemplar": Entry("ex2.bonuses.exemplar.k_exemplar:KExemplar", "the paper's K-exemplar model"),
    "rnd": Entry("ex2.bonuses.rnd:RandomDistillation", "the error in imitating a random network (RND)"),
    "icm": Entry("ex2.bonuses.icm:IntrinsicCuriosity", "the error in foreseeing features of the next state (ICM)"),
    "vime": Entry("ex2.bonuses.vime:InformationGain", "what a transition teaches a Bayesian model of the dynamics (VIME)"),
    "simhash": Entry("ex2.bonuses.simhash:SimHash", "visits counted by hashed codes; learned codes for images (SimHash)"),
    "kde": Entry("ex2.bonuses.kde:KernelDensityBonus", "a kernel density estimate of the visited states"),
    "histogram": Entry("ex2.bonuses.histogram:Histogram", "visits counted on a grid, for few dimensions"),
}


COMBINED = Entry("ex2.bonuses.combined:Combined", "several at once, each on its own scale")


def make_bonus(
    name: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    settings: Settings | None = None,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    **values: Any,
) -> Bonus:
    """Builds a registered bonus by name, from settings, from keywords, or from settings with keywords on top.

    >>> box = spaces.Box(-1.0, 1.0, (2,))
    >>> make_bonus("histogram", box, box, bins=10).settings.bins
    10
    """
    if settings is None or isinstance(settings, settings_type(name)):
        settings = bonus_settings(name, (settings.as_dict() if settings else {}) | values)
    return kind_of(name)(observation_space, action_space, settings, seed=seed, device=device)


def kind_of(name: str) -> type[Bonus]:
    """The class of a registered bonus; of names joined by "+", that of a combined one."""
    for part in name.split("+"):
        if part not in BONUSES:
            raise unknown("bonus", part, BONUSES)
    return (COMBINED if "+" in name else BONUSES[name]).load()


def settings_type(name: str) -> type[Settings]:
    """The class of a bonus's settings, by the name of the bonus.

    >>> settings_type("histogram").__name__
    'HistogramSettings'
    """
    return kind_of(name).Settings


def setting_names(name: str) -> list[str]:
    """The names of a bonus's settings; those of a combined one's parts have the part's name in front.

    >>> "rnd.hidden" in setting_names("rnd+kde")
    True
    """
    if "+" not in name:
        return names(settings_type(name))
    return ["shares", *(f"{part}.{own}" for part in name.split("+") for own in setting_names(part))]


def bonus_settings(name: str, values: Mapping[str, Any]) -> Settings:
    """The settings of a bonus from plain values by name. Those of a combined one's parts are nested, or have the part's name in
    front; `as_dict` of what is returned gives values that are read back to the same.

    >>> bonus_settings("rnd+kde", {"rnd.hidden": 64}) == bonus_settings("rnd+kde", {"rnd": {"hidden": 64}})
    True
    """
    if "+" not in name:
        return settings_type(name).of(values, f"bonus {name!r}")
    parts, flat = name.split("+"), {}
    for key, value in values.items():
        nested = key in parts and isinstance(value, Mapping)
        flat.update({f"{key}.{own}": one for own, one in value.items()} if nested else {key: value})
    for key in flat:
        if key not in setting_names(name):
            raise unknown(f"setting of the bonus {name!r}", key, setting_names(name))
    if len(set(parts)) < len(parts):
        raise UsageError(f"The bonus {name!r} has a part twice: give it a larger share instead.")
    chosen = {
        part: bonus_settings(part, {key.removeprefix(f"{part}."): flat[key] for key in flat if key.startswith(f"{part}.")})
        for part in parts
    }
    return settings_type(name).of({"parts": chosen} | {key: flat[key] for key in flat if key == "shares"}, f"bonus {name!r}")


def name_of(bonus: Bonus) -> str:
    """What a bonus was built by, as far as it is registered: "kernel-exemplar", "rnd+simhash"."""
    parts: Mapping[str, Any] | None = getattr(bonus, "parts", None)
    return "+".join(parts) if isinstance(parts, Mapping) else _name(type(bonus))


def _name(kind: type[Bonus]) -> str:
    """A bonus's registered name, or that of its class."""
    path = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, entry in BONUSES.items() if entry.path == path), kind.__name__)


def check_device(name: str) -> None:
    """Refuses a device that PyTorch does not know or this machine does not have."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"There is no device {name!r}: use cpu, cuda or cuda:N.") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"The device {name!r} is not one that this works on: use cpu, cuda or cuda:N.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"The device {name!r} is not there: PyTorch sees no GPU, use cpu.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"The device {name!r} is not there: PyTorch sees {torch.cuda.device_count()} GPUs, from cuda:0 on.")


def as_bonus(
    bonus: Bonus | str, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], **settings: Any
) -> Bonus:
    """The bonus itself, or one built by name; settings go with a name only."""
    check_bonus(bonus)
    if isinstance(action_space, spaces.Dict | spaces.Tuple):
        raise UsageError(
            f"The action space is {action_space}: bonuses take actions of Box and discrete spaces, as one array; flatten them."
        )
    if isinstance(bonus, str):
        return make_bonus(bonus, observation_space, action_space, **settings)
    if settings:
        raise UsageError(f"Settings {sorted(settings)} were passed beside a built bonus: pass them when you build it.")
    if form_of(bonus.observation_space) != form_of(observation_space):
        raise UsageError(
            f"The bonus was built for observations {bonus.observation_space} and is to see {observation_space}: build it for "
            f"these, or pass its name, {_name(type(bonus))!r}."
        )
    return bonus


def check_bonus(bonus: Any, settings: Iterable[str] = (), taker: Callable[..., Any] | None = None) -> None:
    """Refuses what is neither a bonus nor the name of one, and settings that neither it nor `taker` has, before there are
    spaces."""
    if isinstance(bonus, str):
        kind_of(bonus)
        known = [*setting_names(bonus), "seed", "device", *(bonus.split("+") if "+" in bonus else ())]
        own = [] if taker is None else inspect.signature(taker).parameters.values()
        for name in settings:
            if name not in known:
                others = [one.name for one in own if one.kind is one.KEYWORD_ONLY]
                raise unknown(f"setting, here or of the bonus {bonus!r},", name, [*others, *known])
    elif not isinstance(bonus, Bonus):
        kind = bonus.__name__ if isinstance(bonus, type) else type(bonus).__name__
        raise UsageError(
            f"A bonus is a name, such as 'kernel-exemplar', or one that is built already, not {kind}; its weight is weight=..."
        )


def form_of(space: spaces.Space[Any]) -> Any:
    """What a space's values have in common, whatever their bounds."""
    if isinstance(space, spaces.Dict):
        return {key: form_of(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [form_of(part) for part in space.spaces]
    return space.shape if isinstance(space, spaces.Box) else space
