"""The density estimator: scikit-learn's own checks, and densities that are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ex2 import ExemplarDensity, UsageError

MODELS = ("kernel-exemplar", "amortized", "k-exemplar")


@parametrize_with_checks([ExemplarDensity(model, steps=5) for model in MODELS])
def test_what_scikit_learn_expects(estimator, check):
    check(estimator)


def gaussian(count: int, seed: int = 0) -> np.ndarray:
    """Far from the origin, and of other units in each direction."""
    return np.random.default_rng(seed).normal([50.0, -3.0], [10.0, 0.2], (count, 2))


def smoothed(density: ExemplarDensity, points: np.ndarray) -> np.ndarray:
    """The true log density of `gaussian`, smoothed as the estimator says it did."""
    variance = np.square([10.0, 0.2]) + (density.smoothing_ * density.scale_) ** 2
    return multivariate_normal([50.0, -3.0], np.diag(variance)).logpdf(points)


@pytest.mark.parametrize(("model", "correlation", "offset"), [("kernel-exemplar", 0.98, 0.1), ("k-exemplar", 0.93, 0.3)])
def test_normalised_in_the_units_of_the_data(model, correlation, offset):
    """With state noise it is log (P * q)(x) itself: no constant is lost, whatever the units."""
    density = ExemplarDensity(model, smoothing=0.3, random_state=0).fit(gaussian(5_000))
    points = gaussian(500, seed=1)
    found, true = density.score_samples(points), smoothed(density, points)
    assert np.corrcoef(found, true)[0, 1] > correlation
    assert abs(np.mean(found - true)) < offset
    assert 0.75 < np.polyfit(true, found, 1)[0] < 1.25


def test_integrates_to_one():
    density = ExemplarDensity(random_state=0).fit(gaussian(5_000))
    x, y = np.linspace(-10, 110, 200), np.linspace(-4.2, -1.8, 200)
    grid = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    assert np.exp(density.score_samples(grid)).sum() * (x[1] - x[0]) * (y[1] - y[0]) == pytest.approx(1.0, abs=0.1)


def test_automatic_smoothing_is_finer_with_more_data():
    few, many = (ExemplarDensity(random_state=0, steps=10).fit(gaussian(count)) for count in (200, 20_000))
    assert many.smoothing_ < few.smoothing_ < 1.0


def test_repeats_with_its_seed():
    data = gaussian(300)
    one, other = (ExemplarDensity(steps=20, random_state=3).fit(data).score_samples(data) for _ in range(2))
    assert np.array_equal(one, other)


def test_in_a_pipeline_and_a_grid_search():
    data = gaussian(600)
    pipeline = make_pipeline(StandardScaler(), ExemplarDensity(steps=100, random_state=0))
    search = GridSearchCV(pipeline, {"exemplardensity__smoothing": [0.2, 3.0]}, cv=2).fit(data)
    assert search.best_params_ == {"exemplardensity__smoothing": 0.2}


def test_a_budget_of_time():
    density = ExemplarDensity(max_seconds=0.5, random_state=0).fit(gaussian(2_000))
    points = gaussian(300, seed=1)
    assert np.corrcoef(density.score_samples(points), smoothed(density, points))[0, 1] > 0.9


def test_latent_noise_ranks():
    """Without a known kernel it is an order of points at most, but one that differs from point to point."""
    density = ExemplarDensity("amortized", noise="latent", random_state=0).fit(gaussian(1_000))
    assert density.smoothing_ == 0.0
    assert np.std(density.score_samples(gaussian(50, seed=1))) > 0


def test_constant_columns():
    data = np.hstack([gaussian(2_000), np.full((2_000, 1), 7.0)])
    density = ExemplarDensity(random_state=0, steps=300).fit(data)
    assert np.isfinite(density.score_samples(data[:10])).all()


def test_what_says_nothing_is_warned_of():
    with pytest.warns(ConvergenceWarning, match="collapsed 3 times"):
        ExemplarDensity("amortized", noise="latent", smoothing=100.0, steps=100, random_state=0).fit(gaussian(300))


def test_what_cannot_work_is_refused():
    data = gaussian(50)
    for estimator, named in (
        (ExemplarDensity("amortised"), "amortised"),
        (ExemplarDensity(noise="both"), "both"),
        (ExemplarDensity(smoothing=-1.0), "smoothing"),
        (ExemplarDensity(smoothing="much"), "much"),
        (ExemplarDensity(noise="latent"), "noise='state' only"),
        (ExemplarDensity(smoothing=None), "None"),
        (ExemplarDensity(smoothing=np.nan), "nan"),
        (ExemplarDensity("k-exemplar", noise="latent", smoothing="much"), "much"),
        (ExemplarDensity(max_seconds=0), "max_seconds"),
        (ExemplarDensity(steps=1.5), "1.5"),
        (ExemplarDensity(device="gpu"), "gpu"),
        (ExemplarDensity(settings={"hiden": 3}), "hiden"),
        (ExemplarDensity(settings={"seed": 3}), "seed"),
    ):
        with pytest.raises(UsageError, match=named):
            clone(estimator).fit(data)
