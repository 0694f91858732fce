"""Statistics of results: closed forms, examples that can be worked out by hand, and intervals that hold what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

from ex2.lab import statistics
from ex2.lab.results import SCORES

LEVELS = np.array([-0.1, 0.0, 0.5, 1.0])


def scores_of(*rows: dict[str, Any]) -> pd.DataFrame:
    usual = {"experiment": "e", "task": "maze", "arm": "a", "bonus": "none", "steps": 100, "step": 100, "solved_at": -70.0}
    usual |= {"first": np.nan, "seconds": 2.0, "bonus_share": 0.1}
    return pd.DataFrame([usual | {"seed": number} | row for number, row in enumerate(rows)]).reindex(columns=list(SCORES))


@pytest.mark.parametrize(("successes", "count"), [(0, 10), (9, 10), (10, 10), (3, 8), (1, 1)])
def test_clopper_pearson_is_what_the_beta_distribution_says(successes: int, count: int) -> None:
    low, high = statistics.clopper_pearson(successes, count)
    assert low == pytest.approx(beta.ppf(0.025, successes, count - successes + 1) if successes else 0.0)
    assert high == pytest.approx(beta.ppf(0.975, successes + 1, count - successes) if successes < count else 1.0)


def test_the_interquartile_mean_is_of_the_middle_half() -> None:
    assert statistics.interquartile_mean(np.array([-9.0, 1, 2, 3, 4, 5, 6, 900])) == 3.5
    rows = np.array([[0.0, 1, 3, 100], [0, 2, 4, 4]])
    assert statistics.interquartile_mean(rows, axis=1).tolist() == [2.0, 3.0]


def test_seeds_are_drawn_again_within_their_task() -> None:
    first, second = statistics.resampled([np.array([0.0, 1.0]), np.array([5.0])], np.random.default_rng(0), 500)
    assert set(first.ravel()) == {0.0, 1.0}
    assert set(second.ravel()) == {5.0}
    assert first.mean() == pytest.approx(0.5, abs=0.05)


def test_intervals_of_a_mean_cover_it_as_often_as_they_say() -> None:
    """20 seeds in each of two tasks, whose means differ by far more than their scores do: unstratified, it would be wide."""
    random, covered, widths = np.random.default_rng(0), 0, []
    for trial in range(200):
        strata = [random.normal(0, 1, 20), random.normal(100, 1, 20)]
        low, high = statistics.bootstrap(strata, lambda drawn: drawn.mean(axis=1), seed=trial, count=400)
        covered += low <= 50 <= high
        widths.append(high - low)
    assert 0.88 <= covered / 200 <= 0.99
    assert np.mean(widths) == pytest.approx(2 * 1.96 / np.sqrt(40), rel=0.1)


def test_improvement_by_hand() -> None:
    better = [np.array([1.0, 2.0, 3.0])], [np.array([0.0, 0.5])]
    assert statistics.probability_of_improvement(*better) == 1.0
    assert statistics.improvement_interval(*better) == (1.0, 1.0)
    same = [np.zeros(3), np.ones(2)]
    assert statistics.probability_of_improvement(same, same) == 0.5
    assert statistics.improvement_interval(same, same) == (0.5, 0.5)
    two = statistics.probability_of_improvement([np.array([1.0]), np.array([0.0, 2.0])], [np.array([0.0]), np.array([1.0])])
    assert two == 0.75  # the mean of 1 and 1/2
    low, high = statistics.improvement_interval([np.arange(10.0)], [np.arange(10.0) + 2], seed=3)
    assert low < statistics.probability_of_improvement([np.arange(10.0)], [np.arange(10.0) + 2]) < high < 0.6


def test_profiles_count_runs_above_a_level_each_task_the_same() -> None:
    share, low, high = statistics.performance_profile([np.array([0.0, 1.0]), np.array([0.5, 0.6, 0.7, 0.8])], LEVELS)
    assert share.tolist() == [1.0, 0.75, (0.5 + 0.75) / 2, 0.0]
    assert (low <= share).all()
    assert (share <= high).all()


def test_what_is_drawn_comes_from_the_seed() -> None:
    strata = [np.arange(10.0)]
    one, again, other = (statistics.bootstrap(strata, lambda drawn: drawn.mean(axis=1), seed) for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize(
    ("task", "scores", "solved_at", "scale"),
    [
        ("maze", [-80.0], -70.0, (-175.6, -69.6)),
        ("sparse-maze", [0.2], 0.9, (0.0, 0.9)),
        ("MountainCar-v0", [-200.0, -90.0], -150.0, (-200.0, -150.0)),
        ("MountainCar-v0", [-200.0, -90.0], None, (-200.0, -90.0)),
        ("MountainCar-v0", [3.0], np.nan, (3.0, 4.0)),
        ("MountainCar-v0", [np.nan], None, (0.0, 1.0)),
    ],
)
def test_scales_of_tasks(task: str, scores: list[float], solved_at: float | None, scale: tuple[float, float]) -> None:
    assert statistics.scale_of(task, np.array(scores), solved_at) == scale


def test_a_summary_by_hand() -> None:
    table = scores_of(*[{"score": score, "first": 30.0 * number} for number, score in enumerate((-60.0, -65.0, -80.0, -70.0))])
    more = scores_of({"arm": "b", "score": np.nan, "step": 50}, {"arm": "b", "score": -200.0, "first": np.nan})
    first, second = statistics.summarise(pd.concat([table, more])).to_dict("records")
    assert (first["n"], first["solved"], first["mean"], first["lowest"], first["iqm"]) == (4, 3, -68.75, -80.0, -67.5)
    assert (first["low"], first["high"]) == statistics.clopper_pearson(3, 4)
    assert (first["first"], first["paper"], first["paper_best"], first["seeds"]) == (45.0, -175.6, -69.6, "0-3")
    assert (second["n"], second["solved"], second["mean"], second["unfinished"]) == (2, 0, -200.0, 1)
    assert np.isnan(second["first"])


def test_a_summary_says_from_which_budget_to_which() -> None:
    (row,) = statistics.summarise(scores_of({"steps": 1_600, "step": 1_600}, {"steps": 6_400, "step": 400})).to_dict("records")
    assert (row["n"], row["least_steps"], row["steps"], row["unfinished"]) == (2, 1_600, 6_400, 1)


def test_only_tasks_that_all_methods_have_are_pooled() -> None:
    table = scores_of(
        {"score": -69.6}, {"task": "sparse-maze", "score": 0.9, "solved_at": 0.9}, {"arm": "b", "score": -175.6}, {"arm": "b"}
    )
    known = statistics.normalised(table)
    assert known["score"].tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert statistics.shared_tasks(known) == ["maze"]
    found = statistics.aggregate(statistics.strata_of(known, ["maze"]))
    assert found[["method", "n"]].to_numpy().tolist() == [["a", 1], ["b", 1]]
    assert found[["iqm", "low", "high"]].to_numpy() == pytest.approx(np.array([[1.0] * 3, [0.0] * 3]))


def test_nothing_is_no_error() -> None:
    empty = scores_of()
    assert statistics.summarise(empty).empty
    assert statistics.shared_tasks(statistics.normalised(empty)) == []
    assert statistics.aggregate({}).empty
