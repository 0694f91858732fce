"""Tables of trainings, from results/EXPERIMENT/scores.csv."""

from __future__ import annotations

import pandas as pd

from cells import RESULTS, interval, made, millions, number, seeds, table
from ex2.tasks import TASKS

HEADLINE = (  # task, its results, and where runs without a bonus are as long as there are none
    ("sparse-maze", "default", "default"),
    ("maze", "default", "default"),
    ("cheetah", "default", "default"),
    ("doom", "default", "earlier/doom"),
    ("gather", "gather", "earlier/gather"),
    ("MiniGrid-MultiRoom-N4-S5-v1", "strangers", "strangers"),
    ("MiniGrid-DoorKey-6x6-v0", "strangers", "strangers"),
)


def scores_of(folder: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / folder / "scores.csv", dtype={"commit": str, "arm": str})


def share_solved(rows: pd.DataFrame) -> str:
    """'9 of 10 (55 to 100 %)', or nothing where a task has no such score."""
    if not len(rows) or rows["solved_at"].isna().all():
        return ""
    solved = int((rows["score"] >= rows["solved_at"]).sum())
    return f"{solved} of {len(rows)} ({interval(solved, len(rows))})"


def mean_and_lowest(rows: pd.DataFrame) -> str:
    return f"{number(rows['score'].mean())} ({number(rows['score'].min())})" if len(rows) else "not run"


def headline() -> str:
    """Task x ours, without a bonus, the paper's best and its TRPO."""
    lines = []
    for task, folder, plain in HEADLINE:
        every, other = scores_of(folder), scores_of(plain)
        ours = every[(every["task"] == task) & (every["arm"] == "kernel-exemplar")]
        none = every[(every["task"] == task) & (every["arm"] == "none")]
        before = none.empty
        if before:
            none = other[(other["task"] == task) & (other["arm"] == "none")]
        known = TASKS.get(task)
        paper = known.paper if known else {}
        best = f"{max(paper.values()):g} ({paper.get('none', float('nan')):g})" if paper else ""
        name = (
            f"[`{task}`](docs/tasks/{'maze' if task == 'sparse-maze' else task}.md)"
            if known
            else f"{task.rsplit('-', 1)[0]}, PPO of [Stable-Baselines3](docs/adapters.md)"
        )
        solved = int((none["score"] >= ours["solved_at"].iloc[0]).sum())
        mark = " (settings of before)" if before else ""
        without = f"{number(none['score'].mean())}, {solved} of {len(none)}{mark}"
        at = number(ours["solved_at"].iloc[0])
        lines.append(
            [name, millions(ours["step"].max()), at, f"**{share_solved(ours)}**", mean_and_lowest(ours), without, best]
        )
    header = [
        "task",
        "steps",
        "solved at",
        "solved (95 % interval)",
        "score, mean (lowest)",
        "no bonus: mean, solved",
        "paper: best (TRPO)",
    ]
    note = (
        "\n\nThe default bonus with nothing chosen, seeds that nothing was chosen on, the mean return of the last 20 episodes. "
        "By `ex2 sweep experiments/default.toml`, `ex2 sweep experiments/gather.toml` and `python benchmarks/defaults.py "
        "strangers` ([data](results/default/scores.csv), [gather](results/gather/scores.csv), "
        "[strangers](results/strangers/scores.csv)); SwimmerGather ran with a bonus that fades as 1 - t, as it was "
        "[before](docs/experiments/weight-auto.md#finds-that-are-lost-and-spikes); runs with settings of before: [what was "
        "tried](docs/experiments/index.md)."
    )
    return table(header, lines) + note


def solved(folder: str, name: str = "", *only: str) -> str:
    """Task x arm: how many were solved, their mean, and when for the first time. `only`: tasks."""
    every = scores_of(folder)
    every = every.sort_values("task", key=lambda tasks: tasks.map(list(tasks.unique()).index), kind="stable")
    lines = []
    for (task, arm), rows in every.groupby(["task", "arm"], sort=False):
        if only and task not in only:
            continue
        first = rows["first"].dropna()
        later = f"{first.median():,.0f} ({len(first)} of {len(rows)})" if len(first) else ""
        cells = [f"`{task}`", f"`{arm}`" if " " not in arm else arm, millions(rows["step"].median()), seeds(rows["seed"])]
        lines.append([*cells, share_solved(rows), mean_and_lowest(rows), later])
    header = ["task", "bonus", "steps", "seeds", "solved (95 % interval)", "mean (lowest)", "first solved after, median (of)"]
    return table(header, lines) + made(f"results/{folder}/scores.csv", name)


def cheetah_bonuses() -> str:
    """All bonuses on the cheetah; trials that were cut off are counted apart."""
    every = pd.concat([scores_of("earlier/default-linear"), scores_of("cheetah-bonuses")])
    every = every[every["task"] == "cheetah"]
    lines = []
    for arm, rows in sorted(every.groupby("arm"), key=lambda pair: -pair[1]["score"].mean()):
        ended = rows[rows["step"] == rows["steps"]]
        cut = rows[rows["step"] < rows["steps"]]
        first = ended["first"].dropna()
        cells = [f"`{arm}`", seeds(ended["seed"]), share_solved(ended), mean_and_lowest(ended), millions(first.median())]
        lines.append([*cells, ", ".join(f"{number(row.score)} at {millions(row.step)}" for row in cut.itertuples())])
    header = ["bonus", "seeds run to 5 M", "solved (95 % interval)", "mean (lowest)", "first solved after, median", "cut off"]
    return table(header, lines) + made("results/cheetah-bonuses/scores.csv", "cheetah-bonuses")


def dense() -> str:
    """Where no bonus is needed: with the default and without."""
    every, lines = scores_of("dense"), []
    for task, rows in every.groupby("task", sort=False):
        ours, none = (rows[rows["arm"] == arm]["score"] for arm in ("kernel-exemplar", "none"))
        share = ours.mean() / none.mean() if none.mean() > 0 else none.mean() / ours.mean()
        spans = [f"{number(x.mean())} ({number(x.min())} to {number(x.max())})" for x in (ours, none)]
        lines.append([task, millions(rows["step"].max()), len(ours), *spans, f"{share:.2f}"])
    note = " Scores are means of the last tenth of a training; of negative ones the share is turned round."
    return (
        table(["task", "steps", "seeds", "with", "without", "share"], lines) + made("results/dense/scores.csv", "dense") + note
    )


def by_seed(folder: str, name: str = "") -> str:
    """Arm x seed by seed, with the paper's score where it has one. For trials of one task."""
    every, lines = scores_of(folder), []
    paper = TASKS[every["task"].iloc[0]].paper if every["task"].iloc[0] in TASKS else {}
    groups = sorted(every.groupby("arm", sort=False), key=lambda pair: -pair[1]["score"].mean())
    for arm, rows in groups:
        rows = rows.sort_values("seed")
        first = ", ".join(millions(x) if pd.notna(x) else "never" for x in rows["first"]) if rows["first"].notna().any() else ""
        cells = [f"`{arm}`" if " " not in arm else arm, number(rows["score"].mean()), seeds(rows["seed"])]
        span = sorted({millions(step) for step in rows["step"]}, key=lambda text: float(text[:-2]))
        scores = ", ".join(number(score) for score in rows["score"])
        share = f"{100 * rows['bonus_share'].mean():.0f} %" if rows["bonus_share"].notna().any() else ""
        best = paper.get(rows["bonus"].iloc[0])
        commits = ", ".join(sorted(set(rows["commit"].dropna())))
        lines.append(
            [
                *cells,
                " to ".join(span[:: max(len(span) - 1, 1)]),
                scores,
                first,
                share,
                "" if best is None else f"{best:g}",
                commits,
            ]
        )
    header = ["arm", "mean", "seeds", "steps", "seed by seed", "first solved after", "time in the bonus", "paper", "commit"]
    kept = [i for i in range(len(header)) if any(str(line[i]) for line in lines)]
    text = table([header[i] for i in kept], [[line[i] for i in kept] for line in lines])
    kinds = {
        str(row.command).replace(f"--seed {row.seed}", "--seed SEED").replace(f"--bonus {row.bonus}", "--bonus BONUS")
        for row in every.itertuples()
    }
    if not name and len(kinds) == 1 and "nan" not in kinds:
        return text + made(f"results/{folder}/scores.csv", command=kinds.pop())
    more = "" if name or kinds == {"nan"} else " The command of each run is in the file."
    return text + made(f"results/{folder}/scores.csv", name) + more
