"""The data of a page's charts, from tables of results: small enough for a page of a thousand runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ex2.arrays import Array
from ex2.lab import statistics
from ex2.lab.page import bytes_of
from ex2.tasks import TASKS

POINTS = 150  # of a curve: about as many as a screen shows


def curves(points: pd.DataFrame, scores: pd.DataFrame, colours: dict[str, str]) -> dict[str, Any] | None:
    """The learning curves of a task on one grid of steps; None where nothing has been reported."""
    known = points[points["score"].notna()]
    if known.empty:
        return None
    steps = np.linspace(
        0.0, float(known["step"].max()), min(POINTS, max(int(known.groupby(["method", "seed"]).size().max()) + 1, 2))
    )
    found: dict[str, list[Array]] = {}
    for (method, _), own in known.groupby(["method", "seed"], sort=False):
        x, y = own["step"].to_numpy(float), own["score"].to_numpy(float)
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
        found.setdefault(str(method), []).append(np.interp(steps, x, y, left=np.nan, right=np.nan))
    every = np.concatenate([np.stack(each) for each in found.values()])
    finite = every[np.isfinite(every)]
    solved = scores["solved_at"].max()
    ends = [*finite, float(solved)] if pd.notna(solved) else list(finite)
    if not ends:
        return None
    low, high = float(min(ends)), float(max(ends))
    if high <= low:
        low, high = low - 0.5, high + 0.5
    methods = []
    for method, each in found.items():
        rows = np.stack(each)
        middle, lower, upper = _quartiles(rows)
        packed = {"mid": middle, "lower": lower, "upper": upper, "each": rows}
        methods.append(
            {"name": method, "colour": colours[method]} | {key: bytes_of(part, low, high) for key, part in packed.items()}
        )
    return {
        "kind": "curves",
        "points": len(steps),
        "from": steps[0],
        "to": steps[-1],
        "low": low,
        "high": high,
        "solved": float(solved) if pd.notna(solved) else None,
        "methods": methods,
        "across": "environment steps",
        "up": "return",
        "read": "At",
    }


def _quartiles(rows: Array) -> tuple[Array, Array, Array]:
    """Median and quartiles of each column, where at least half of the rows have a number."""
    enough = np.isfinite(rows).sum(axis=0) * 2 >= max(len(rows), 1)
    found = np.full((3, rows.shape[1]), np.nan)
    if enough.any():
        found[:, enough] = np.nanquantile(rows[:, enough], [0.5, 0.25, 0.75], axis=0)
    return found[0], found[1], found[2]


def dots(scores: pd.DataFrame, task: str, colours: dict[str, str]) -> dict[str, Any]:
    """A row for each method with a dot for each seed, and the paper's scores as marks."""
    rows = []
    for method, own in scores.groupby("method", sort=False):
        values = own["score"].to_numpy(float)
        mean = float(np.nanmean(values)) if np.isfinite(values).any() else None
        solved = own["score"] >= own["solved_at"]
        text = (
            f"mean {_short(mean)}; {int(solved.sum())} of {len(own)} solved"
            if own["solved_at"].notna().any()
            else f"mean {_short(mean)}"
        )
        row = {
            "name": str(method),
            "colour": colours[str(method)],
            "points": values,
            "seeds": own["seed"].tolist(),
            "mid": mean,
        }
        rows.append(row | {"text": text})
    paper = TASKS[task].paper if task in TASKS else {}
    marks = []
    if paper:
        best = max(paper, key=lambda name: paper[name])
        marks = [{"at": paper[best], "name": f"paper: {best}"}]
        marks += [{"at": paper["none"], "name": "paper: TRPO"}] if "none" in paper and best != "none" else []
    return _rows(rows, marks, "return, mean of the last 20 episodes")


def aggregate_rows(found: pd.DataFrame, colours: dict[str, str]) -> dict[str, Any]:
    rows = [
        {"name": row.method, "colour": colours[row.method], "points": [], "seeds": [], "mid": row.iqm, "low": row.low}
        | {"high": row.high, "text": f"{row.iqm:.2f} ({row.low:.2f} to {row.high:.2f})"}
        for row in found.itertuples()
    ]
    return _rows(rows, [], "normalised score", with_zero=True)


def pairs_of(strata: dict[str, list[Array]], scores: pd.DataFrame, tasks: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """Each method over the one without a bonus, of its own experiment where that has one, or over the first where all have a
    bonus. `apart`: the tasks on which the two were to have different numbers of steps."""
    own = {method: scores[scores["method"] == method] for method in strata}
    plain = [method for method in strata if (own[method]["bonus"] == "none").all()]
    pairs = []
    for method in strata:
        beside = [one for one in plain if set(own[one]["experiment"]) == set(own[method]["experiment"])]
        other = (beside or plain or list(strata))[0]
        if method != other:
            share = statistics.probability_of_improvement(strata[method], strata[other])
            low, high = statistics.improvement_interval(strata[method], strata[other], seed)
            steps = [own[one].groupby("task")["steps"].agg(set) for one in (method, other)]
            apart = [task for task in tasks if steps[0][task] != steps[1][task]]
            pairs.append({"method": method, "other": other, "share": share, "low": low, "high": high, "apart": apart})
    return pairs


def improvement_rows(pairs: list[dict[str, Any]], colours: dict[str, str]) -> dict[str, Any]:
    others = {pair["other"] for pair in pairs}
    beside = f" than {' '.join(others)}" if len(others) == 1 else ""
    rows = [
        {"name": pair["method"] if beside else f"{pair['method']} over {pair['other']}"}
        | {"colour": colours[pair["method"]], "points": [], "seeds": []}
        | {"mid": pair["share"], "low": pair["low"], "high": pair["high"]}
        | {"text": f"{pair['share']:.0%} ({pair['low']:.0%} to {pair['high']:.0%})"}
        for pair in pairs
    ]
    drawn = _rows(rows, [{"at": 0.5, "name": "as good as"}], f"probability of a better score{beside}")
    return drawn | {"low": 0.0, "high": 1.0}


def profile(strata: dict[str, list[Array]], colours: dict[str, str], seed: int) -> dict[str, Any]:
    """The share of runs above each normalised score."""
    pooled = np.concatenate([stratum for own in strata.values() for stratum in own])
    levels = np.linspace(min(0.0, float(np.quantile(pooled, 0.01))), max(1.0, float(np.quantile(pooled, 0.99))), 101)
    methods = []
    for method, own in strata.items():
        share, low, high = statistics.performance_profile(own, levels, seed)
        methods.append({"name": method, "colour": colours[method], "mid": share, "low": low, "high": high})
    words = {"across": "normalised score", "up": "share of runs above it", "read": "Above"}
    return {"kind": "profile", "x": levels, "low": 0.0, "high": 1.0, "methods": methods} | words


def _rows(rows: list[dict[str, Any]], marks: list[dict[str, Any]], across: str, with_zero: bool = False) -> dict[str, Any]:
    """With an axis that holds all that is shown."""
    values = [mark["at"] for mark in marks] + [0.0] * with_zero
    for row in rows:
        values += [*row["points"], *(row[end] for end in ("mid", "low", "high") if row.get(end) is not None)]
    finite = [float(value) for value in values if np.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    margin = 0.04 * (high - low) or 0.5
    return {"kind": "rows", "rows": rows, "marks": marks, "low": low - margin, "high": high + margin, "across": across}


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
