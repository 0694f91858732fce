"""What the commands of `ex2` do, one function each: called with its options, it prints, and returns the exit status."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import ex2
from ex2.bonus import BONUSES, settings_type
from ex2.errors import UsageError, unknown
from ex2.settings import describe
from ex2.tables import show
from ex2.tasks import TASKS, find_task

console = Console()
FIGURE_STEPS = 80_000  # of the run that is made for `density-figure`


def train(options: argparse.Namespace) -> int:
    from ex2.training.config import configure
    from ex2.training.display import Display
    from ex2.training.run import train

    if (options.task is None) == (options.env is None):
        raise UsageError("Name what to train on: a task, as 'ex2 tasks' lists them, or any environment by --env ID, not both.")
    task = options.task or options.env
    settings: dict[str, Any] = {
        "algo": options.algo,
        "preset": options.preset,
        "steps": options.steps,
        "seed": options.seed,
        "overrides": dict(parse(text) for text in options.set),
        "device": options.device,
        "threads": options.threads,
        "workers": options.workers,
        "actor_of": str(options.actor_of) if options.actor_of else None,
    }
    config = configure(task, options.bonus, **settings)
    _check_address(config, options.address)
    with Display(config, console=console) as display:
        result = train(task, options.bonus, out=options.out, listener=display, address=options.address, **settings)
    return _tell_result(result)


def resume(options: argparse.Namespace) -> int:
    from ex2.training.display import Display

    run = ex2.Run(options.run)
    config = run.config
    if not find_task(config.task).exact:
        console.print(
            f"Games of {config.task} cannot be saved in the middle of an episode: the run goes on with fresh ones.",
            soft_wrap=True,
            highlight=False,
        )
    _check_address(config, options.address)
    done = run.history().get("step", [0])[-1]
    with Display(config, int(done), console) as display:
        return _tell_result(run.resume(listener=display, previous=options.previous, address=options.address))


def _check_address(config: Any, address: str | None) -> None:
    if address and not config.workers:
        raise UsageError(f"--address {address} is of a Ray cluster, which this run does not use: it has no --workers.")


def _tell_result(result: Any) -> int:
    if not result.finished:
        console.print(f"Stopped and saved after {result.steps:,} steps. Go on with: ex2 resume {result.folder}", soft_wrap=True)
        return 130
    console.print(
        f"Score {result.score:.{2 if abs(result.score) < 10 else 1}f} (mean return of the last 20 episodes, without the bonus) "
        f"after {result.steps:,} steps, "
        f"{result.seconds:.0f} s, {result.bonus_share:.0%} of them in the bonus.",
        soft_wrap=True,
        highlight=False,
    )
    console.print(f"The run is in {result.folder}. See it with: ex2 plot {result.folder}", soft_wrap=True, highlight=False)
    return 0


def evaluate(options: argparse.Namespace) -> int:
    returns = ex2.evaluate(options.run, options.episodes, options.seed, options.deterministic, options.video)
    if options.json:
        found = {"episodes": len(returns), "mean": float(np.mean(returns)), "deviation": float(np.std(returns))}
        print(json.dumps(found | {"lowest": min(returns), "highest": max(returns), "returns": returns}))
    else:
        _tell(returns, options.video)
    return 0


def play(options: argparse.Namespace) -> int:
    from ex2.training.evaluation import look

    _tell(look(options.task, options.episodes, options.seed, options.video), options.video)
    return 0


def _tell(returns: list[float], video: Path | None) -> None:
    console.print(
        f"{len(returns)} {'episode' if len(returns) == 1 else 'episodes'}: mean return {np.mean(returns):.2f}, "
        f"standard deviation {np.std(returns):.2f}, from {min(returns):.2f} to {max(returns):.2f}.",
        soft_wrap=True,
        highlight=False,
    )
    if video:
        console.print(f"The first one is in {video}.", soft_wrap=True, highlight=False)


def novelty(options: argparse.Namespace) -> int:
    from ex2.novelty import novelty_figure

    target = novelty_figure(options.run, options.out, options.seed)
    console.print(f"The picture is {target}.", soft_wrap=True, highlight=False)
    return 0


def compare(options: argparse.Namespace) -> int:
    from ex2.compare import compare_figure, compared

    if len(options.run) < 2:
        raise UsageError(f"{options.run[0]} alone has nothing beside it: name another run, too.")
    _check_seed(getattr(options, "seed", 0))
    target = compare_figure(options.run, options.out or options.run[0] / "compare.png", getattr(options, "seed", 0))
    rows = [compared(ex2.Run(folder)) for folder in options.run]
    show(console, rows, f"{ex2.Run(options.run[0]).config.task}: mean return of the last 20 episodes", options.json)
    _say(f"The picture is {target}.", options.json)
    return 0


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise UsageError(f"seed={seed} must be at least 0.")


def _say(text: str, aside: bool = False) -> None:
    """A sentence; on standard error where standard output holds JSON."""
    if aside:
        print(text, file=sys.stderr)
    else:
        console.print(text, soft_wrap=True, highlight=False)


def plot(options: argparse.Namespace) -> int:
    from ex2.compare import differing_budgets, recorded_scores
    from ex2.plots import run_figure

    if len(options.run) > 1:
        if options.beside:
            raise UsageError("--beside goes with one run: leave it out, or draw the runs one by one.")
        return compare(options)
    run = ex2.Run(options.run[0])
    config = run.config
    recorded = recorded_scores(options.beside, config.task) if options.beside else {}
    drawn = {name: row.mean for name, row in recorded.items() if name in ("none", config.bonus)}
    target = run_figure(options.run[0], options.out, drawn)
    if recorded or options.json:
        history, paper = run.history(), find_task(config.task).paper
        steps, score = (int(history["step"][-1]), float(history["score"][-1])) if "score" in history else (0, np.nan)
        own = {
            "method": f"this run ({config.bonus})",
            "seeds": 1,
            "steps": steps,
            "score": score,
            "paper": paper.get(config.bonus),
        }
        rows = [own]
        for name, row in recorded.items():
            label = f"plain {config.algo.upper()}" if name == "none" else name
            told = {
                "method": f"{label}, recorded, {row.seeds} seeds",
                "seeds": row.seeds,
                "steps": row.steps,
                "score": row.mean,
            }
            rows.append(told | {"paper": paper.get(name)})
        show(console, rows, f"{config.task}: mean return of the last 20 episodes", options.json)
        if differ := differing_budgets(steps, recorded):
            _say(differ, options.json)
    if options.beside and not recorded:
        _say(f"{options.beside} holds no score of {config.task}: nothing stands beside the run.", options.json)
    _say(f"The picture is {target}.", options.json)
    return 0


def report(options: argparse.Namespace) -> int:
    from ex2.lab.report import write_report

    _check_seed(options.seed)
    problems: list[str] = []
    target = write_report(options.results, options.out, options.title, options.seed, problems)
    for problem in problems:
        print(f"ex2: {problem}", file=sys.stderr)
    console.print(f"The page is {target}.", soft_wrap=True, highlight=False)
    return 1 if problems else 0


def watch(options: argparse.Namespace) -> int:
    from ex2.lab.watch import watch

    _check_seed(options.seed)
    watch(options.run, options.port, seed=options.seed, tell=lambda text: print(text, flush=True))
    return 0


def density_figure(options: argparse.Namespace) -> int:
    from ex2.density import SETTINGS
    from ex2.plots import density_figure
    from ex2.training.config import configure
    from ex2.training.display import Display
    from ex2.training.run import train

    if options.model not in SETTINGS:
        raise unknown("model", options.model, SETTINGS)
    if not options.out.parent.is_dir():
        raise UsageError(f"The folder {options.out.parent} of the picture does not exist: make it, or choose another --out.")
    with tempfile.TemporaryDirectory() as made:
        folder = options.run
        if folder is None:
            folder = Path(made) / "run"
            with Display(configure("maze", options.model, steps=FIGURE_STEPS), console=console) as display:
                train("maze", options.model, steps=FIGURE_STEPS, out=folder, listener=display)
        target = density_figure(folder, options.out, options.model)
    console.print(f"The picture is {target}.", soft_wrap=True, highlight=False)
    return 0


def sweep(options: argparse.Namespace) -> int:
    from ex2.lab.command import sweep_command

    return sweep_command(options, console)


def results(options: argparse.Namespace) -> int:
    from ex2.lab.command import results_command

    return results_command(options, console)


def tasks(options: argparse.Namespace) -> None:
    rows = [
        {"task": name, "environment": task.env_id, "what it is": task.summary, "needs": f"ex2[{task.extra}]"}
        for name, task in TASKS.items()
    ]
    show(console, rows, as_json=options.json)


def bonuses(options: argparse.Namespace) -> None:
    if options.name is None:
        show(console, [{"bonus": name, "what it is": entry.summary} for name, entry in BONUSES.items()], as_json=options.json)
        _say("The settings of one: ex2 bonuses NAME. Several at once: rnd+simhash.", options.json)
        return
    parts, found = options.name.split("+"), []
    for part in parts:
        for name, *cells in describe(settings_type(part)):
            found.append((name if len(parts) == 1 else f"{part}.{name}", *cells))
    if len(parts) > 1:
        rows = {name: cells for name, *cells in describe(settings_type(options.name))}
        found.append(("shares", *rows["shares"]))
    headings = ("setting", "type", "default", "what it is")
    listed = [dict(zip(headings, row, strict=True)) for row in found]
    show(console, listed, f"{options.name}: --set bonus.SETTING=VALUE", options.json)


def parse(text: str) -> tuple[str, Any]:
    """
    >>> parse("bonus.k=1")
    ('bonus.k', 1)
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text} is not KEY=VALUE.")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, None if value == "None" else value
