"""The command line: `ex2 train`, `resume`, `eval`, `play`, `novelty`, `plot`, `compare`, `density-figure`, `sweep`, `results`,
`report`, `watch`, `tasks`, `bonuses`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ex2
from ex2 import commands
from ex2.errors import UsageError

ADDRESS = "of a Ray cluster: HOST:PORT, or auto, the one of this machine (default: RAY_ADDRESS, or Ray starts here)"

EXAMPLES = """examples:
  ex2 train maze --bonus k-exemplar --seed 1
  ex2 train maze --bonus amortized --steps 800000 --seed 0 --out runs/maze-0
  ex2 train maze --bonus k-exemplar --set bonus.k=1 --set weight.start=0.5
  ex2 train doom --device cuda --out runs/doom-0
  ex2 train --env MountainCarContinuous-v0 --steps 100000
  ex2 train doom --workers 4 --address auto --set num_envs=80
  ex2 eval runs/doom-0 --episodes 20 --video doom.mp4
  ex2 novelty runs/doom-0
  ex2 plot runs/maze-0 --beside results/default
  ex2 compare runs/maze-0 runs/maze-1
  ex2 watch runs/maze-0
  ex2 sweep experiments/small.toml
  ex2 report results/default
  ex2 resume runs/maze-0"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; what the user got wrong is one sentence on standard error and exit status 2."""
    options = build_parser().parse_args(arguments)
    before, warnings.formatwarning = warnings.formatwarning, sentence
    try:
        return options.command(options) or 0
    except UsageError as error:
        print(f"ex2: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ex2: stopped at once; the last checkpoint, if there is one, is as it was.", file=sys.stderr)
        return 130
    finally:
        warnings.formatwarning = before


def sentence(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """A warning as a line on standard error: of ours the words alone, of others with the place that they come from."""
    return f"ex2: {message}\n" if category is UserWarning else f"{category.__name__}: {message} ({filename}:{lineno})\n"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ex2",
        description="Exploration with exemplar models: train agents with novelty bonuses, and see what they find novel.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ex2 {ex2.__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Any, summary: str, examples: str) -> argparse.ArgumentParser:
        sub = subparsers.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"example:\n  {examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=function)
        return sub

    def as_json(sub: argparse.ArgumentParser, what: str = "the table") -> None:
        sub.add_argument("--json", action="store_true", help=f"print {what} as JSON, and everything else on standard error")

    train = command("train", commands.train, "train an agent on a task", "ex2 train maze --bonus amortized --out runs/maze-0")
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
    train.add_argument("--workers", type=int, help="Ray workers that share the environments (default: 0, all in this process)")
    train.add_argument("--address", help=ADDRESS)
    train.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting on top of the preset, such as bonus.k=1, weight.start=0.5, algo.gamma=0.995, num_envs=40",
    )

    resume = command(
        "resume",
        commands.resume,
        "go on with a run where it stopped (games begin fresh episodes)",
        "ex2 resume runs/maze-0",
    )
    resume.add_argument("run", type=Path, help="the run's folder")
    resume.add_argument(
        "--previous", action="store_true", help="from the checkpoint before the last one, where that one is damaged"
    )

    resume.add_argument("--address", help=ADDRESS)

    evaluate = command("eval", commands.evaluate, "play episodes with a run's agent", "ex2 eval runs/maze-0 --episodes 50")
    evaluate.add_argument("run", type=Path, help="the run's folder")
    evaluate.add_argument("--episodes", type=int, default=20, help="how many (default: 20)")
    evaluate.add_argument("--seed", type=int, default=0, help="of the episodes (default: 0)")
    evaluate.add_argument("--deterministic", action="store_true", help="take the most likely action instead of a draw")
    evaluate.add_argument("--video", type=Path, metavar="FILE", help="film the first episode: a name ending in .mp4 or .gif")

    as_json(evaluate, "the returns")

    look = command(
        "play", commands.play, "look at a task: play episodes without an agent", "ex2 play doom --random --video doom.mp4"
    )
    look.add_argument("task", help="a task, as 'ex2 tasks' lists them")
    look.add_argument("--random", action="store_true", help="take random actions, which is the only way there is")
    look.add_argument("--episodes", type=int, default=1, help="how many (default: 1)")
    look.add_argument("--seed", type=int, default=0, help="of the episodes and the actions (default: 0)")
    look.add_argument("--video", type=Path, metavar="FILE", help="film the first episode: a name ending in .mp4 or .gif")

    novelty = command(
        "novelty",
        commands.novelty,
        "draw what a run finds most and least novel: frames or states, and maps",
        "ex2 novelty runs/doom-0",
    )
    novelty.add_argument("run", type=Path, help="the run's folder")
    novelty.add_argument("--out", type=Path, help="the picture (default: novelty.png in the run's folder)")
    novelty.add_argument("--seed", type=int, default=0, help="of the episodes that are looked at (default: 0)")

    plot = command(
        "plot",
        commands.plot,
        "draw a run: where it was and what it found novel over its training, its learning curve; or several runs, side by side",
        "ex2 plot runs/maze-0",
    )
    plot.add_argument("run", type=Path, nargs="+", help="the run's folder, or those of several")
    plot.add_argument("--out", type=Path, help="the picture (default: plot.png, or compare.png, in the first run's folder)")
    plot.add_argument(
        "--beside",
        type=Path,
        metavar="RESULTS",
        help="recorded results to compare with, such as results/default; none and the run's own bonus are drawn",
    )
    as_json(plot)

    compare = command(
        "compare",
        commands.compare,
        "put runs of one task beside each other, as a table and a picture",
        "ex2 compare runs/maze-0 runs/maze-1",
    )
    compare.add_argument("run", type=Path, nargs="+", help="the runs' folders")
    compare.add_argument("--out", type=Path, help="the picture (default: compare.png in the first run's folder)")
    compare.add_argument("--seed", type=int, default=0, help="of the episodes that are drawn (default: 0)")
    as_json(compare)

    density = command(
        "density-figure",
        commands.density_figure,
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

    sweep = command(
        "sweep",
        commands.sweep,
        "run an experiment: tasks x bonuses x seeds, on one machine or a Ray cluster; started again, it runs what is missing",
        "ex2 sweep experiments/small.toml --dry-run",
    )
    sweep.add_argument("experiment", type=Path, help="an experiment's file, such as experiments/small.toml")
    sweep.add_argument(
        "--out", type=Path, help="the folder of runs and results, which all machines see (default: runs/NAME of the file)"
    )
    sweep.add_argument("--address", help=ADDRESS)
    sweep.add_argument("--workers", type=int, metavar="N", help="trials at a time, at most (default: as many as cores allow)")
    sweep.add_argument("--seeds", nargs="+", metavar="SEED", help="in the place of the file's: 0 1 2, or 0-9")
    sweep.add_argument("--steps", type=int, help="environment steps of each trial, in the place of the file's")
    sweep.add_argument(
        "--retries", type=int, default=3, help="times a trial that dies is gone on with, without coming further (default: 3)"
    )
    sweep.add_argument("--samples", type=int, default=20, help="settings that a search tries (default: 20)")
    sweep.add_argument("--seed", type=int, default=0, help="of what a search draws (default: 0)")
    sweep.add_argument("--dry-run", action="store_true", help="list the trials, each with the command that makes it by hand")
    sweep.add_argument("--json", action="store_true", help="print what comes out as JSON; progress goes to standard error")

    shown = command(
        "results", commands.results, "print a table of results: runs, sweeps or results/NAME", "ex2 results runs/small"
    )
    shown.add_argument("paths", type=Path, nargs="+", help="folders of runs, of Parquet files, or of scores.csv")
    shown.add_argument("--save", type=Path, metavar="FOLDER", help="write scores.csv and curves.csv there, to be committed")
    shown.add_argument("--json", action="store_true", help="print the table as JSON")

    report = command(
        "report",
        commands.report,
        "put results on one page that needs no network: runs, sweeps or results/NAME",
        "ex2 report results/default runs/default --out report.html",
    )
    report.add_argument(
        "results", type=Path, nargs="+", help="folders of runs, sweeps or results; with runs there are maps and films"
    )
    report.add_argument("--out", type=Path, default=Path("report.html"), help="the page (default: report.html)")
    report.add_argument("--title", help="its title (default: the names of the experiments)")
    report.add_argument("--seed", type=int, default=0, help="of resamplings and episodes (default: 0)")

    watch = command(
        "watch",
        commands.watch,
        "show runs on a page while they go on, on this machine only",
        "ex2 watch runs/maze-0 runs/maze-1",
    )
    watch.add_argument("run", type=Path, nargs="+", help="folders of runs, or of many; they need not be there yet")
    watch.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (default: any that is free)")
    watch.add_argument("--seed", type=int, default=0, help="of the episodes that are played (default: 0)")

    as_json(command("tasks", commands.tasks, "list the tasks", "ex2 tasks"))
    bonuses = command("bonuses", commands.bonuses, "list the bonuses, or the settings of one", "ex2 bonuses kernel-exemplar")
    bonuses.add_argument("name", nargs="?", help="a bonus whose settings to list, each with its default and meaning")
    as_json(bonuses)
    return parser
