"""The sections of a report that come from its tables alone: the paper's table, all tasks together, cost, settings, sources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ex2.lab import charts, statistics
from ex2.lab.page import NOTHING, Html, chart, element, section, slug, table
from ex2.lab.pictures import Shown
from ex2.lab.results import flat

LONG = 24  # letters of a method's name from which on it is broken into lines


def broken(name: str) -> Html:
    """A name that goes over several lines where it is long."""
    return element("span", name, class_="long" if len(name) > LONG else None)


def name_of(method: str, colours: dict[str, str]) -> Html:
    """A method's name behind its colour."""
    colour = colours[method]
    return Html(element("span", class_=f"key {colour}", style=f"color:var(--{colour})") + broken(method))


def number(value: float | None) -> str:
    """
    >>> number(0.788), number(-61.94), number(4901), number(float("nan"))
    ('0.788', '-61.9', '4,901', '–')
    """
    if value is None or not np.isfinite(value):
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def steps_text(value: float) -> str:
    return f"{value:,.0f}" if np.isfinite(value) else NOTHING


def listed(tasks: Sequence[str]) -> str:
    return " and ".join([", ".join(tasks[:-1]), tasks[-1]]) if len(tasks) > 1 else "".join(tasks)


def legend(colours: dict[str, str]) -> Html:
    return element(
        "ul", *(element("li", name_of(method, colours)) for method in colours), class_="legend", aria_label="Methods"
    )


def beside_paper(scores: pd.DataFrame, colours: dict[str, str]) -> Html:
    """A row for each task and method, beside the paper's scores where a task is one of the paper's."""
    rows = []
    summary = statistics.summarise(scores).assign(method=lambda found: statistics.methods(found))
    beside = summary["paper_best"].notna().any()
    order = {task: place for place, task in enumerate(summary["task"].unique())}
    summary = summary.sort_values("task", key=lambda names: names.map(order), kind="stable")
    for row in summary.to_dict("records"):
        n, solved = int(row["n"]), NOTHING
        if np.isfinite(row["solved"]):
            solved = f"{int(row['solved'])} of {n} ({row['low']:.0%} to {row['high']:.0%})"
        unfinished = "unfinished" if n == 1 else f"{row['unfinished']} unfinished"
        n_text = f"{n} ({unfinished})" if row["unfinished"] else f"{n}"
        best = bool(np.isfinite(row["paper_best"]) and row["mean"] >= row["paper_best"])
        theirs = [number(row[name]) for name in statistics.PAPER] if beside else []
        source = f"#from-{slug(row['task'], row['method'])}"
        rows.append(
            [
                element("a", row["task"], href=source, title="Which commands and commits this comes from"),
                name_of(row["method"], colours),
                element("span", number(row["mean"]), class_="best" if best else None),
                solved,
                *theirs,
                number(row["lowest"]),
                number(row["iqm"]),
                statistics.first_text(row["first"], np.nan_to_num(row["solved"])),
                n_text,
                statistics.steps_text(row),
            ]
        )
    headings = ["task", "method", "mean", "solved (95 %)", *(["paper", "its best", "its TRPO"] if beside else [])]
    headings += ["lowest", "IQM", "first solved", "seeds", "steps"]
    words = "Ours beside the paper's (Table 1). Bold: at least the paper's best. Paper: of the same bonus. " if beside else ""
    words += "IQM: the mean of the middle half of the seeds. First solved: the median step. "
    words += "Unfinished seeds count as far as they came. " if summary["unfinished"].any() else ""
    words += "The table scrolls sideways where it is too wide."
    heading = "Ours beside the paper's" if beside else "Task by task"
    return section(heading, table(words, headings, rows, part="table"), name="table")


def overall(drawn: dict[str, Any], scores: pd.DataFrame, colours: dict[str, str], seed: int) -> Html:
    """Means over tasks, where there is more than one method."""
    known = statistics.normalised(scores)
    tasks, scored = statistics.shared_tasks(known), known["method"].nunique()
    if not tasks or scored < 2:
        few = "there is only one" if len(colours) < 2 else f"{'only one' if scored else 'none'} of them has a score"
        words = few if scored < 2 else "there is no task that all of them were tried on"
        text = f"Methods are compared over all tasks where several methods share a task; here {words}."
        return section("All tasks together", element("p", text, class_="missing"), name="overall")
    strata = statistics.strata_of(known, tasks)
    found = statistics.aggregate(strata, seed)
    pairs = charts.pairs_of(strata, scores, tasks, seed)
    drawn["iqm"] = charts.aggregate_rows(found, colours)
    drawn["improvement"] = charts.improvement_rows(pairs, colours)
    drawn["profile"] = charts.profile(strata, colours, seed)
    rows = [
        [name_of(row.method, colours), row.n, f"{row.iqm:.2f}", f"{row.low:.2f} to {row.high:.2f}"]
        for row in found.itertuples()
    ]
    other = [
        [f"{pair['method']} over {pair['other']}", f"{pair['share']:.0%}", f"{pair['low']:.0%} to {pair['high']:.0%}"]
        for pair in pairs
    ]
    scales = [statistics.named_scale_of(task, *_own(scores, task)) for task in tasks]
    scale = "; ".join(
        f"{task} {number(zero)} to {number(one)} ({named})" for task, (zero, one, named) in zip(tasks, scales, strict=True)
    )
    words = (
        f"Over the tasks that all methods have. Scores are brought to one scale, from 0 to 1: {scale}. Intervals are of 95 %, "
        "by 2,000 stratified resamplings of the seeds."
    )
    for pair in pairs:
        if pair["apart"]:
            words += (
                f" {pair['method']} and {pair['other']} were trained for different numbers of steps ({listed(pair['apart'])})."
            )
    listing = [[broken(pair), *cells] for pair, *cells in other]
    middle = "; ".join(f"{row.method} {row.iqm:.2f} ({row.low:.2f} to {row.high:.2f})" for row in found.itertuples())
    better = "; ".join(f"{row[0]} {row[1]} ({row[2]})" for row in other)
    return section(
        "All tasks together",
        element("p", words, data_part="overall-words"),
        element(
            "div",
            chart("iqm", f"Interquartile means of normalised scores: {middle}",
                  "Interquartile mean, with its interval, each run counting the same."),
            chart("improvement", f"Probability of improvement: {better}", "How probable a better score is on the same task."),
            class_="pair",
        ),
        chart("profile", "Share of runs above each normalised score, by method", "Performance profile: the share of runs "
              "above each normalised score, each task counting the same; the higher the better.", "tall"),
        element("details", element("summary", "The same as tables"),
                table("Interquartile means", ["method", "runs", "IQM", "95 %"], rows, names=1, part="iqm"),
                table("Probability of improvement", ["pair", "share", "95 %"], listing, names=1, part="improvement")),
        name="overall",
    )  # fmt: skip


def _own(scores: pd.DataFrame, task: str) -> tuple[np.ndarray[Any, Any], float]:
    own = scores[scores["task"] == task]
    return own["score"].to_numpy(float), own["solved_at"].max()


def cost(scores: pd.DataFrame, colours: dict[str, str]) -> Html:
    rows = []
    order = {task: place for place, task in enumerate(scores["task"].unique())}
    ordered = scores.sort_values("task", key=lambda names: names.map(order), kind="stable")
    for (task, method), own in ordered.groupby(["task", "method"], sort=False):
        speed = (own["step"] / own["seconds"]).mean()
        share = own["bonus_share"].mean()
        rows.append(
            [
                task,
                name_of(str(method), colours),
                number(own["seconds"].mean()),
                number(speed),
                f"{share:.0%}" if np.isfinite(share) else NOTHING,
            ]
        )
    words = "Means over seeds. Trials may have shared a machine with others: compare only what ran side by side."
    headings = ["task", "method", "seconds", "steps a second", "share in the bonus"]
    return section("Cost", table(words, headings, rows, part="cost"), name="cost")


def differences(scores: pd.DataFrame, shown: dict[str, list[Shown]]) -> Html:
    """The settings in which methods differ, or trials of one method: as runs have them, or as results name them."""
    settings: dict[str, dict[str, set[str]]] = {}
    trials = [(row, _overrides(row["overrides"])) for row in scores.to_dict("records")]
    given: dict[str, set[str]] = {}
    for row, overrides in trials:
        given.setdefault(row["method"], set()).update(overrides)
    for row, overrides in trials:
        facts = {key: row[key] for key in ("bonus", "algo", "preset")} | {f"{row['task']}: steps": row["steps"]}
        facts |= {key: overrides.get(key, NOTHING) for key in sorted(given[row["method"]])}
        for key, value in facts.items():
            text = NOTHING if value is None or value != value else str(value)
            settings.setdefault(str(key), {}).setdefault(row["method"], set()).add(text)
    for task, runs in shown.items():
        for one in runs:
            for key, value in flat(one.run.config.as_dict()).items():
                if key not in ("task", "seed", "bonus", "algo", "preset", "steps", "actor_of"):
                    settings.setdefault(f"{task}: {key}", {}).setdefault(one.method, set()).add(str(value))
    methods = list(scores["method"].unique())
    rows = []
    for key, by_method in settings.items():
        of_all = len(by_method) == len(methods)
        named = ": " not in key  # overrides, which only those have that they were given to
        differ = len({frozenset(values) for values in by_method.values()}) > 1 and of_all
        if differ or (named and not of_all) or any(len(values) > 1 for values in by_method.values()):
            rows.append([key, *(", ".join(sorted(by_method.get(method, {NOTHING}))) for method in methods)])
    if not rows:
        text = "Apart from seeds, all trials have the same settings."
        return section("Differences of configurations", element("p", text), name="differences")
    made = table(
        "Settings that are not the same for all methods, or for all trials of one",
        ["setting", *methods],
        rows,
        names=len(methods) + 1,
        part="differences",
    )
    return section("Differences of configurations", made, name="differences")


def _overrides(text: object) -> dict[str, Any]:
    """What a trial was given, from a cell of a table."""
    if not isinstance(text, str):
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = text
    return found if isinstance(found, dict) else {"overrides": found}


def sources(scores: pd.DataFrame) -> Html:
    """Task by task and method by method, the commands and the commits."""
    parts = []
    for (task, method), own in scores.groupby(["task", "method"], sort=False):
        rows = []
        for row in own.fillna({"command": "", "commit": ""}).to_dict("records"):
            told = element("code", row["command"] or NOTHING), row["commit"] or NOTHING
            rows.append([row["seed"], *told, number(row["score"]), steps_text(row["first"])])
        made = table(
            f"{task}, {method}",
            ["seed", "command", "commit", "score", "first solved at step"],
            rows,
            3,
            f"from-{slug(task, method)}",
        )
        summary = element("summary", f"{task}, {method}: {len(own)} {'trial' if len(own) == 1 else 'trials'}, ", _commits(own))
        parts.append(element("details", summary, made, id=f"from-{slug(task, method)}"))
    words = "Each trial with its command, the commit of the code that ran it, and its score."
    return section("Sources", element("p", words), *parts, name="sources")


def _commits(own: pd.DataFrame) -> str:
    named = sorted({str(commit) for commit in own["commit"].dropna() if commit})
    return f"commit {', '.join(named)}" if named else "no commit known"
