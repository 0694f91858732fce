"""Tables as commands print them: drawn on a terminal, plain columns elsewhere, JSON where it is asked for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Row = Mapping[str, Any]
RANGE = r"[\d,]+( (to|of) [\d,]+)+"


def show(console: Console, rows: Sequence[Row], title: str = "", as_json: bool = False) -> None:
    """Prints rows that have the same keys, which are the headings. Numbers are given as numbers, None where there is none.

    >>> show(Console(), [{"task": "maze", "score": -61.94}, {"task": "cheetah", "score": None}])
    task     score
    maze     -61.9
    cheetah      -
    >>> show(Console(), [{"task": "maze", "score": -61.94}], as_json=True)
    [{"task": "maze", "score": -61.94}]
    """
    if as_json:
        console.file.write(json.dumps([{key: _finite(value) for key, value in row.items()} for row in rows]) + "\n")
    elif console.is_terminal:
        console.print(_drawn(rows, title, console.width))
    else:
        console.file.write(_plain(rows))


def number(value: float | None) -> str:
    """A score: fractions to the third digit, others to the first behind the point.

    >>> number(0.788), number(-61.9), number(None), number(math.nan)
    ('0.788', '-61.9', '-', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def _cell(value: Any, thousands: str = "") -> str:
    if value is None or isinstance(value, float):
        return number(value)
    return f"{value:{thousands}}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _numeric(rows: Sequence[Row], key: str) -> bool:
    """Whether a column holds numbers, or ranges of them, which end at the right."""
    return any(isinstance(row[key], int | float) or re.fullmatch(RANGE, str(row[key])) for row in rows)


def _drawn(rows: Sequence[Row], title: str, width: int) -> Table:
    """A table; where the screen is too narrow for it, it has no lines, words go over several rows, and numbers never."""
    keys = list(rows[0]) if rows else []
    numeric = [_numeric(rows, key) for key in keys]
    cells = [[_cell(row[key], ",") for key in keys] for row in rows]
    table = Table(title=escape(title) or None)
    if sum(max(map(len, column)) + 3 for column in zip(keys, *cells, strict=True)) >= width:
        table = Table(title=escape(title) or None, box=SIMPLE_HEAD, show_edge=False, padding=0)
        cells = [[re.sub(" (to|of) ", r" \1\n", cell) if re.fullmatch(RANGE, cell) else cell for cell in row] for row in cells]
    for key, whole in zip(keys, numeric, strict=True):
        table.add_column(escape(key), justify="right" if whole else "left", overflow="fold", no_wrap=whole)
    for row in cells:
        table.add_row(*map(escape, row))
    return table


def _plain(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    columns = []
    for key in rows[0]:
        cells = [key, *(_cell(row[key]) for row in rows)]
        width, right = max(map(len, cells)), _numeric(rows, key)
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "".join("  ".join(line).rstrip() + "\n" for line in zip(*columns, strict=True))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
