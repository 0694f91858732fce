"""What results say, with intervals: the measures of Agarwal et al., "Deep RL at the edge of the statistical precipice" (2021).

The estimators are SciPy's: `trim_mean` for interquartile means, `mannwhitneyu` for probabilities of improvement, `binomtest`
for shares that were solved. Intervals over several tasks come from a stratified bootstrap: seeds are drawn again within each
task, tasks are not. All intervals are of 95 %, everything drawn comes from one seed.

Scores of different tasks are brought to one scale first (`scale_of`): 0 is the paper's score without a bonus, 1 the best that
the paper reports. Of a task that is not the paper's, 0 is a return of 0 and 1 the score from which on it counts as solved;
where that score is not above 0, 0 is the lowest score of any trial; where there is none, 0 and 1 are the lowest and highest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest, mannwhitneyu, trim_mean

from ex2.arrays import Array
from ex2.tasks import TASKS

LEVEL = 0.95
RESAMPLES = 2_000
COUNTED = ("experiment", "task", "arm", "bonus", "n", "steps", "least_steps", "reached", "least_reached", "unfinished", "seeds")
MEASURED = ("solved_at", "solved", "low", "high", "mean", "lowest", "iqm", "first", "seconds", "bonus_share")
PAPER = ("paper", "paper_best", "paper_none")
Interval = tuple[float, float]


def clopper_pearson(successes: int, count: int) -> Interval:
    """The exact interval of 95 % for a share of which `successes` of `count` were seen.

    >>> low, high = clopper_pearson(10, 10)
    >>> round(low, 3), high
    (0.692, 1.0)
    """
    if count == 0:
        return 0.0, 1.0
    found = binomtest(successes, count).proportion_ci(LEVEL, method="exact")
    return float(found.low), float(found.high)


def interquartile_mean(scores: Array, axis: int | None = None) -> Array:
    """The mean of the middle half.

    >>> float(interquartile_mean(np.array([0.0, 1.0, 3.0, 100.0])))
    2.0
    """
    return np.asarray(trim_mean(scores, 0.25, axis=axis))


def resampled(strata: Sequence[Array], random: np.random.Generator, count: int = RESAMPLES) -> list[Array]:
    """Each stratum [n] drawn again with replacement, [count, n], apart from the others."""
    return [np.asarray(stratum)[random.integers(len(stratum), size=(count, len(stratum)))] for stratum in strata]


def bootstrap(strata: Sequence[Array], measure: Callable[[Array], Array], seed: int = 0, count: int = RESAMPLES) -> Interval:
    """The percentile interval of `measure`, which takes the scores of all tasks, [count, scores] -> [count]."""
    return _interval(measure(np.concatenate(resampled(strata, np.random.default_rng(seed), count), axis=1)))


def probability_of_improvement(ours: Sequence[Array], others: Sequence[Array]) -> float:
    """How probable it is that a run of ours beats one of theirs on the same task, ties half; the mean over tasks.

    >>> probability_of_improvement([np.array([2.0, 3.0])], [np.array([1.0, 2.0])])
    0.875
    """
    return float(np.mean([_share_better(mine, theirs) for mine, theirs in zip(ours, others, strict=True)]))


def improvement_interval(ours: Sequence[Array], others: Sequence[Array], seed: int = 0, count: int = RESAMPLES) -> Interval:
    """Its interval by the stratified bootstrap, both sides drawn again."""
    random = np.random.default_rng(seed)
    mine, theirs = resampled(ours, random, count), resampled(others, random, count)
    return _interval(np.mean([_share_better(one, other) for one, other in zip(mine, theirs, strict=True)], axis=0))


def performance_profile(
    strata: Sequence[Array], levels: Array, seed: int = 0, count: int = RESAMPLES
) -> tuple[Array, Array, Array]:
    """The share of runs above each level, with the ends of its interval; each task counts the same."""

    def above(scores: Array) -> Array:
        """The share above each level, [..., n] -> [..., levels]."""
        ordered = np.sort(scores, axis=-1).reshape(-1, scores.shape[-1])
        below = np.stack([np.searchsorted(row, levels, side="right") for row in ordered])
        return np.asarray(1.0 - below.reshape(*scores.shape[:-1], len(levels)) / scores.shape[-1])

    share = np.asarray(np.mean([above(np.asarray(stratum)) for stratum in strata], axis=0))
    drawn = np.mean([above(stratum) for stratum in resampled(strata, np.random.default_rng(seed), count)], axis=0)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return share, low, high


def scale_of(task: str, scores: Array, solved_at: float | None = None) -> Interval:
    """What counts as 0 and as 1 of a task, from the scores of all trials of it.

    >>> scale_of("maze", np.array([-80.0])), scale_of("sparse-maze", np.array([0.3]), 0.9)
    ((-175.6, -69.6), (0.0, 0.9))
    """
    zero, one, _ = named_scale_of(task, scores, solved_at)
    return zero, one


def named_scale_of(task: str, scores: np.ndarray[Any, Any], solved_at: float | None = None) -> tuple[float, float, str]:
    """The same, with what the two are in words."""
    paper = TASKS[task].paper if task in TASKS else {}
    known = np.asarray(scores)[np.isfinite(scores)]
    lowest, highest = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if "none" in paper and max(paper.values()) > paper["none"]:
        zero, one, words = paper["none"], max(paper.values()), "the paper's TRPO and its best"
    elif solved_at is not None and np.isfinite(solved_at) and solved_at > 0:
        zero, one, words = 0.0, float(solved_at), "nothing and solved"
    elif solved_at is not None and np.isfinite(solved_at):
        zero, one, words = lowest, float(solved_at), "the lowest score of any trial and solved"
    else:
        zero, one, words = lowest, highest, "the lowest and the highest score of any trial"
    return zero, one if one > zero else zero + 1.0, words


def methods(table: pd.DataFrame, among: pd.DataFrame | None = None) -> pd.Series:
    """What the method of each row is called: its arm, and where there are several experiments, which one it is of. They are
    counted `among` all scores where the table is only a part, or holds curves."""
    if (table if among is None else among)["experiment"].nunique() < 2:
        return table["arm"].astype(str)
    return table["arm"].astype(str) + " (" + table["experiment"].astype(str) + ")"


def normalised(scores: pd.DataFrame) -> pd.DataFrame:
    """The trials that have a score, with `method`, and `score` on its task's scale."""
    known = scores.assign(method=methods(scores), score=scores["score"].astype(float))[scores["score"].notna()]
    for task, own in known.groupby("task", sort=False):
        zero, one = scale_of(str(task), own["score"].to_numpy(float), own["solved_at"].max())
        known.loc[own.index, "score"] = (own["score"] - zero) / (one - zero)
    return known


def strata_of(known: pd.DataFrame, tasks: Sequence[str]) -> dict[str, list[Array]]:
    """Scores by method, an array for each of these tasks; methods that lack one of them are left out."""
    found: dict[str, list[Array]] = {}
    for method, own in known.groupby("method", sort=False):
        strata = [own.loc[own["task"] == task, "score"].to_numpy(float) for task in tasks]
        if all(len(stratum) for stratum in strata):
            found[str(method)] = strata
    return found


def shared_tasks(known: pd.DataFrame) -> list[str]:
    """The tasks that all methods have been tried on; of others no mean over tasks would be fair."""
    having = [set(own["task"]) for _, own in known.groupby("method", sort=False)]
    return [task for task in known["task"].unique() if all(task in tasks for tasks in having)]


def aggregate(strata: dict[str, list[Array]], seed: int = 0) -> pd.DataFrame:
    """The interquartile mean of each method over all runs' normalised scores, with its interval: method, n, iqm, low, high."""
    rows = []
    for method, own in strata.items():
        pooled = np.concatenate(own)
        low, high = bootstrap(own, lambda drawn: interquartile_mean(drawn, axis=-1), seed)
        rows.append({"method": method, "n": len(pooled), "iqm": float(interquartile_mean(pooled)), "low": low, "high": high})
    return pd.DataFrame(rows, columns=["method", "n", "iqm", "low", "high"])


def summarise(scores: pd.DataFrame) -> pd.DataFrame:
    """A row for each task and arm (and experiment): `n` trials that were to have `least_steps` to `steps` and have come to
    `least_reached` to `reached`, so many of them `unfinished`, which count as far as they came; `solved` with its interval
    (`low`, `high`), `mean`, `lowest` and interquartile mean `iqm` of the scores, `first` (the median step at which those that
    ever were solved were so for the first time), the paper's score of this bonus (`paper`), its best and TRPO's
    (`paper_best`, `paper_none`).
    """
    rows = []
    for (experiment, task, arm), own in scores.groupby(["experiment", "task", "arm"], sort=False, dropna=False):
        known, solved_at = own["score"].dropna().to_numpy(float), own["solved_at"].max()
        paper = TASKS[task].paper if task in TASKS else {}
        bonus = own["bonus"].iloc[0]
        solved = int((known >= solved_at).sum()) if pd.notna(solved_at) else np.nan
        low, high = clopper_pearson(int(solved), len(own)) if pd.notna(solved) else (np.nan, np.nan)
        rows.append(
            {
                "experiment": experiment,
                "task": task,
                "arm": arm,
                "bonus": bonus,
                "n": len(own),
                "steps": int(own["steps"].max()),
                "least_steps": int(own["steps"].min()),
                "reached": int(own["step"].max()),
                "least_reached": int(own["step"].min()),
                "unfinished": int((own["step"] < own["steps"]).sum()),
                "seeds": seeds_text(own["seed"].astype(int)),
                "solved_at": solved_at,
                "solved": solved,
                "low": low,
                "high": high,
                "mean": float(known.mean()) if len(known) else np.nan,
                "lowest": float(known.min()) if len(known) else np.nan,
                "iqm": float(interquartile_mean(known)) if len(known) else np.nan,
                "first": float(own["first"].dropna().median()) if own["first"].notna().any() else np.nan,
                "seconds": float(own["seconds"].mean()),
                "bonus_share": float(own["bonus_share"].mean()),
                "paper": paper.get(bonus, np.nan),
                "paper_best": max(paper.values(), default=np.nan),
                "paper_none": paper.get("none", np.nan),
            }
        )
    return pd.DataFrame(rows, columns=[*COUNTED, *MEASURED, *PAPER])


def first_text(first: float | None, solved: float | None) -> str:
    """When a task was solved for the first time, in words: never, or by those who did not write it down.

    >>> first_text(1500.0, 2), first_text(None, 0), first_text(None, 2)
    ('1,500', '–', 'not recorded')
    """
    if first is not None and np.isfinite(first):
        return f"{first:,.0f}"
    return "not recorded" if solved else "–"


def many(count: int, what: str) -> str:
    """
    >>> many(1, "trial"), many(1_000, "trial")
    ('1 trial', '1,000 trials')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def range_text(least: int, most: int) -> str:
    """
    >>> range_text(6_400, 6_400), range_text(1_600, 6_400)
    ('6,400', '1,600 to 6,400')
    """
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def steps_text(row: Mapping[str, Any]) -> str:
    """The steps of a row of a summary: those that its trials were to have, behind those that they reached where some have not.

    >>> row = {"steps": 40_000, "least_steps": 40_000, "reached": 40_000, "least_reached": 4_608, "unfinished": 1}
    >>> steps_text(row), steps_text(row | {"least_reached": 40_000, "unfinished": 0})
    ('4,608 to 40,000 of 40,000', '40,000')
    """
    asked = range_text(row["least_steps"], row["steps"])
    return f"{range_text(row['least_reached'], row['reached'])} of {asked}" if row["unfinished"] else asked


def seeds_text(seeds: Sequence[int] | pd.Series) -> str:
    """Seeds in few words.

    >>> seeds_text([3, 1, 2, 7])
    '1-3, 7'
    """
    runs: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _share_better(mine: Array, theirs: Array) -> Array:
    """Of all pairs, [..., n] and [..., m] -> [...]."""
    with np.errstate(all="ignore"):  # its p-value, which is not asked for, is none where all are the same
        found = mannwhitneyu(mine, theirs, axis=-1, method="asymptotic").statistic
    pairs = np.shape(mine)[-1] * np.shape(theirs)[-1]
    return np.asarray(found / pairs)


def _interval(drawn: Array) -> Interval:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
