"""One page of HTML that needs no network: our template, style and script, uPlot, and the data that charts are drawn from.

Whatever comes from data passes `html.escape`, or `packed`, which leaves no "<" in a script.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from ex2.arrays import Array

ASSETS = files("ex2.lab") / "assets"
NOTHING = "–"


class Html(str):
    """Text that is HTML already."""


def html_of(value: object) -> str:
    """
    >>> html_of("<script>"), html_of(Html("<b>"))
    ('&lt;script&gt;', '<b>')
    """
    return value if isinstance(value, Html) else escape(str(value))


def element(name: str, *content: object, **attributes: object) -> Html:
    """
    >>> element("td", "a<b", class_="number")
    '<td class="number">a&lt;b</td>'
    """
    named = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    inner = "".join(f' {key}="{escape(str(value))}"' for key, value in named)
    return Html(f"<{name}{inner}>{''.join(map(html_of, content))}</{name}>")


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], names: int = 2, part: str = "") -> Html:
    """A table that scrolls sideways by itself where it is too wide. The first `names` columns are words, the others numbers."""
    kinds = ["name" if index < names else "number" for index in range(len(headings))]
    head = [element("th", text, scope="col", class_=kind) for text, kind in zip(headings, kinds, strict=True)]
    body = []
    for row in rows:
        cells = [
            element("th" if index == 0 else "td", cell, class_=kind, **({"scope": "row"} if index == 0 else {}))
            for index, (cell, kind) in enumerate(zip(row, kinds, strict=True))
        ]
        body.append(element("tr", *cells))
    made = element(
        "table", element("caption", element("span", caption)), element("thead", element("tr", *head)), element("tbody", *body)
    )
    live = {"data_part": part} if part else {}
    return element("div", made, class_="table", tabindex="0", role="region", aria_label=caption, **live)


def chart(name: str, alt: str, caption: object = "", kind: str = "", role: str = "img") -> Html:
    """Where the script draws the chart of this name; `alt` says in words what it shows. What has controls is a `group`."""
    place = element("div", class_=f"chart {kind}".strip(), data_chart=name, role=role, aria_label=alt)
    return element("figure", place, *([element("figcaption", caption)] if caption else []))


def section(heading: object, *content: object, name: str, level: int = 2) -> Html:
    return element("section", element(f"h{level}", heading), *content, id=name)


def slug(*words: object) -> str:
    """
    >>> slug("my:Env/v0", "a b")
    'my-Env-v0-a-b'
    """
    return re.sub(r"[^\w.]+", "-", "-".join(map(str, words))).strip("-")


def bytes_of(values: Array, low: float, high: float, kind: type = np.uint16) -> str:
    """Numbers as base64 of whole ones, from `low` at 0 to `high`; the largest there is for those that are none."""
    top = np.iinfo(kind).max
    scaled = (np.asarray(values, float) - low) / ((high - low) or 1.0) * (top - 1)
    whole = np.where(np.isfinite(scaled), np.clip(np.round(scaled), 0, top - 1), top).astype(np.dtype(kind).newbyteorder("<"))
    return base64.b64encode(whole.tobytes()).decode()


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def packed(values: Any) -> str:
    """JSON that may stand in a script: without "<", and with null for what is no number.

    >>> packed({"a": "</script>", "b": float("nan")})
    '{"a":"\\\\u003c/script>","b":null}'
    """
    return json.dumps(_plain(values), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def page(title: str, main: str, charts: dict[str, Any], live: str = "") -> str:
    """The whole page; `live` is the address it asks for what is new, where there is one."""
    style = f"{_asset('uPlot.min.css')}\n{_asset('page.css')}"
    parts = {
        "title": escape(title),
        "style": style,
        "main": main,
        "live": escape(live),
        "charts": packed(charts),
        "library": _asset("uPlot.iife.min.js"),
        "script": "\n".join(_asset(name) for name in ("marks.js", "pictures.js", "page.js")),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    return float(f"{value:.6g}") if np.isfinite(value) else None
