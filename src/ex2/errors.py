"""Errors that a user can cause, and the wording they share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """Something the user passed is wrong; the message is one sentence that names it and says what would be right."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not registered, with the nearest one that is.

    >>> str(unknown("bonus", "amortised", ["amortized", "kde"]))
    "There is no bonus 'amortised': did you mean 'amortized'? Known: amortized, kde."
    """
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    hint = f": did you mean {near[0]!r}?" if near else "."
    return UsageError(
        f"There is no {kind} {name!r}{hint} Known: {', '.join(names)}."
        if names
        else f"There is no {kind} {name!r}: it has none."
    )


def missing_extra(extra: str, module: str) -> UsageError:
    """The error for an optional dependency that is not installed."""
    return UsageError(f"This needs the package {module!r}, which is not installed: run pip install 'ex2[{extra}]'.")
