"""How right the densities are: exemplar models and others on data whose density is known, in one run.

    python benchmarks/density.py              # about ten minutes on 2 cores; writes results/density: CSV files and pictures
    python benchmarks/density.py --seeds 3 --only vectors

100,000 background points for vectors and 24,000 pictures; each method is asked about fresh points. `r` is the correlation of
its log density with the true one, smoothed as the method smooths (its own kernel's width); `r, unsmoothed` with the true
density of the data. `slope` is that of the regression on the former. Seconds are fitting and scoring together, with 2 threads.

A density integrates to 1: 20 data sets, heavy tails, clusters and odd units among them, with seven kinds of smoothing each. The
integral is that of p over draws from another density, whose values are computed here.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import zuko
from gymnasium import spaces
from matplotlib.figure import Figure
from scipy.special import gammaln, logsumexp
from scipy.stats import spearmanr
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity, NearestNeighbors

from ex2 import Batch, ExemplarDensity, make_bonus
from known_densities import PLANAR, VECTORS, Known, films, log_density_of_places

BACKGROUND, ASKED = 100_000, 4_000
FLOW_SECONDS = 15.0
FILMS, STEPS, ASKED_IMAGES = 4_000, 6, 2_000
Answer = tuple[np.ndarray, np.ndarray | float]
"""Log densities of what was asked about, and the standard deviation of the smoothing in each direction."""


def exemplar(model: str, **settings: Any) -> Callable[[np.ndarray, np.ndarray, int], Answer]:
    def answer(data: np.ndarray, asked: np.ndarray, seed: int) -> Answer:
        density = ExemplarDensity(model, random_state=seed, **settings).fit(data)
        return density.score_samples(asked), density.smoothing_ * density.scale_

    return answer


def cross_validated(points: np.ndarray, low: float, high: float, count: int, folds: int = 3) -> float:
    """The bandwidth of the highest held-out likelihood on some of the points."""
    grid = {"bandwidth": np.geomspace(low, high, 10)}
    return float(GridSearchCV(KernelDensity(rtol=1e-3), grid, cv=folds).fit(points[:count]).best_params_["bandwidth"])


def scaling(chosen_on: int, count: int, dimensions: int, folds: int = 3) -> float:
    """What a bandwidth shrinks by, from the points that it was trained on when it was chosen to all that carry a kernel."""
    return (chosen_on * (folds - 1) / folds / count) ** (1 / (4 + dimensions))


def kernel_estimate(data: np.ndarray, asked: np.ndarray, seed: int) -> Answer:
    """scikit-learn's KernelDensity, a kernel on every point; the bandwidth is chosen on 5,000 of them, and scaled."""
    mean, scale = data.mean(0), data.std(0)
    points, queries = (data - mean) / scale, (asked - mean) / scale
    width = cross_validated(points, 0.02, 1.0, 5_000) * scaling(5_000, len(points), data.shape[1])
    found = KernelDensity(bandwidth=width, rtol=1e-3).fit(points).score_samples(queries)
    return found - np.log(scale).sum(), width * scale


def nearest_neighbours(data: np.ndarray, asked: np.ndarray, seed: int, k: int = 50) -> Answer:
    """p = k / (n V(distance to the k-th neighbour))."""
    d = data.shape[1]
    reach = NearestNeighbors(n_neighbors=k).fit(data).kneighbors(asked)[0][:, -1]
    volume = 0.5 * d * np.log(np.pi) - gammaln(0.5 * d + 1) + d * np.log(reach)
    return np.log(k) - np.log(len(data)) - volume, 0.0


def gaussian_mixture(data: np.ndarray, asked: np.ndarray, seed: int) -> Answer:
    """scikit-learn's GaussianMixture, with the number of components that has the best BIC."""
    fits = [GaussianMixture(count, random_state=seed, max_iter=50).fit(data[:20_000]) for count in (3, 6, 12, 24)]
    return min(fits, key=lambda fit: fit.bic(data[:20_000])).score_samples(asked), 0.0


def flow(data: np.ndarray, asked: np.ndarray, seed: int) -> Answer:
    """A neural spline flow by zuko, trained for 15 seconds."""
    torch.manual_seed(seed)
    mean, scale = data.mean(0), data.std(0)
    points, queries = (torch.as_tensor((x - mean) / scale, dtype=torch.float32) for x in (data, asked))
    model = zuko.flows.NSF(data.shape[1], transforms=3, hidden_features=(64, 64))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    started, spent = time.monotonic(), 0.0
    while spent < FLOW_SECONDS:
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * (1 - spent / FLOW_SECONDS)
        loss = -model().log_prob(points[torch.randint(len(points), (512,))]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        spent = time.monotonic() - started
    with torch.no_grad():
        return model().log_prob(queries).numpy() - np.log(scale).sum(), 0.0


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, int], Answer]] = {
    "kernel-exemplar": exemplar("kernel-exemplar"),
    "amortized": exemplar("amortized"),
    "amortized, latent noise": exemplar("amortized", noise="latent"),
    "k-exemplar": exemplar("k-exemplar"),
    "KernelDensity, cross-validated": kernel_estimate,
    "50 nearest neighbours": nearest_neighbours,
    "GaussianMixture, by BIC": gaussian_mixture,
    "spline flow (zuko)": flow,
}


def measure(known: Known, method: Callable[..., Answer], seed: int) -> dict[str, float]:
    random = np.random.default_rng(seed)
    data, asked = known.draw(BACKGROUND, random), known.draw(ASKED, random)
    started = time.perf_counter()
    found, sigma = method(data, asked, seed)
    seconds = time.perf_counter() - started
    sharp = known.log_density(asked, 1e-3)
    true = known.log_density(asked, sigma) if np.all(sigma) else sharp
    slope = float(np.polyfit(true, found, 1)[0])
    return {
        "r": float(np.corrcoef(found, true)[0, 1]),
        "slope": slope,
        "r_unsmoothed": float(np.corrcoef(found, sharp)[0, 1]),
        "offset": float(np.mean(found - true)),
        "smoothing": float(np.mean(sigma)),
        "seconds": seconds,
    }


def vectors(seeds: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every method on every set with one seed, and ours in the plane with many: the worst of all."""
    rows, worst = [], []
    for name, make in VECTORS.items():
        known = make()
        for method, function in METHODS.items():
            rows.append({"data": name, "method": method, **measure(known, function, 0)})
            print(rows[-1], flush=True)
    for name in PLANAR:
        known = VECTORS[name]()
        own = pd.DataFrame([measure(known, METHODS["kernel-exemplar"], seed) for seed in range(seeds)])
        row = {"data": name, "seeds": seeds, "lowest_r": own["r"].min(), "mean_r": own["r"].mean()}
        row |= {"lowest_slope": own["slope"].min(), "highest_slope": own["slope"].max(), "most_seconds": own["seconds"].max()}
        worst.append(row)
        print(row, flush=True)
    columns = ["data", "method", "r", "slope", "smoothing", "r_unsmoothed", "offset", "seconds"]
    return pd.DataFrame(rows)[columns], pd.DataFrame(worst)


def picture(path: Path) -> None:
    """The true smoothed density of each plane set, and what methods make of it."""
    shown = ["kernel-exemplar", "amortized", "amortized, latent noise", "KernelDensity, cross-validated", "spline flow (zuko)"]
    figure = Figure(figsize=(13.5, 7.2), layout="constrained")
    axes = figure.subplots(len(PLANAR), len(shown) + 1)
    x, y = np.meshgrid(np.linspace(-3, 3, 80), np.linspace(-3, 3, 80))
    grid = np.stack([x.ravel(), y.ravel()], 1)
    for row, name in zip(axes, PLANAR, strict=True):
        known = VECTORS[name]()
        data = known.draw(BACKGROUND, np.random.default_rng(0))
        answers = {method: METHODS[method](data, grid, 0) for method in shown}
        maps = {"true, smoothed alike": known.log_density(grid, answers["kernel-exemplar"][1])}
        maps |= {method: found for method, (found, _) in answers.items()}
        top = maps["true, smoothed alike"].max()
        for axis, (title, values) in zip(row, maps.items(), strict=True):
            peak = values.max() if "latent" in title else top
            axis.imshow(
                values.reshape(x.shape), origin="lower", vmin=peak - 8, vmax=peak, extent=(-3, 3, -3, 3), cmap="viridis"
            )
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            if name == PLANAR[0]:
                axis.set_title(title, fontsize=9)
        row[0].set_ylabel(name, fontsize=10)
    figure.suptitle("Log density over the last 8 nats below its peak (latent noise: below its own)", fontsize=11)
    figure.savefig(path, dpi=130)


SPACE, ACTIONS = spaces.Box(0, 255, (32, 32, 3), np.uint8), spaces.Discrete(2)


def as_batch(frames: np.ndarray) -> Batch:
    return Batch.of(frames, np.zeros(frames.shape[:2], np.int64), frames)


def bonus(name: str, **settings: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def answer(frames: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """frames [steps, films, 32, 32, 3]: 20,000 are the background and the last 4,000 the exemplars."""
        model = make_bonus(name, SPACE, ACTIONS, replay_capacity=frames.shape[0] * frames.shape[1], **settings)
        split = round(frames.shape[1] * 5 / 6)
        model.remember(as_batch(frames[:, :split]))
        model.prepare(as_batch(frames[:, split:]))
        return model.log_density(torch.as_tensor(asked).flatten(1)).numpy()

    return answer


def kernels(points: np.ndarray, queries: np.ndarray, count: int) -> np.ndarray:
    """KernelDensity on `count` points, with the bandwidth that 1,000 of them choose."""
    scale = points.std(0).mean()
    width = cross_validated(points / scale, 0.05, 5.0, 1_000) * scaling(1_000, count, points.shape[1])
    return KernelDensity(bandwidth=width).fit(points[:count] / scale).score_samples(queries / scale)


def shuffled(frames: np.ndarray) -> np.ndarray:
    flat = frames.reshape(-1, *frames.shape[2:])
    return flat[np.random.default_rng(0).permutation(len(flat))]


def pixel_kernels(frames: np.ndarray, asked: np.ndarray) -> np.ndarray:
    flat = shuffled(frames).reshape(-1, 3072)[:4_000]
    return kernels(flat / 255.0, asked.reshape(len(asked), -1) / 255.0, 4_000)


def autoencoder_kernels(frames: np.ndarray, asked: np.ndarray, code: int = 8, seconds: float = 20.0) -> np.ndarray:
    """Kernels on the code of a convolutional autoencoder that was trained for 20 seconds."""
    torch.manual_seed(0)
    nn = torch.nn
    encoder = nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, code)
    )
    decoder = nn.Sequential(
        nn.Linear(code, 2048),
        nn.Unflatten(1, (32, 8, 8)),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1),
    )
    optimiser = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 2e-3)
    images = torch.as_tensor(shuffled(frames)).permute(0, 3, 1, 2)
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        some = images[torch.randint(len(images), (128,))].float() / 255.0
        loss = (decoder(encoder(some)) - some).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        points, queries = (
            torch.cat([encoder(part.float() / 255.0) for part in x.split(1_000)]).numpy()
            for x in (images, torch.as_tensor(asked).permute(0, 3, 1, 2))
        )
    return kernels(points, queries, 20_000)


IMAGE_METHODS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "kernel-exemplar": bonus("kernel-exemplar"),
    "kernel-exemplar, neighbours": bonus("kernel-exemplar", projection="neighbours"),
    "amortized, automatic KL weight, 300 steps": bonus("amortized", kl_weight="auto", steps=300, learning_rate=1e-3, samples=0),
    "k-exemplar, 100 steps": bonus("k-exemplar", k=1, steps=100),
    "KernelDensity on pixels": pixel_kernels,
    "KernelDensity on an autoencoder's code": autoencoder_kernels,
}


def images(path: Path) -> pd.DataFrame:
    rows = []
    drawn: dict[str, Any] = {}
    for name, changing in (("fixed background", False), ("changing background", True)):
        random = np.random.default_rng(0)
        frames, _ = films(FILMS, STEPS, changing, random)
        asked, places = (x[0] for x in films(ASKED_IMAGES, 1, changing, random))
        true = log_density_of_places(places)
        for method, function in IMAGE_METHODS.items():
            started = time.perf_counter()
            found = function(frames, asked)
            seconds = time.perf_counter() - started
            row = {"pictures": name, "method": method, "r": float(np.corrcoef(found, true)[0, 1])}
            row |= {"rank_correlation": float(spearmanr(found, true)[0]), "seconds": seconds}
            rows.append(row)
            print(row, flush=True)
            if method == ("kernel-exemplar, neighbours" if changing else "kernel-exemplar"):
                drawn[name] = (frames[:, 0], true, found, row["r"])
    _picture_of_images(drawn, path)
    return pd.DataFrame(rows)


def _picture_of_images(drawn: dict[str, Any], path: Path) -> None:
    figure = Figure(figsize=(9.5, 5.6), layout="constrained")
    grid = figure.add_gridspec(2, 5)
    for row, (name, (film, true, found, r)) in enumerate(drawn.items()):
        for step in range(3):
            axis = figure.add_subplot(grid[row, step])
            axis.imshow(film[step], interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.set_title(f"frame {step + 1}", fontsize=8)
            if step == 0:
                axis.set_ylabel(name, fontsize=9)
        axis = figure.add_subplot(grid[row, 3:])
        axis.plot(true, found, ".", markersize=2.5, alpha=0.5, color="#2f6fdb")
        axis.set_title(f"r = {r:.3f}", fontsize=9)
        axis.set(xlabel="true log density of the place", ylabel="estimated, of the picture")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


SMOOTHINGS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, "auto")


def data_sets(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Twenty, of one to five columns and a few hundred to two thousand rows."""
    normal = random.normal
    return {
        **{f"Gaussian, {d} columns": normal(size=(1_000, d)) for d in (1, 2, 5)},
        **{f"Student's t(2), {d} columns": random.standard_t(2, size=(2_000, d)) for d in (1, 2, 3)},
        **{f"Cauchy, {d} columns": random.standard_cauchy((1_000, d)) for d in (1, 2)},
        **{f"log-normal, {d} columns": random.lognormal(0.0, 2.0, (1_000, d)) for d in (1, 3)},
        "exponential": random.exponential(size=(800, 2)),
        "uniform": random.uniform(size=(800, 2)),
        "two clusters far apart": np.concatenate([normal(size=(500, 2)), normal(1_000.0, 0.1, (500, 2))]),
        "a needle in a cloud": np.concatenate([normal(size=(900, 2)), normal(0.5, 1e-4, (100, 2))]),
        "a line": np.outer(random.uniform(-1, 1, 800), [1.0, 2.0]) + normal(0.0, 0.01, (800, 2)),
        "whole numbers": random.poisson(3.0, (1_000, 2)).astype(float),
        "units of 1e-13": 1e-13 * normal(size=(800, 2)),
        "far from the origin": 1e6 + normal(size=(800, 2)),
        "mostly zero": normal(size=(1_000, 2)) * (random.random((1_000, 2)) < 0.05),
        "300 rows": random.standard_t(3, size=(300, 4)),
    }


def integral(density: ExemplarDensity, data: np.ndarray, random: np.random.Generator, draws: int = 2_000) -> float:
    """The mean of p / g over draws from g: Gaussians around the rows, 1.3 times as wide as the kernels, on the same scale."""
    tail, width, d = 5.0, 1.3 * density.smoothing_, data.shape[1]

    def there(x: np.ndarray) -> np.ndarray:
        far = np.maximum(np.abs(x), tail)
        return np.where(np.abs(x) <= tail, x, np.sign(x) * tail * (1 + np.log(far / tail)))

    def back(z: np.ndarray) -> np.ndarray:
        return np.where(np.abs(z) <= tail, z, np.sign(z) * tail * np.exp(np.abs(z) / tail - 1))

    centres = there((data - density.middle_) / density.scale_)
    z = centres[random.integers(len(centres), size=draws)] + width * random.normal(size=(draws, d))
    x = back(z)
    apart = ((z[:, None] - centres) ** 2).sum(-1) / (2 * width**2)
    log_g = logsumexp(-apart, axis=1) - np.log(len(centres)) - 0.5 * d * np.log(2 * np.pi * width**2)
    log_g -= np.log(np.maximum(np.abs(x) / tail, 1.0)).sum(1) + np.log(density.scale_).sum()
    return float(np.exp(density.score_samples(density.middle_ + density.scale_ * x) - log_g).mean())


def integrals() -> pd.DataFrame:
    """Of every data set and smoothing; and in how many fits an empty place is denser than the densest row."""
    rows, random = [], np.random.default_rng(0)
    for name, data in data_sets(random).items():
        for smoothing in SMOOTHINGS:
            density = ExemplarDensity(smoothing=smoothing, random_state=0).fit(data)
            empty = data[random.integers(len(data), size=500)] + random.normal(size=(500, data.shape[1])) * np.ptp(data, 0)
            scaled = (empty - density.middle_) / density.scale_
            near = NearestNeighbors(n_neighbors=1).fit((data - density.middle_) / density.scale_).kneighbors(scaled)[0][:, 0]
            empty = empty[near > 5 * density.smoothing_]
            denser = bool(len(empty)) and density.score_samples(empty).max() > density.score_samples(data).max()
            row = {"data": name, "smoothing": smoothing, "integral": integral(density, data, random), "denser": bool(denser)}
            rows.append(row)
    row = {"fits": len(rows), "data_sets": len({row["data"] for row in rows})}
    row |= {"lowest": min(row["integral"] for row in rows), "highest": max(row["integral"] for row in rows)}
    row["denser_empty_places"] = sum(row["denser"] for row in rows)
    print(row, flush=True)
    return pd.DataFrame([row])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="of kernel-exemplar in the plane")
    parser.add_argument("--only", choices=["vectors", "images"])
    parser.add_argument("--out", type=Path, default=Path("results/density"))
    options = parser.parse_args()
    torch.set_num_threads(2)
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, pd.DataFrame] = {}
    if options.only != "images":
        found["vectors"], found["seeds"] = vectors(options.seeds)
        picture(options.out / "plane.png")
        found["integrals"] = integrals()
    if options.only != "vectors":
        found["images"] = images(options.out / "images.png")
    for name, table in found.items():
        table.to_csv(options.out / f"{name}.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
