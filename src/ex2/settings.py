"""Settings as data: frozen dataclasses whose fields are documented and checked where they are written, and nowhere else.

    @dataclass(frozen=True, kw_only=True)
    class Lamp(Settings):
        watts: int = setting(60, "of the bulb", least=1)

From a field come its check (`Lamp(watts=0)` is refused in one sentence), its line in `help`, in `ex2 bonuses NAME` and in error
messages, and how it is written in a run's config.json.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

from ex2.errors import UsageError, unknown


def setting(
    default: Any,
    doc: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    among: Sequence[str] = (),
) -> Any:
    """A field of a `Settings` class: its default, what it is, and which values it may have.

    Bounds hold for every number in it, and `among` for every word.
    """
    bounds = {"least": least, "above": above, "most": most, "below": below}
    limits = {name: bound for name, bound in bounds.items() if bound is not None}
    return dataclasses.field(default=default, metadata={"doc": doc, "limits": limits, "among": tuple(among)})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings."""

    def __post_init__(self) -> None:
        kinds = hints(type(self))
        for field in dataclasses.fields(self):
            value = _as(getattr(self, field.name), kinds[field.name])
            object.__setattr__(self, field.name, value)
            _check(field, value, kinds[field.name])
        self.check()

    def check(self) -> None:
        """Refuses values that do not go together."""

    @classmethod
    def of(cls, values: Mapping[str, Any], owner: str) -> Self:
        """Settings by name; a name that there is not is refused, `owner` says of what.

        >>> Settings.of({"wats": 1}, "lamp")
        Traceback (most recent call last):
        ex2.errors.UsageError: There is no setting of the lamp 'wats': it has none.
        """
        known = names(cls)
        for name in values:
            if name not in known:
                raise unknown(f"setting of the {owner}", name, known)
        return cls(**values)

    def changed(self, **values: Any) -> Self:
        """These settings with some of them changed."""
        return dataclasses.replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            field.name: value.as_dict() if isinstance(value := getattr(self, field.name), Settings) else value
            for field in dataclasses.fields(self)
        }


def hints(kind: type[Settings]) -> dict[str, Any]:
    """The types of its fields."""
    return get_type_hints(kind)


def names(kind: type[Settings]) -> list[str]:
    """The names of its fields."""
    return [field.name for field in dataclasses.fields(kind)]


def defaults(kind: type[Settings]) -> dict[str, Any]:
    """Its fields with their defaults."""
    return {field.name: field.default for field in dataclasses.fields(kind)}


def describe(kind: type[Settings]) -> list[tuple[str, str, str, str]]:
    """Name, type, default and documentation of each field."""
    kinds = hints(kind)
    return [
        (field.name, spelled(kinds[field.name]), _written(field.default), str(field.metadata.get("doc", "")))
        for field in dataclasses.fields(kind)
    ]


def documentation(kind: type[Settings]) -> str:
    """A paragraph for docstrings: every setting with its type, default and meaning."""
    lines = ["Settings:"]
    for name, spelling, default, doc in describe(kind):
        lines.append(
            textwrap.fill(f"{name}: {spelling} = {default}. {doc}", 116, initial_indent="    ", subsequent_indent=" " * 8)
        )
    return "\n".join(lines)


def spelled(kind: Any) -> str:
    """A type in words of Python.

    >>> spelled(float | Literal["auto"]), spelled(tuple[int, ...] | None)
    ("float | 'auto'", 'tuple[int, ...] | None')
    """
    if kind is type(None):
        return "None"
    if get_origin(kind) in (Union, types.UnionType):
        return " | ".join(spelled(part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return " | ".join(repr(word) for word in get_args(kind))
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind).replace("typing.", "")


def _written(value: Any) -> str:
    return "required" if value is dataclasses.MISSING else repr(value)


def _as(value: Any, kind: Any) -> Any:
    """NumPy's numbers as Python's, and lists as the tuples that settings hold, where their type asks for one."""
    if isinstance(value, np.generic):
        return value.item()
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    for part in parts:
        if get_origin(part) is tuple and isinstance(value, list | tuple):
            return tuple(_as(item, get_args(part)[0]) for item in value)
    return value


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type; whole numbers are numbers, and truth values are not."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in get_args(kind))
    if origin is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(kind)[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict)
    if kind is Any:
        return True
    if kind in (int, float):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _numbers(value: Any) -> list[float]:
    if isinstance(value, tuple):
        return [number for item in value for number in _numbers(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _words(value: Any) -> list[str]:
    return (
        [value]
        if isinstance(value, str)
        else [word for item in value for word in _words(item)]
        if isinstance(value, tuple)
        else []
    )


def _check(field: dataclasses.Field[Any], value: Any, kind: Any) -> None:
    """Refuses a value of another type, and one outside its bounds, in one sentence."""
    limits, among = field.metadata.get("limits", {}), field.metadata.get("among", ())
    if not _fits(value, kind):
        raise UsageError(f"{field.name}={value!r} is of the wrong type: it must be {spelled(kind)}.")
    literal = [word for part in (kind, *get_args(kind)) if get_origin(part) is Literal for word in get_args(part)]
    for word in _words(value) if among else []:
        if word not in among and word not in literal:
            raise unknown(field.name, word, [*among, *literal])
    tests = {
        "least": lambda number, bound: number >= bound,
        "above": lambda number, bound: number > bound,
        "most": lambda number, bound: number <= bound,
        "below": lambda number, bound: number < bound,
    }
    for number in _numbers(value):
        if not math.isfinite(number):
            raise UsageError(f"{field.name}={value} must be finite.")
        if abs(number) >= 2**63 and isinstance(number, int):
            raise UsageError(f"{field.name}={value} is too large for a whole number.")
        if not all(tests[name](number, bound) for name, bound in limits.items()):
            phrases = {"least": "at least", "above": "above", "most": "at most", "below": "below"}
            allowed = " and ".join(f"{phrases[name]} {bound:g}" for name, bound in limits.items())
            either = "".join(f", or {word!r}" for word in literal)
            raise UsageError(f"{field.name}={value} must be {allowed}{either}.")
