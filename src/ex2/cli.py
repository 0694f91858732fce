"""The command line: `ex2 train`, `resume`, `eval`, `play`, `novelty`, `plot`, `density-figure`, `tasks`, `bonuses`."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import ex2
from ex2.bonus import BONUSES, settings_type
from ex2.errors import UsageError, unknown
from ex2.settings import describe
from ex2.tasks import TASKS, find_task

console = Console()
FIGURE_STEPS = 80_000  # of the run that is made for `density-figure`

EXAMPLES = """examples:
  ex2 train maze --bonus k-exemplar --seed 1
  ex2 train maze --bonus amortized --steps 800000 --seed 0 --out runs/maze-0
  ex2 train maze --bonus k-exemplar --set bonus.k=1 --set weight.start=0.5
  ex2 train doom --device cuda --out runs/doom-0
  ex2 train --env MountainCarContinuous-v0 --steps 100000
  ex2 eval runs/doom-0 --episodes 20 --video doom.mp4
  ex2 novelty runs/doom-0
  ex2 plot runs/maze-0 --beside results/maze.csv
  ex2 resume runs/maze-0"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; what the user got wrong is one sentence on standard error and exit status 2."""
    options = build_parser().parse_args(arguments)
    try:
        return options.command(options) or 0
    except UsageError as error:
        print(f"ex2: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ex2: stopped at once; the last checkpoint, if there is one, is as it was.", file=sys.stderr)
        return 130


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ex2",
        description="Exploration with exemplar models: train agents with novelty bonuses, and see what they find novel.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ex2 {ex2.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any, summary: str, examples: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example:\n  {examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=function)
        return sub

    train = command("train", _train, "train an agent on a task", "ex2 train maze --bonus amortized --out runs/maze-0")
    train.add_argument("task", nargs="?", help="a task, as 'ex2 tasks' lists them")
    train.add_argument("--env", metavar="ID", help="instead of a task: any Gymnasium environment, such as MountainCar-v0")
    train.add_argument(
        "--bonus", default="kernel-exemplar", help="a bonus, as 'ex2 bonuses' lists them (default: kernel-exemplar)"
    )
    train.add_argument("--algo", default="trpo", help="trpo or ppo (default: trpo)")
    train.add_argument(
        "--preset", default="default", help="default (ours), or paper: the hyperparameters that the paper published"
    )
    train.add_argument("--steps", type=int, help="environment steps (default: the task's preset)")
    train.add_argument("--seed", type=int, default=0, help="of everything random (default: 0)")
    train.add_argument("--out", type=Path, help="the run's folder (default: runs/TASK-BONUS-SEED)")
    train.add_argument("--actor-of", type=Path, metavar="RUN", help="begin with this run's actor; critic and bonus begin anew")
    train.add_argument("--device", default="cpu", help="where networks run: cpu, cuda (default: cpu)")
    train.add_argument("--threads", type=int, help="PyTorch's threads on the CPU (default: the task's preset)")
    train.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting on top of the preset, such as bonus.k=1, weight.start=0.5, algo.gamma=0.995, num_envs=40",
    )

    resume = command(
        "resume",
        _resume,
        "go on with a run where it stopped (games begin fresh episodes)",
        "ex2 resume runs/maze-0",
    )
    resume.add_argument("run", type=Path, help="the run's folder")
    resume.add_argument(
        "--previous", action="store_true", help="from the checkpoint before the last one, where that one is damaged"
    )

    evaluate = command("eval", _evaluate, "play episodes with a run's agent", "ex2 eval runs/maze-0 --episodes 50")
    evaluate.add_argument("run", type=Path, help="the run's folder")
    evaluate.add_argument("--episodes", type=int, default=20, help="how many (default: 20)")
    evaluate.add_argument("--seed", type=int, default=0, help="of the episodes (default: 0)")
    evaluate.add_argument("--deterministic", action="store_true", help="take the most likely action instead of a draw")
    evaluate.add_argument("--video", type=Path, metavar="FILE", help="film the first episode: a name ending in .mp4 or .gif")

    look = command("play", _play, "look at a task: play episodes without an agent", "ex2 play doom --random --video doom.mp4")
    look.add_argument("task", help="a task, as 'ex2 tasks' lists them")
    look.add_argument("--random", action="store_true", help="take random actions, which is the only way there is")
    look.add_argument("--episodes", type=int, default=1, help="how many (default: 1)")
    look.add_argument("--seed", type=int, default=0, help="of the episodes and the actions (default: 0)")
    look.add_argument("--video", type=Path, metavar="FILE", help="film the first episode: a name ending in .mp4 or .gif")

    novelty = command(
        "novelty", _novelty, "draw what a run finds most and least novel: frames or states, and maps", "ex2 novelty runs/doom-0"
    )
    novelty.add_argument("run", type=Path, help="the run's folder")
    novelty.add_argument("--out", type=Path, help="the picture (default: novelty.png in the run's folder)")
    novelty.add_argument("--seed", type=int, default=0, help="of the episodes that are looked at (default: 0)")

    plot = command(
        "plot",
        _plot,
        "draw a run: densities, visits, bonus, learning curve; or several of one task, side by side",
        "ex2 plot runs/maze-0",
    )
    plot.add_argument("run", type=Path, nargs="+", help="the run's folder, or those of several")
    plot.add_argument("--out", type=Path, help="the picture (default: plot.png, or compare.png, in the first run's folder)")
    plot.add_argument("--beside", type=Path, metavar="CSV", help="recorded results to compare with, such as results/maze.csv")

    density = command(
        "density-figure",
        _density_figure,
        "draw the paper's figure 2: exemplar against empirical density, and more and more smoothing",
        "ex2 density-figure runs/maze-0 --out density.png",
    )
    density.add_argument(
        "run", type=Path, nargs="?", help="a run of the maze (default: one of 80,000 steps is made, in half a minute)"
    )
    density.add_argument("--out", type=Path, default=Path("density.png"), help="the picture (default: density.png)")
    density.add_argument(
        "--model", default="kernel-exemplar", help="kernel-exemplar, amortized or k-exemplar (default: kernel-exemplar)"
    )

    command("tasks", _tasks, "list the tasks", "ex2 tasks")
    bonuses = command("bonuses", _bonuses, "list the bonuses, or the settings of one", "ex2 bonuses kernel-exemplar")
    bonuses.add_argument("name", nargs="?", help="a bonus whose settings to list, each with its default and meaning")
    return parser


def _train(options: argparse.Namespace) -> int:
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
        "overrides": dict(_parse(text) for text in options.set),
        "device": options.device,
        "threads": options.threads,
        "actor_of": str(options.actor_of) if options.actor_of else None,
    }
    config = configure(task, options.bonus, **settings)
    with Display(config, console=console) as display:
        result = train(task, options.bonus, out=options.out, listener=display, **settings)
    return _report(result)


def _resume(options: argparse.Namespace) -> int:
    from ex2.training.display import Display

    run = ex2.Run(options.run)
    config = run.config
    if not find_task(config.task).exact:
        console.print(
            f"Games of {config.task} cannot be saved in the middle of an episode: the run goes on with fresh ones.",
            soft_wrap=True,
            highlight=False,
        )
    done = run.history().get("step", [0])[-1]
    with Display(config, int(done), console) as display:
        return _report(run.resume(listener=display, previous=options.previous))


def _report(result: Any) -> int:
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


def _evaluate(options: argparse.Namespace) -> int:
    _tell(ex2.evaluate(options.run, options.episodes, options.seed, options.deterministic, options.video), options.video)
    return 0


def _play(options: argparse.Namespace) -> int:
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


def _novelty(options: argparse.Namespace) -> int:
    from ex2.novelty import novelty_figure

    target = novelty_figure(options.run, options.out, options.seed)
    console.print(f"The picture is {target}.", soft_wrap=True, highlight=False)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from ex2.compare import compare_figure, history_of, name_of

    if options.beside:
        raise UsageError("--beside goes with one run: leave it out, or draw the runs one by one.")
    runs = [ex2.Run(folder) for folder in options.run]
    target = compare_figure(options.run, options.out or options.run[0] / "compare.png")
    table = Table(title=f"{runs[0].config.task}: mean return of the last 20 episodes")
    for heading in ("run", "method", "seed", "steps", "score"):
        table.add_column(heading, justify="left" if heading in ("run", "method") else "right")
    for run in runs:
        history = history_of(run)
        last = f"{int(history['step'][-1]):,}", _number(float(history["score"][-1]))
        table.add_row(str(run.folder), name_of(run), str(run.config.seed), *last)
    console.print(table)
    console.print(f"The picture is {target}.", soft_wrap=True, highlight=False)
    return 0


def _plot(options: argparse.Namespace) -> int:
    from ex2.plots import run_figure

    if len(options.run) > 1:
        return _compare(options)
    run = ex2.Run(options.run[0])
    config = run.config
    recorded = recorded_scores(options.beside, config.task) if options.beside else {}
    target = run_figure(options.run[0], options.out, {k: v[0] for k, v in recorded.items() if k == "none"})
    if recorded:
        score = float(run.history()["score"][-1])
        table = Table(title=f"{config.task}: mean return of the last 20 episodes")
        for heading in ("method", "score", "paper"):
            table.add_column(heading, justify="left" if heading == "method" else "right")
        paper = find_task(config.task).paper
        table.add_row(f"this run ({config.bonus})", _number(score), _number(paper.get(config.bonus)), style="bold")
        for name, (mean, count) in recorded.items():
            label = f"plain {config.algo.upper()}" if name == "none" else name
            table.add_row(f"{label}, recorded, {count} seeds", _number(mean), _number(paper.get(name)))
        console.print(table)
    console.print(f"The picture is {target}.", soft_wrap=True, highlight=False)
    return 0


def _density_figure(options: argparse.Namespace) -> int:
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


def recorded_scores(path: Path, task: str) -> dict[str, tuple[float, int]]:
    """Mean score and number of seeds of each bonus in a results file."""
    try:
        with open(path, newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["task"] == task]
        scores: dict[str, list[float]] = {}
        for row in rows:
            scores.setdefault(row["bonus"], []).append(float(row["score"]))
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(f"{path} is no results file with the columns task, bonus and score ({error}).") from None
    return {name: (float(np.mean(values)), len(values)) for name, values in scores.items()}


def _tasks(options: argparse.Namespace) -> None:
    table = Table("task", "environment", "what it is", "needs")
    for name, task in TASKS.items():
        table.add_row(name, task.env_id, task.summary, escape(f"ex2[{task.extra}]"))
    console.print(table)


def _bonuses(options: argparse.Namespace) -> None:
    if options.name is None:
        table = Table("bonus", "what it is")
        for name, entry in BONUSES.items():
            table.add_row(name, entry.summary)
        console.print(table)
        console.print("The settings of one: ex2 bonuses NAME. Several at once: rnd+simhash.", highlight=False)
        return
    table = Table("setting", "type", "default", "what it is", title=f"{options.name}: --set bonus.SETTING=VALUE")
    parts = options.name.split("+")
    for part in parts:
        for name, *cells in describe(settings_type(part)):
            table.add_row(*(escape(cell) for cell in (name if len(parts) == 1 else f"{part}.{name}", *cells)))
    if len(parts) > 1:
        rows = {name: cells for name, *cells in describe(settings_type(options.name))}
        table.add_row("shares", *(escape(cell) for cell in rows["shares"]))
    console.print(table)


def _number(value: float | None) -> str:
    """A score: fractions to the third digit, others to the first behind the point.

    >>> _number(0.788), _number(-61.9), _number(None)
    ('0.788', '-61.9', '-')
    """
    return "-" if value is None else f"{value:.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def _parse(text: str) -> tuple[str, Any]:
    """
    >>> _parse("bonus.k=1")
    ('bonus.k', 1)
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {text} is not KEY=VALUE.")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, None if value == "None" else value
