"""What an `Explorer` and the adapters are given, refused before anything begins where it cannot work."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from ex2.bonus import Bonus, name_of
from ex2.errors import UsageError, unknown
from ex2.shaping import CENTRES, Weight, check_scaled

GATHER = 1_000  # transitions that a fit waits for: fewer make all that follows look new, and its scale too large


def as_weight(weight: float | str | Weight) -> Weight:
    """A weight from a number, "auto" or a schedule.

    >>> as_weight(-1)
    Traceback (most recent call last):
    ex2.errors.UsageError: weight=-1 is none: it must be "auto", a finite number of at least 0, or a schedule, ex2.Weight(...).
    """
    if isinstance(weight, Weight):
        return weight
    try:
        return Weight(start=weight)  # type: ignore[arg-type]
    except UsageError:
        raise UsageError(
            f'weight={weight!r} is none: it must be "auto", a finite number of at least 0, or a schedule, ex2.Weight(...).'
        ) from None


def check_training(centre: str, total_steps: int | None, gamma: float = 1.0) -> None:
    """Refuses what is no centre, no length of a training or no discount."""
    if centre not in CENTRES:
        raise unknown("centre", centre, CENTRES)
    if not (isinstance(gamma, Real) and 0.0 <= gamma <= 1.0):
        raise UsageError(f"gamma={gamma!r} must be the agent's discount, a number from 0 to 1.")
    if total_steps is not None and not (isinstance(total_steps, Integral) and total_steps > 0):
        raise UsageError(f"total_steps={total_steps!r} must be the steps of the whole training, a whole number of at least 1.")


def check_gather(gather: int) -> None:
    if not isinstance(gather, Integral) or isinstance(gather, bool) or gather < 1:
        raise UsageError(f"gather={gather!r} must be a whole number of at least 1: the transitions that a fit waits for.")


def check_length(weight: Weight, total_steps: int | None) -> None:
    """Refuses a weight that falls over nobody knows how many steps."""
    if total_steps is None and (weight.auto or weight.schedule != "constant"):
        raise UsageError(
            "The weight falls as the training goes on, and how long that is was not said: "
            "pass total_steps=..., or a constant number as weight."
        )


def check_choices(weight: float | str | Weight, scaled: bool, gather: int, **flags: bool) -> Weight:
    """Refuses what no training can begin with, before there are spaces; returns the weight."""
    check_gather(gather)
    for name, flag in ({"scaled": scaled} | flags).items():
        if not isinstance(flag, bool):
            raise UsageError(f"{name}={flag!r} must be True or False.")
    found = as_weight(weight)
    check_scaled(found, scaled)
    return found


def check_state(state: Mapping[str, Any], bonus: Bonus) -> None:
    """Refuses a state of no bonus, or of another one, or of one with other settings."""
    if "bonus" not in state or "shaper" not in state:
        raise UsageError(
            f"The state holds no bonus, only {', '.join(map(str, state)) or 'nothing'}: save it with state_dict()."
        )
    if (name := state.get("name", name_of(bonus))) != name_of(bonus):
        raise UsageError(
            f"The state is of the bonus {name!r}, and this one is {name_of(bonus)!r}: build the one that was saved."
        )
    own = bonus.settings.as_dict()
    for name, value in state.get("settings", {}).items():
        if value != (now := listed(own.get(name))):
            raise UsageError(
                f"The state is of a bonus with {name}={value!r}, and this one has {name}={now!r}: build the one that was saved."
            )


def listed(value: Any) -> Any:
    """A setting as a file gives it back: tuples as lists."""
    if isinstance(value, Mapping):
        return {key: listed(one) for key, one in value.items()}
    return [listed(one) for one in value] if isinstance(value, tuple | list) else value
