"""The tables of README and docs by name: results in, Markdown out. docs/generate.py puts them between markers.

Each is one function, of docs/scores.py or docs/measures.py, and is called with the words of its marker. Links in it are
written from the repository's root.
"""

from __future__ import annotations

from collections.abc import Callable

import measures
import scores

FUNCTIONS: tuple[Callable[..., str], ...] = (
    *(scores.headline, scores.solved, scores.cheetah_bonuses, scores.dense, scores.by_seed),
    *(measures.tried, measures.facts, measures.rows, measures.novelty, measures.outliers, measures.densities),
    *(measures.cost, measures.growth, measures.memory, measures.bonus_cost, measures.worlds, measures.places),
    *(measures.trainings, measures.adapters, measures.workers, measures.cluster),
    *(measures.report, measures.snapshots, measures.sweep),
)
TABLES = {function.__name__.replace("_", "-"): function for function in FUNCTIONS}
