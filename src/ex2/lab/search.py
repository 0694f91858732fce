"""A search: settings drawn from an experiment's ranges, each trained on all of its seeds, the hopeless ones stopped early.

Ray Tune schedules them (asynchronous successive halving on the mean score of the seeds at the same step). The best one is in
FOLDER/best.json, with all that were tried; their curves are in FOLDER/results, an arm each, as a sweep's are.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from ex2.cluster import SMALL_STORE, check_gpus, connected, most_cores
from ex2.commit import commit
from ex2.errors import UsageError, missing_extra
from ex2.lab.experiment import Experiment, Trial
from ex2.lab.progress import RUNNING, WAITING, Board, Job
from ex2.lab.results import ASKED, STORE, TITLE, facts_of_trial, write_trial
from ex2.lab.sweep import RETRIES, check_bounds, cores_of
from ex2.lab.trial import FAILED, FINISHED, STOPPED
from ex2.tables import number
from ex2.tasks.cores import LIMIT
from ex2.training.config import write_json
from ex2.training.loop import Trainer
from ex2.training.metrics import Row

REPORTS = 27  # of a training, to the scheduler
HALVING = 3  # of so many settings one goes on ...
GRACE = 9  # ... the first time after this share of the steps: one in so many
ENVIRONMENT = {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_CHDIR_TO_TRIAL_DIR": "0", "RAY_AIR_NEW_OUTPUT": "0"}
_shown: list[Board] = []
"""Where the search under way shows how its settings stand."""
BEST, TUNE = "best.json", "tune"


def search(
    experiment: Experiment,
    out: Path,
    *,
    samples: int = 20,
    seed: int = 0,
    address: str | None = None,
    workers: int | None = None,
    retries: int = RETRIES,
    console: Console | None = None,
) -> dict[str, Any] | None:
    """Finds the best of an experiment's settings; what it returns is written to best.json, too. None if it was stopped.

    Args:
        samples: how many settings are tried; of choices alone no more than there are combinations.
        seed: of the draws.
        The others are as in `sweep`. A search that was stopped goes on: what had ended is kept, what was under way begins anew.
    """
    if samples < 1:
        raise UsageError(f"samples={samples} must be at least 1.")
    check_bounds(workers, retries)
    out, console = out.absolute(), console or Console()
    trials, settings = experiment.trials, drawn(experiment.search, samples, seed)
    _check_same(out, {"settings": settings, "trials": [trial.command for trial in trials]}, experiment.title)
    os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
    with connected(address, object_store_memory=SMALL_STORE) as ray:
        check_gpus(ray, trials[0].device == "cuda")
        try:
            from ray import tune
            from ray.tune.schedulers import ASHAScheduler
        except ImportError as error:
            raise missing_extra("lab", str(error.name or "ray[tune]")) from None
        for name in ("ray.tune", "ray.train"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        config = trials[0].configuration(device="cpu")
        cores = min(cores_of(config), most_cores(ray))

        room = max(int(ray.cluster_resources().get("CPU", 1)) // cores, 1)
        jobs, seeds = _jobs(trials, settings, out), len(trials)

        class Told(tune.Callback):
            """Shows how the settings stand. Tune saves it beside its results, so it holds nothing."""

            def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
                _show(trials, seeds)

        gpu = trials[0].gpus if trials[0].device == "cuda" else 0
        given = {"trials": trials, "cores": cores, "store": out / STORE, "commit": commit()}
        train = tune.with_resources(tune.with_parameters(_train, **given), {"cpu": cores, "gpu": gpu})
        space = {"setting": tune.grid_search(settings)}
        if any((out / TUNE).glob("experiment_state-*.json")):  # else it was killed before it had begun
            tuner = tune.Tuner.restore(str(out / TUNE), trainable=train, param_space=space, restart_errored=True)
            ended = [(one.config["setting"], "TERMINATED", one.metrics) for one in _listed(tuner.get_results()) if _done(one)]
            _note(jobs, ended, seeds)
        else:
            halving = ASHAScheduler(
                time_attr="step", max_t=config.steps, grace_period=max(config.steps // GRACE, 1), reduction_factor=HALVING
            )
            tuner = tune.Tuner(
                train,
                param_space=space,
                tune_config=tune.TuneConfig(
                    metric="score", mode="max", scheduler=halving, max_concurrent_trials=workers, trial_dirname_creator=_folder
                ),
                run_config=tune.RunConfig(
                    name=TUNE,
                    storage_path=str(out),
                    verbose=0,
                    callbacks=[Told()],
                    failure_config=tune.FailureConfig(max_failures=retries),
                ),
            )
        with Board(experiment.title, jobs, min(room, workers or room), console) as board:
            _shown[:] = [board]
            grid = _listed(tuner.fit())
    if not all(one.error or _done(one) for one in grid):
        return None
    best = best_of(trials[0], settings, [one.metrics or {} for one in grid])
    write_json(out / BEST, best)
    alike = sum(one["score"] == best["score"] and one["step"] == best["step"] for one in best["tried"]) - 1
    others = f" ({alike} more {'is' if alike == 1 else 'are'} as good)" if alike else ""
    console.print(f"The best of {len(grid)}{others}: score {number(best['score'])} with", highlight=False, markup=False)
    console.print(f"  {best['command']}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"All are in {out / BEST}.", soft_wrap=True, highlight=False, markup=False)
    return best


def _folder(trial: Any) -> str:
    """A name for what Tune keeps of a setting; its own has all of the setting in it, which may be too long for a name."""
    return str(trial.trial_id)


def _listed(grid: Any) -> list[Any]:
    """Tune's results, which know their number and no end."""
    return [grid[index] for index in range(len(grid))]


def _done(result: Any) -> bool:
    """Whether a setting has ended by itself, or was stopped early."""
    return result.error is None and bool((result.metrics or {}).get("done"))


def _arm(setting: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in setting.items())


def _jobs(trials: Sequence[Trial], settings: Sequence[Mapping[str, Any]], out: Path) -> list[Job]:
    """What a board shows of a search: each setting as a job that has the steps of all seeds."""
    config = trials[0].configuration(device="cpu")
    config = replace(config, steps=config.steps * len(trials))
    return [Job(replace(trials[0], overrides=dict(one)), config, out / TUNE, name=_arm(one)) for one in settings]


def _show(trials: Sequence[Any], seeds: int) -> None:
    """Shows how Tune's trials stand. It is not part of the callback, which a search that goes on has as it was saved."""
    for board in _shown:
        _note(board.jobs, [(trial.config["setting"], trial.status, trial.last_result or {}) for trial in trials], seeds)
        board()


def _note(jobs: Sequence[Job], stands: Iterable[tuple[Mapping[str, Any], str, Mapping[str, Any]]], seeds: int) -> None:
    """Puts down how settings stand: what Tune calls it, and what was reported last."""
    left = list(jobs)
    for setting, status, result in stands:
        job = left.pop(next(place for place, job in enumerate(left) if job.trial.overrides == setting))
        job.step, job.score = int(result.get("step", 0)) * seeds, float(result.get("score", math.nan))
        job.speed = job.step / result["time_total_s"] if job.step else math.nan
        job.state, job.words = {"RUNNING": RUNNING, "TERMINATED": FINISHED, "ERROR": FAILED}.get(status, WAITING), ""
        if status == "ERROR":
            job.words = "its process died"
        elif "words" in result:
            job.state, job.words = FAILED, str(result["words"])
        elif status == "TERMINATED" and job.step < job.config.steps:
            job.state, job.words = STOPPED, f"others were better than {number(job.score)} at step {result['step']:,}"


def drawn(ranges: Mapping[str, Any], samples: int, seed: int) -> list[dict[str, Any]]:
    """Settings from ranges, all from one seed; where there are choices only, each combination once, if they are few enough.

    >>> drawn({"a": [1, 2], "b": [3]}, 5, 0)
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    random = np.random.default_rng(seed)
    choices = [among for among in ranges.values() if isinstance(among, list)]
    if len(choices) == len(ranges) and math.prod(map(len, choices)) <= samples:
        return [dict(zip(ranges, values, strict=True)) for values in itertools.product(*choices)]
    return [{key: _draw(among, random) for key, among in ranges.items()} for _ in range(samples)]


def _draw(among: Any, random: np.random.Generator) -> Any:
    if isinstance(among, list):
        return among[int(random.integers(len(among)))]
    low, high = among["from"], among["to"]
    whole = isinstance(low, int) and isinstance(high, int)
    if whole:  # each number as wide as any other
        low, high = low - 0.5, high + 0.5
    value = math.exp(random.uniform(math.log(low), math.log(high))) if among.get("log") else random.uniform(low, high)
    return min(max(round(value), among["from"]), among["to"]) if whole else float(f"{value:.4g}")


def best_of(trial: Trial, settings: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The setting with the highest score of those that were trained to the end, and all that were tried, the best first; of
    those that are as good, the one that stands first in `settings`, in whatever order the results come."""
    tried: list[dict[str, Any]] = [
        {"overrides": dict(result["config"]["setting"]), "step": int(result["step"]), "score": float(result["score"])}
        | ({"words": result["words"]} if result.get("words") else {})
        for result in results
        if "score" in result
    ]
    tried.sort(key=lambda one: settings.index(one["overrides"]))
    tried.sort(key=lambda one: (math.isfinite(one["score"]), one["step"], one["score"]), reverse=True)
    sound = [one for one in tried if math.isfinite(one["score"])]
    if not sound:
        words = next((one["words"] for one in tried if "words" in one), "their processes died")
        raise UsageError(f"No setting could be trained: {words}")
    best = sound[0]
    command = replace(trial, overrides=trial.overrides | best["overrides"]).command
    for one in tried:
        one["score"] = one["score"] if math.isfinite(one["score"]) else None
    return best | {"command": command, "tried": tried}


def _train(config: dict[str, Any], trials: Sequence[Trial], cores: int, store: Path, commit: str) -> None:
    """One setting on all seeds, which take turns, so that there is a score of all at the same step."""
    from ray import tune

    os.environ[LIMIT] = str(cores)
    step, setting = 0, config["setting"]
    trials = [replace(trial, arm=_arm(setting), overrides=trial.overrides | setting) for trial in trials]
    try:
        with ExitStack() as stack:
            trainers = [stack.enter_context(closing(Trainer(trial.configuration()))) for trial in trials]
            rows: list[list[Row]] = [[] for _ in trials]
            steps = trainers[0].config.steps
            for report in range(1, REPORTS + 1):
                for trainer, trial, own in zip(trainers, trials, rows, strict=True):
                    while trainer.steps < min(math.ceil(steps * report / REPORTS), steps):
                        own.append(trainer.iterate())
                    history: Any = pd.DataFrame(own).to_dict("list")
                    write_trial(store, facts_of_trial(trial, steps, commit), history)
                reached = min(trainer.steps for trainer in trainers)
                score = float(np.mean([trainer.collector.score for trainer in trainers]))
                if reached > step and math.isfinite(score):
                    step = reached
                    tune.report({"step": min(step, steps), "score": score})
    except UsageError as error:
        tune.report({"step": step + 1, "score": -math.inf, "words": str(error)})


def _check_same(out: Path, asked: Mapping[str, Any], title: str) -> None:
    """Refuses a folder that another search was made in, or a sweep."""
    path = out / ASKED
    try:
        out.mkdir(parents=True, exist_ok=True)
        if (out / TITLE).exists() and not path.exists():
            raise UsageError(f"{out} holds a sweep, and this is a search: choose another --out.")
        if path.exists() and json.loads(path.read_text()) != asked:
            raise UsageError(f"{out} holds another search, with other ranges, samples or seeds: choose another --out.")
        write_json(path, asked)
        (out / TITLE).write_text(title + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} cannot be read or written ({error}): choose another --out.") from None
