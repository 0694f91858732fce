"""Exemplar densities as outlier detectors, on a folder of tables: areas under the ROC curve, beside the usual detectors.

    python benchmarks/outliers.py FOLDER --seeds 0 1 2    # FOLDER holds .npz files with X [n, d] and y (1: an outlier)

For a seed, half of the normal rows (at most 5,000) train, after standard scaling by them; the other half and all outliers are
scored. Writes results/outliers/outliers.csv.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors

from ex2 import ExemplarDensity

MOST = 5_000


def neighbours(train: np.ndarray, asked: np.ndarray, seed: int) -> np.ndarray:
    return NearestNeighbors(n_neighbors=5).fit(train).kneighbors(asked)[0][:, -1]


DETECTORS: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "ExemplarDensity": lambda train, asked, seed: ExemplarDensity(random_state=seed).fit(train).decision_function(asked),
    "distance to the 5th neighbour": neighbours,
    "local outlier factor": lambda train, asked, seed: -LocalOutlierFactor(novelty=True).fit(train).score_samples(asked),
    "isolation forest": lambda train, asked, seed: -IsolationForest(random_state=seed).fit(train).score_samples(asked),
}


def split(path: Path, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train on, rows to ask about, and which of those are outliers."""
    with np.load(path, allow_pickle=False) as table:
        X, y = table["X"].astype(float), table["y"].ravel()
    normal = np.random.default_rng(seed).permutation(np.flatnonzero(y == 0))
    train, rest = np.split(normal, [len(normal) // 2])
    asked = np.concatenate([rest, np.flatnonzero(y == 1)])
    mean, spread = X[train[:MOST]].mean(0), X[train[:MOST]].std(0)
    X = (X - mean) / np.where(spread > 0, spread, 1.0)
    return X[train[:MOST]], X[asked], y[asked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("results/outliers/outliers.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for path in sorted(options.folder.glob("*.npz")):
        for seed in options.seeds:
            train, asked, outlier = split(path, seed)
            for name, detect in DETECTORS.items():
                started = time.perf_counter()
                area = 100 * roc_auc_score(outlier, detect(train, asked, seed))
                seconds = round(time.perf_counter() - started, 3)
                rows.append({"table": path.stem, "seed": seed, "detector": name, "area": round(area, 2), "seconds": seconds})
    with open(options.out, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for name in DETECTORS:
        own = [row for row in rows if row["detector"] == name]
        area, seconds = (np.mean([row[key] for row in own]) for key in ("area", "seconds"))
        print(f"{name:32s} mean area {area:.1f}, {seconds:.2f} s a table")


if __name__ == "__main__":
    main()
