"""An experiment is data: experiments/NAME.toml says which tasks, arms and seeds there are; each combination is a trial.

    title = "The default with nothing chosen"
    tasks = ["maze", "cheetah"]
    bonuses = ["kernel-exemplar", "none"]   # each an arm of its own name
    seeds = "760-769"                       # or a list: [760, 761]
    algo = "trpo"                           # as is everything below: default, and may be left out
    preset = "default"
    device = "cpu"
    steps = 800_000                         # default: the presets'; or a table: steps = { maze = 800_000 }
    gpus = 0.25                             # of a GPU that a trial asks for where its device is one; default: 1

    [set]                                   # settings on top of the preset, as `ex2 train --set` takes them
    "algo.gamma" = 0.995

    [solved]                                # what counts as solved, where it is not what `ex2 tasks` says
    maze = -70

    [for.cheetah]                           # what differs for one task: anything of the above but tasks
    seeds = "720-729"

    [arms.no-counts]                        # a further arm: anything of the above that differs in it
    bonuses = ["kernel-exemplar"]
    set = { episode_counts = false }

An experiment of one task and one bonus may have ranges in the place of values, and `ex2 sweep` looks for the best:

    tasks = ["maze"]
    [search]
    "weight.start" = { from = 0.03, to = 3.0, log = true }
    "algo.gamma" = [0.99, 0.995]            # or choices

A figure that no training makes has a command instead: `command = "python benchmarks/novelty.py"`.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ex2.errors import UsageError, unknown
from ex2.tasks import TASKS, find_task
from ex2.training.config import Config, configure

SHARED = ("tasks", "bonuses", "seeds", "algo", "preset", "device", "steps", "gpus", "set")
"""What an arm may have of its own."""
KEYS = ("title", "command", *SHARED, "solved", "for", "arms", "search")
MOST_SEEDS = 10_000
KINDS: dict[str, type] = {"title": str, "command": str, "algo": str, "preset": str, "device": str}
KINDS |= dict.fromkeys(("set", "solved", "for", "arms", "search"), dict)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training of an experiment."""

    experiment: str
    arm: str
    task: str
    bonus: str
    seed: int
    algo: str = "trpo"
    preset: str = "default"
    device: str = "cpu"
    steps: int | None = None
    gpus: float = 1.0
    """How much of a GPU it asks for, where its device is one."""
    overrides: dict[str, Any] = field(default_factory=dict)
    solved_at: float | None = None
    """The score from which on the task counts as solved."""

    @property
    def name(self) -> str:
        """What no other trial of the experiment is called; a folder's name, too."""
        return trial_name(self.task, self.arm, self.seed)

    def configuration(self, device: str | None = None) -> Config:
        """What it is trained with; on another `device`, where that is not of this machine."""
        return configure(
            self.task,
            self.bonus,
            algo=self.algo,
            preset=self.preset,
            steps=self.steps,
            seed=self.seed,
            device=self.device if device is None else device,
            overrides=self.overrides,
        )

    @property
    def arguments(self) -> list[str]:
        """The arguments of `ex2` that make the same run by hand."""
        words = ["train", *([self.task] if self.task in TASKS else ["--env", self.task])]
        words += ["--bonus", self.bonus, "--seed", str(self.seed)]
        for name, usual in (("algo", "trpo"), ("preset", "default"), ("device", "cpu"), ("steps", None)):
            if (value := getattr(self, name)) != usual:
                words += [f"--{name}", str(value)]
        for key, value in self.overrides.items():
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return words

    @property
    def command(self) -> str:
        """The same as a line for a shell.

        >>> Trial(experiment="e", arm="a", task="maze", bonus="none", seed=3, overrides={"num_envs": 4}).command
        'ex2 train maze --bonus none --seed 3 --set num_envs=4'
        """
        return shlex.join(["ex2", *self.arguments])


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What a file in experiments/ says."""

    name: str
    title: str
    command: str = ""
    trials: tuple[Trial, ...] = ()
    search: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen = set[str]()
        for trial in self.trials:
            if trial.name in seen:
                raise UsageError(
                    f"The experiment {self.name!r} has the trial {trial.name} twice: give the arms different names, and name "
                    "each task, bonus and seed once."
                )
            seen.add(trial.name)


def set_words(overrides: Mapping[str, Any]) -> str:
    """Settings as `ex2 train` takes them in a shell.

    >>> set_words({"policy.hidden": [8, 8], "centre": "none", "episodic": False})
    "--set 'policy.hidden=[8, 8]' --set centre=none --set episodic=false"
    """
    pairs = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in overrides.items()]
    return " ".join(f"--set {shlex.quote(pair)}" for pair in pairs)


def trial_name(task: str, arm: str, seed: int) -> str:
    """A trial as a word that can be a file's name."""
    return re.sub(r"[^\w.+-]", "-", f"{task}-{arm}-{seed}")


def read_experiment(path: str | Path, **changed: Any) -> Experiment:
    """The experiment in a file; what cannot be run is refused here, before anything has been started.

    `changed` are values in the place of those in the file, and of every arm: seeds="0-2", steps=100_000.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"The experiment {path} cannot be read ({error.strerror or error}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML ({error}).") from None
    try:
        return experiment_of(path.stem, _changed(values, changed) if changed else values)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _changed(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a file with others in their place, for every task and in every arm, too."""
    if "command" in values:
        raise UsageError(f"it is a command, which takes no {' and no '.join(changed)}.")
    own: dict[str, Any] = {**values, **changed}
    for part in ("for", "arms"):
        if isinstance(own.get(part), dict):
            own[part] = {
                name: {key: value for key, value in table.items() if key not in changed} if isinstance(table, dict) else table
                for name, table in own[part].items()
            }
    return own


def experiment_of(name: str, values: Mapping[str, Any]) -> Experiment:
    """The experiment of these values, each trial of it checked."""
    _check(values, KEYS, "an experiment")
    arms, by_task = values.get("arms", {}), values.get("for", {})
    for part, tables, owner in (("arms", arms, "the arm"), ("for", by_task, "the task")):
        for key, own in tables.items():
            if not isinstance(own, dict):
                raise UsageError(f"{part}.{key}={own!r} must be a table of settings.")
            _check(own, SHARED if part == "arms" else SHARED[1:], f"{owner} {key!r}")
    title = values.get("title", name)
    if "command" in values:
        if set(values) - {"title", "command"}:
            raise UsageError("An experiment with a command has nothing else but a title.")
        if not values["command"].strip():
            raise UsageError("command='' is empty: write what makes the figure, or leave it out.")
        return Experiment(name=name, title=title, command=values["command"])
    shared = {key: values[key] for key in SHARED if key in values}
    solved = values.get("solved", {})
    trials: list[Trial] = []
    if "bonuses" in shared or not arms:
        trials += _trials(name, shared, by_task, {}, solved)
    for arm, own in arms.items():
        trials += _trials(name, shared, by_task, own, solved, arm)
    if strange := sorted(set(by_task) - {trial.task for trial in trials}):
        raise unknown("task of the experiment", strange[0], sorted({trial.task for trial in trials}))
    for task, score in solved.items():
        if task not in (tasks := sorted({trial.task for trial in trials})):
            raise unknown("task of the experiment", task, tasks)
        if not _is_number(score):
            raise UsageError(f"solved.{task}={score!r} must be a number.")
    if not trials:
        raise UsageError("An experiment needs tasks: tasks = ['maze'], as 'ex2 tasks' lists them.")
    for (_, _, device), alike in _alike(trials).items():
        if device not in ("cpu", "cuda"):
            raise UsageError(f"device={device!r} must be 'cpu' or 'cuda': which GPU it is, Ray decides.")
        alike.configuration(device="cpu")  # the machines that it will run on may have what this one has not
    _check_search(values.get("search", {}), trials)
    return Experiment(name=name, title=title, trials=tuple(trials), search=values.get("search", {}))


def _alike(trials: Sequence[Trial]) -> dict[tuple[str, str, str], Trial]:
    """One trial of each task and arm: the others have other seeds only."""
    return {(trial.task, trial.arm, trial.device): trial for trial in trials}


Values = Mapping[str, Any]


def _trials(name: str, shared: Values, by_task: Values, own: Values, solved: Values, arm: str = "") -> Iterator[Trial]:
    """Tasks x seeds x bonuses, in this order: what is there when a sweep is stopped early compares all arms.

    What an arm says comes before what is said for a task, and that before what is said for all.
    """
    for task in {**shared, **own}.get("tasks", ()):
        parts = shared, by_task.get(task, {}), own
        values = {key: value for part in parts for key, value in part.items()}
        overrides = {key: value for part in parts for key, value in part.get("set", {}).items()}
        bonuses = values.get("bonuses", ["kernel-exemplar"])
        for seed in _seeds(values.get("seeds", [0])):
            for bonus in bonuses:
                yield Trial(
                    experiment=name,
                    arm=bonus if not arm else arm if len(bonuses) == 1 else f"{arm}-{bonus}",
                    task=task,
                    bonus=bonus,
                    seed=seed,
                    algo=values.get("algo", "trpo"),
                    preset=values.get("preset", "default"),
                    device=values.get("device", "cpu"),
                    steps=_steps(values, task),
                    gpus=values.get("gpus", 1.0),
                    overrides=overrides,
                    solved_at=solved.get(task, find_task(task).solved_at),
                )


def _steps(values: Mapping[str, Any], task: str) -> int | None:
    """The steps of a task's trials: one number for all, or a table that need not have all."""
    steps = values.get("steps")
    if not isinstance(steps, dict):
        return steps
    if strange := sorted(set(steps) - set(values["tasks"])):
        raise unknown("task in the table of steps", strange[0], values["tasks"])
    return steps.get(task)


def _check_search(search: Mapping[str, Any], trials: list[Trial]) -> None:
    """Refuses ranges that are none, and settings that there are not."""
    if search and len({(trial.task, trial.arm) for trial in trials}) > 1:
        raise UsageError("A search is for one task and one bonus: leave one of each, or make a file for each.")
    for key, among in search.items():
        if isinstance(among, dict):
            low: Any = among.get("from")
            high, log = among.get("to"), among.get("log", False)
            right = _is_number(low) and _is_number(high) and isinstance(log, bool) and not set(among) - {"from", "to", "log"}
            if not right or low >= high or (log and low <= 0):
                raise UsageError(
                    f"search.{key}={among!r} must be a range such as {{from = 0.1, to = 10.0, log = true}}, "
                    "the lower end first, above 0 where log is true."
                )
        elif not (isinstance(among, list) and among):
            raise UsageError(f"search.{key}={among!r} must be a range, {{from = 0.1, to = 10.0}}, or a list of choices.")
        for value in among if isinstance(among, list) else (among["from"], among["to"]):
            replace(trials[0], overrides=trials[0].overrides | {key: value}).configuration(device="cpu")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _seeds(seeds: Any) -> list[int]:
    """
    >>> _seeds("3-5"), _seeds([1, 7])
    ([3, 4, 5], [1, 7])
    """
    if isinstance(seeds, str) and (found := re.fullmatch(r"(\d+)-(\d+)", seeds)) and int(found[1]) <= int(found[2]):
        if (count := int(found[2]) - int(found[1]) + 1) > MOST_SEEDS:
            raise UsageError(f"seeds={seeds!r} are {count:,}: take at most {MOST_SEEDS:,} in a file.")
        return list(range(int(found[1]), int(found[2]) + 1))
    if isinstance(seeds, list) and seeds and all(type(seed) is int and seed >= 0 for seed in seeds):
        return seeds
    raise UsageError(f"seeds={seeds!r} must be a list of whole numbers, [0, 1], or a range of them, '0-9'.")


def _check(values: Mapping[str, Any], known: tuple[str, ...], owner: str) -> None:
    for key, value in values.items():
        if key not in known:
            raise unknown(f"key of {owner}", key, known)
        if key in KINDS and (not isinstance(value, KINDS[key]) or isinstance(value, bool)):
            raise UsageError(f"{key}={value!r} must be a {'table' if KINDS[key] is dict else KINDS[key].__name__}.")
        if key == "steps" and not all(type(steps) is int for steps in (value.values() if isinstance(value, dict) else [value])):
            raise UsageError(f"steps={value!r} must be a whole number, or a table of one for each task.")
        if key == "gpus" and not (_is_number(value) and (0 < value < 1 or (value >= 1 and value == int(value)))):
            raise UsageError(f"gpus={value!r} must be a share of a GPU, such as 0.25, or a whole number of them.")
        named = isinstance(value, list) and value and all(isinstance(item, str) for item in value)
        if key in ("tasks", "bonuses") and not named:
            raise UsageError(f"{key}={value!r} must be a list of names, one at least.")
