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


@parametrize_with_checks([ExemplarDensity(), ExemplarDensity("amortized", steps=5)])
def test_what_scikit_learn_expects(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([ExemplarDensity("k-exemplar", steps=5)])
def test_what_scikit_learn_expects_of_k_exemplars(estimator, check):
    check(estimator)


def gaussian(count: int, seed: int = 0) -> np.ndarray:
    """Far from the origin, and of other units in each direction."""
    return np.random.default_rng(seed).normal([50.0, -3.0], [10.0, 0.2], (count, 2))


def smoothed(density: ExemplarDensity, points: np.ndarray) -> np.ndarray:
    """The true log density of `gaussian`, smoothed as the estimator says it did."""
    variance = np.square([10.0, 0.2]) + (density.smoothing_ * density.scale_) ** 2
    return multivariate_normal([50.0, -3.0], np.diag(variance)).logpdf(points)


@pytest.mark.parametrize(
    ("model", "correlation", "offset"),
    [("kernel-exemplar", 0.98, 0.1), pytest.param("k-exemplar", 0.93, 0.3, marks=pytest.mark.slow)],
)
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
    few, many = (ExemplarDensity(random_state=0).fit(gaussian(count)) for count in (200, 20_000))
    assert many.smoothing_ < few.smoothing_ < 1.0


def test_repeats_with_its_seed():
    data = gaussian(300)
    one, other = (ExemplarDensity(random_state=3).fit(data).score_samples(data) for _ in range(2))
    assert np.array_equal(one, other)


def test_in_a_pipeline_and_a_grid_search():
    data = gaussian(600)
    pipeline = make_pipeline(StandardScaler(), ExemplarDensity(random_state=0))
    search = GridSearchCV(pipeline, {"exemplardensity__smoothing": [0.2, 3.0]}, cv=2).fit(data)
    assert search.best_params_ == {"exemplardensity__smoothing": 0.2}


@pytest.mark.slow
def test_a_budget_of_time():
    density = ExemplarDensity("k-exemplar", smoothing=0.3, max_seconds=0.5, random_state=0).fit(gaussian(2_000))
    points = gaussian(300, seed=1)
    assert np.corrcoef(density.score_samples(points), smoothed(density, points))[0, 1] > 0.9


@pytest.mark.slow
def test_latent_noise_ranks():
    """Without a known kernel it is an order of points at most, but one that differs from point to point."""
    density = ExemplarDensity("amortized", noise="latent", random_state=0).fit(gaussian(1_000))
    assert density.smoothing_ == 0.0
    assert np.std(density.score_samples(gaussian(50, seed=1))) > 0


def test_constant_columns():
    data = np.hstack([gaussian(2_000), np.full((2_000, 1), 7.0)])
    density = ExemplarDensity(random_state=0).fit(data)
    assert np.isfinite(density.score_samples(data[:10])).all()


HEAVY = {
    "t(2)": lambda random: random.standard_t(2, size=(2_000, 1)),
    "log-normal": lambda random: random.lognormal(0.0, 2.0, (1_000, 1)),
    "Cauchy and clusters": lambda random: np.concatenate([random.standard_cauchy((500, 1)), random.normal(30, 0.01, (500, 1))]),
    "tiny units": lambda random: 1e-13 * random.normal(size=(800, 1)),
}


@pytest.mark.parametrize("smoothing", [0.003, 0.1, 1.0, "auto"])
@pytest.mark.parametrize("name", HEAVY)
def test_a_density_whatever_the_data_and_the_smoothing(name, smoothing):
    """It integrates to 1, and no empty place is denser than the densest row."""
    data = HEAVY[name](np.random.default_rng(0))
    density = ExemplarDensity(smoothing=smoothing, random_state=0).fit(data)
    # as fine as the kernel around every row, and far beyond the last one
    steps = np.linspace(-8, 8, 81) * density.smoothing_
    scaled = np.sort((data - density.middle_) / density.scale_, 0)
    grid = np.unique(
        np.concatenate([(scaled + steps * np.maximum(np.abs(scaled) / 5, 1)).ravel(), np.geomspace(1e-3, 1e9, 20_000)])
    )
    grid = np.concatenate([-np.geomspace(1e9, 1e-3, 20_000), grid])
    points = np.unique(density.middle_ + density.scale_ * grid)[:, None]
    values = np.exp(density.score_samples(points))
    assert np.trapezoid(values, points[:, 0]) == pytest.approx(1.0, abs=0.05)
    empty = np.random.default_rng(1).uniform(-2, 2, (200, 1)) * np.abs(data).max()
    nearest = np.abs(empty - data.T).min(1)
    empty = empty[nearest > 3 * density.scale_ * max(density.smoothing_, 0.1)]
    assert density.score_samples(empty).max() < density.score_samples(data).max()


def test_any_number_has_a_density():
    density = ExemplarDensity(random_state=0).fit(gaussian(500))
    found = density.score_samples([[1e300, 0.0], [-1e300, 1e300], [50.0, -3.0]])
    assert np.isfinite(found).all()
    assert found[1] < found[0] < found[2]


def test_a_search_over_the_smoothing_finds_the_truth():
    data = np.random.default_rng(0).normal(size=(1_000, 2))
    search = GridSearchCV(ExemplarDensity(random_state=0), {"smoothing": [0.003, 0.03, 0.2, 1.0]}, cv=3).fit(data)
    assert search.best_params_ == {"smoothing": 0.2}


def test_outliers_in_the_words_of_pyod():
    random = np.random.default_rng(0)
    data = np.concatenate([random.normal(size=(180, 3)), random.uniform(-9, 9, (20, 3))])
    found = ExemplarDensity(contamination=0.1, random_state=0).fit(data)
    assert found.decision_scores_.shape == (200,)
    assert found.labels_.sum() == 20
    assert found.labels_[180:].mean() > 0.8
    assert set(found.predict([[0.0, 0.0, 0.0], [8.0, -8.0, 8.0]])) == {0, 1}
    assert np.array_equal(found.decision_function(data[:5]), -found.score_samples(data[:5]))


def test_the_rows_of_a_fit_are_judged_without_themselves_also_where_kernels_are_drawn():
    random = np.random.default_rng(0)
    data = np.concatenate([random.normal(size=(1_980, 8)), random.uniform(-9, 9, (20, 8))])
    for kernels in (16_384, 500):
        found = ExemplarDensity(contamination=0.02, random_state=0, settings={"kernels": kernels}).fit(data)
        assert found.labels_[1_980:].mean() > 0.9, kernels
    alone = ExemplarDensity(smoothing=0.01, random_state=0).fit(np.array([[0.0], [1.0], [2.0], [50.0]]))
    assert np.isfinite(alone.decision_scores_).all()
    assert alone.decision_scores_.argmax() == 3


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
        (ExemplarDensity("amortized", settings={"hiden": 3}), "hiden"),
        (ExemplarDensity(settings={"kernls": 3}), "did you mean 'kernels'"),
        (ExemplarDensity(settings={"kernels": 0}), "kernels"),
        (ExemplarDensity(contamination=0.7), "contamination=0.7"),
        (ExemplarDensity(settings={"seed": 3}), "seed"),
        (ExemplarDensity("amortized", settings={"metric": "fixed"}), "metric"),
        (ExemplarDensity(settings={"information_rate": "much"}), "information_rate='much'"),
        (ExemplarDensity(smoothing=1e-9), "at least 1e-06"),
        (ExemplarDensity(steps="many"), "many"),
    ):
        with pytest.raises(UsageError, match=named):
            clone(estimator).fit(data)
