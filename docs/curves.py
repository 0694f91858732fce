"""Learning curves as SVG, from curves.csv: every seed a thin line, their mean a thick one. The same bytes on every machine."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
COLOURS = ("#2f6fdb", "#d9822b", "#3a9a5b", "#a43fb0", "#c0392b", "#5f6b7a", "#0f8b8d", "#8a6d1d", "#e06c9f", "#1f2733")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 56, 190, 16, 36
POINTS = 100  # of a mean curve


def ticks(low: float, high: float) -> np.ndarray:
    """Round numbers between two, three to six of them.

    >>> ticks(-200, 0).tolist(), ticks(0, 336.9).tolist()
    ([-200.0, -150.0, -100.0, -50.0, 0.0], [0.0, 100.0, 200.0, 300.0])
    """
    unit = 10.0 ** np.floor(np.log10((high - low) / 4))
    step = unit * next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * unit) <= 5)
    return step * np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) + 0.0  # no -0


def draw(folder: str, task: str) -> str:
    """The curves of a task's arms."""
    data = pd.read_csv(ROOT / "results" / folder / "curves.csv", dtype={"arm": str})
    data = data[data["task"] == task]
    far, low, high = float(data["step"].max()), float(data["score"].min()), float(data["score"].max())
    low, high = min(low, 0.0), max(high, 0.0)

    def line(steps: np.ndarray, scores: np.ndarray, style: str) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * steps / far
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - scores) / (high - low)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        return f'<polyline fill="none" {style} points="{points}"/>'

    title = escape(f"Learning curves on {task}: every seed, and the mean of each arm")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'font-family="sans-serif" font-size="12"><title>{title}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for value in ticks(low, high):
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e3e6ea"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#4a5361">{value:.4g}</text>')
    for step in ticks(0, far):
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / far
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 18}" text-anchor="middle" fill="#4a5361">{step / 1e6:.3g} M</text>')
    below = f"{escape(task)}: mean return of the last 20 episodes, by environment steps"
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 3}" fill="#4a5361">{below}</text>')
    for place, arm in enumerate(data["arm"].unique()):
        own, colour = data[data["arm"] == arm], COLOURS[place % len(COLOURS)]
        runs = [run.sort_values("step") for _, run in own.groupby("seed")]
        for run in runs:
            style = f'stroke="{colour}" stroke-width="1" opacity="0.3"'
            parts.append(line(run["step"].to_numpy(float), run["score"].to_numpy(float), style))
        at = np.linspace(max(run["step"].min() for run in runs), min(run["step"].max() for run in runs), POINTS)
        mean = np.mean([np.interp(at, run["step"], run["score"]) for run in runs], axis=0)
        parts.append(line(at, mean, f'stroke="{colour}" stroke-width="2.5"'))
        y = TOP + 12 + 18 * place
        parts.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{y - 9}" width="14" height="4" fill="{colour}"/>')
        text = escape(arm if len(arm) < 22 else arm[:19] + "…")
        parts.append(f'<text x="{WIDTH - RIGHT + 32}" y="{y - 2}" fill="#1f2733">{text} ({len(runs)})</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
