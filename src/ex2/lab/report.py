"""`ex2 report`: results on one page. Its sections are made here; what stands in runs' folders comes from pictures.py.

`contents` gives the page's body and the data of its charts; `ex2 watch` asks for them again and again.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import ex2
from ex2.errors import UsageError
from ex2.lab import charts, sections, statistics
from ex2.lab.page import Html, chart, element, page, section, slug
from ex2.lab.pictures import Shown, extremes_of, film_of, maps_of
from ex2.lab.results import FACTS, TITLE, Results, facts_of, read_results
from ex2.tasks import TASKS
from ex2.training.files import replacing
from ex2.training.run import CONFIG, Run

COLOURS = 8  # that page.css has for methods


@dataclass
class Content:
    """What a page shows: its body, and the data of its charts by name."""

    title: str
    main: list[Html] = field(default_factory=list)
    charts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """A sentence for each thing that was left out."""


def write_report(
    paths: Sequence[str | Path],
    out: str | Path,
    title: str | None = None,
    seed: int = 0,
    problems: list[str] | None = None,
) -> Path:
    """Reads results, and the runs that are there, and writes the page; what it says was left out is added to `problems`."""
    out, results = Path(out), read_results(*paths)
    if results.scores.empty:
        raise UsageError(f"No result can be read: {' '.join(results.problems)}")
    chosen = (*(("--title", title) if title else ()), *(("--seed", str(seed)) if seed else ()), "--out", str(out))
    words = shlex.join(["ex2", "report", *map(str, paths), *chosen])
    made = contents(results, runs_at(paths), title or title_of(results, paths), command=words, seed=seed)
    try:
        with replacing(out) as draft:
            draft.write_text(page(made.title, "".join(made.main), made.charts), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"The page {out} cannot be written ({error.strerror}): choose another --out.") from None
    if problems is not None:
        problems += made.problems
    return out


def title_of(results: Results, paths: Sequence[str | Path] = ()) -> str:
    """What a sweep says that its experiment is called, or the names of all experiments."""
    if len(paths) == 1 and (path := Path(paths[0]) / TITLE).exists():
        return path.read_text(encoding="utf-8", errors="replace").strip()
    names = [name for name in results.scores["experiment"].dropna().unique() if name]
    return " and ".join(map(str, names[:3])) or "Results"


def runs_at(paths: Sequence[str | Path]) -> list[Run]:
    """All runs whose folders lie at these places."""
    folders = [config.parent for path in map(Path, paths) if path.is_dir() for config in sorted(path.rglob(CONFIG))]
    return [Run(folder) for folder in dict.fromkeys(folders)]


def contents(
    results: Results,
    runs: Sequence[Run],
    title: str,
    command: str,
    seed: int = 0,
    films: bool = True,
    first: Sequence[Html] = (),
    made_by: str = "ex2 report",
) -> Content:
    """The sections of a page. `films` says whether episodes may be played; `first` comes before all else."""
    made, problems = Content(title), list(results.problems)
    scores = results.scores.assign(method=statistics.methods(results.scores))
    colours = colours_of(scores)
    shown = runs_shown(runs, scores, colours, problems)
    tasks = [str(task) for task in scores["task"].unique()]
    pictures = {task: _pictures(made, task, shown, problems, seed, films) for task in tasks}
    count = f"{len(scores)} {'trial' if len(scores) == 1 else 'trials'} of {sections.listed(tasks)}"
    links = [("table", "Table"), ("overall", "All tasks"), *((f"task-{slug(task)}", task) for task in tasks), ("cost", "Cost")]
    links += [("differences", "Differences"), ("sources", "Sources")]
    items = [element("li", element("a", text, href=f"#{name}")) for name, text in links]
    made.main += [
        element("p", made_by, class_="eyebrow"),
        element("h1", title),
        element("p", f"{count}: the mean return of the last 20 episodes, without any bonus.", class_="lead", data_part="lead"),
        sections.legend(colours),
        element("nav", element("ul", *items), aria_label="On this page"),
        *first,
    ]
    place = len(made.main)
    made.main += [sections.beside_paper(scores, colours), sections.overall(made.charts, scores, colours, seed)]
    made.main += [_task(made, task, results, scores, colours, pictures[task]) for task in tasks]
    if without := [task for task in tasks if not pictures[task]]:
        made.main.append(_missing(without, command))
    made.main += [
        sections.cost(scores, colours),
        sections.differences(scores, shown),
        sections.sources(scores),
        _footer(command),
    ]
    made.problems += dict.fromkeys(problems)
    listed = element("ul", *(element("li", problem) for problem in made.problems))
    told = element("div", element("h2", "Left out"), listed, class_="problems", role="note") if problems else ""
    made.main.insert(place, element("div", told, data_part="problems"))
    return made


def colours_of(scores: pd.DataFrame) -> dict[str, str]:
    """Each method's colour, by the name that page.css has for it; methods without a bonus are grey, and drawn in dashes."""
    found: dict[str, str] = {}
    for method, own in scores.groupby("method", sort=False):
        plain = (own["bonus"] == "none").all() and "none" not in found.values()
        taken = sum(colour != "none" for colour in found.values())
        found[str(method)] = "none" if plain else f"c{taken % COLOURS}"
    return found


def runs_shown(
    runs: Sequence[Run], scores: pd.DataFrame, colours: dict[str, str], problems: list[str]
) -> dict[str, list[Shown]]:
    """By task, the run of each method that has the best score, its best method first."""
    best: dict[tuple[str, str], Shown] = {}
    for run in runs:
        try:
            config, row = run.config, _row_of(run, scores)
        except UsageError as error:
            problems.append(str(error))
            continue
        except (TypeError, ValueError, KeyError):
            problems.append(f"{run.folder} is not shown: its {FACTS} is damaged.")
            continue
        if row is None:
            continue
        key, score = (config.task, str(row["method"])), float(row["score"])
        one = Shown(run, str(row["method"]), colours[str(row["method"])], score)
        if key not in best or not best[key].score >= score:
            best[key] = one
    found: dict[str, list[Shown]] = {}
    for (task, _), one in sorted(best.items(), key=lambda item: -np.nan_to_num(item[1].score, nan=-np.inf)):
        found.setdefault(task, []).append(one)
    return found


def _row_of(run: Run, scores: pd.DataFrame) -> pd.Series | None:
    """A run's own trial: of its experiment, and there by its arm or its folder's name. The name alone counts only where no
    experiment is known of the run, and one trial alone has that name: sweeps of the same tasks share their trials' names."""
    facts, config = facts_of(run), run.config
    of_experiment = scores["experiment"] == facts["experiment"]
    own = scores[(scores["task"] == config.task) & (scores["seed"] == config.seed) & (scores["bonus"] == config.bonus)]
    if of_experiment.any() or (run.folder / FACTS).exists():
        own = own[of_experiment.loc[own.index]]
    named = [slug(row.task, row.arm, row.seed) == slug(run.folder.name) for row in own.itertuples()]
    for found in (own[own["arm"] == facts["arm"]], own[np.array(named, bool)]):
        if len(found) == 1:
            return found.iloc[0]
    return None


def _missing(tasks: Sequence[str], command: str) -> Html:
    """What is not shown of these tasks, and which command would show it."""
    example = command if command.startswith("ex2 watch") else f"{command} runs/NAME"
    words = (
        f"Of {sections.listed(tasks)} there are no maps over the training, no states of lowest and highest bonus and no film: "
        "they need the folders of runs, as 'ex2 sweep' and 'ex2 train' leave them. "
    )
    return element("p", words, element("code", example), class_="missing", data_part="missing")


def _task(
    made: Content, task: str, results: Results, scores: pd.DataFrame, colours: dict[str, str], pictures: list[Html]
) -> Html:
    own, name = scores[scores["task"] == task], slug(task)
    curves = results.curves[results.curves["task"] == task]
    parts: list[Html] = []
    summary = TASKS[task].summary if task in TASKS else "an environment of Gymnasium"
    solved_at = own["solved_at"].max()
    words = f"{summary[0].upper()}{summary[1:]}." + (
        f" Solved from {sections.number(solved_at)} on." if pd.notna(solved_at) else ""
    )
    drawn = charts.curves(curves.assign(method=statistics.methods(curves, scores)), own, colours)
    made.charts[f"dots-{name}"] = dots = charts.dots(own, task, colours)
    said = "; ".join(f"{row['name']}: {row['text']}" for row in dots["rows"])
    points = chart(
        f"dots-{name}", f"Scores of {task}, a dot for each seed: {said}", "A dot for each seed; the line is their mean."
    )
    if drawn is not None:
        made.charts[f"curves-{name}"] = drawn
        ends = "; ".join(f"{row['name']} ends at a {row['text']}" for row in dots["rows"])
        words_of = "Every seed, the median and the band between the quartiles."
        words_of += " Dotted: solved." if drawn["solved"] is not None else ""
        line = chart(f"curves-{name}", f"Learning curves of {task}: {ends}", words_of, "tall")
        parts.append(element("div", line, points, class_="pair"))
    else:
        parts += [element("p", "There are no learning curves beside these scores.", class_="missing"), points]
    return section(task, element("p", words), *parts, *pictures, name=f"task-{name}")


def _pictures(
    made: Content, task: str, shown: dict[str, list[Shown]], problems: list[str], seed: int, films: bool
) -> list[Html]:
    """What a task's runs themselves show, as far as it is there."""
    parts: list[Html] = []
    if task not in shown:
        return parts
    runs, name = shown[task], slug(task)
    try:
        maps = maps_of(task, runs, problems)
    except UsageError as error:  # what the task needs is not installed
        problems.append(f"{task}: no maps are shown ({str(error).rstrip('.')}).")
        maps = None
    if maps is not None:
        made.charts[f"maps-{name}"] = maps | ({"first": len(maps["steps"]) // 5} if films else {})
        alt = f"Maps of {task} over the training: where agents were, and what the bonus made of it"
        words = "The best run of each method. Visits are those since the moment before; colours are on logarithmic scales."
        if len(maps["cells"]) == 1:
            words += f" Across: {maps['axes'][0]}; upwards: the training; dashed: beyond it there is reward."
        parts += [element("h3", "Where agents went"), chart(f"maps-{name}", alt, words, "tall", "group")]
    if not films:
        return parts
    left = Html("")
    rated = next((one for one in runs if one.run.config.bonus != "none"), None)
    try:
        if rated is not None and (frames := extremes_of(rated.run, seed)) is not None:
            words = f"Of episodes by {rated.method}, seed {rated.run.config.seed}, rated by its own bonus."
            heading = element("h3", "What it finds familiar, and what novel")
            left = element("div", heading, element("p", words, class_="soft"), frames)
    except UsageError as error:
        problems.append(f"{rated.run.folder if rated else task}: no states are shown ({str(error).rstrip('.')}).")
    right = element("div", *film_part(made, task, runs[0], problems, seed))
    parts.append(element("div", *(part for part in (left, right) if part), class_="pair wide" if left else None))
    return parts


def film_part(made: Content, task: str, best: Shown, problems: list[str], seed: int) -> list[Html]:
    try:
        film = film_of(best.run, seed)
    except UsageError as error:
        problems.append(f"{best.run.folder}: no film is shown ({str(error).rstrip('.')}).")
        return []
    if film is None:
        return []
    made.charts[f"film-{slug(task)}"] = film
    return [film_shown(f"film-{slug(task)}", film)]


def film_shown(name: str, film: dict[str, Any]) -> Html:
    """A film under its heading."""
    return Html(element("h3", "An episode of the best agent") + chart(name, film["text"], film["text"] + ".", "film", "group"))


def _footer(command: str) -> Html:
    return element("footer", "Made by ", element("code", command), f", ex2 {ex2.__version__}. The curves are drawn by uPlot.")
