"""Exemplar models outside reinforcement learning: find what does not belong.

    python examples/outliers.py

One-class detection on the data sets that come with scikit-learn: train on half of one class, without labels, then rank the
other half and everything of the other classes by how novel it is. A number is the area under the ROC curve, averaged over the
classes as normal ones (0.5 is chance, 1 is perfect). Below 1,000 training points there is little to learn a density from:
this shows where exemplar densities stand beside the usual detectors, none of them tuned to the data.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KernelDensity, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ex2 import ExemplarDensity

DATA = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
DETECTORS = {
    "ExemplarDensity": lambda: ExemplarDensity(random_state=0),
    "ExemplarDensity, amortized": lambda: ExemplarDensity("amortized", random_state=0, steps=500),
    "IsolationForest": lambda: IsolationForest(random_state=0),
    "LocalOutlierFactor": lambda: LocalOutlierFactor(novelty=True),
    "KernelDensity": lambda: KernelDensity(bandwidth="scott"),
}
COMPONENTS = 8  # wider data are projected to so many principal components, for every detector alike


def area(detector, data: np.ndarray, labels: np.ndarray, normal: int, seed: int = 0) -> float:
    """How well a detector trained on half of class `normal` tells the rest of it from the other classes."""
    inside = np.random.default_rng(seed).permutation(np.flatnonzero(labels == normal))
    train, rest = np.split(inside, [len(inside) // 2])
    outside = np.flatnonzero(labels != normal)
    steps = [StandardScaler()] + ([PCA(COMPONENTS, whiten=True, random_state=0)] if data.shape[1] > COMPONENTS else [])
    model = make_pipeline(*steps, detector).fit(data[train])
    familiar = model.score_samples(data[np.concatenate([rest, outside])])
    return roc_auc_score(np.repeat([1, 0], [len(rest), len(outside)]), familiar)


def main() -> None:
    warnings.simplefilter("ignore")
    print(f"{'':28s}" + "".join(f"{name:>15s}" for name in DATA))
    for name, make in DETECTORS.items():
        scores = []
        for load in DATA.values():
            data, labels = load(return_X_y=True)
            scores.append(np.mean([area(make(), data, labels, normal) for normal in np.unique(labels)]))
        print(f"{name:28s}" + "".join(f"{score:15.3f}" for score in scores), flush=True)


if __name__ == "__main__":
    main()
