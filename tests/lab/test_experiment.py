"""Experiments as data: which trials there are, and what cannot be run is one sentence."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from ex2 import TASKS, UsageError
from ex2.lab import experiment
from ex2.lab.experiment import experiment_of, read_experiment

ROOT = Path(__file__).parents[2]


def test_all_combinations_in_an_order_that_compares_arms_early() -> None:
    values = {"tasks": ["maze"], "bonuses": ["kernel-exemplar", "none"], "seeds": "3-4", "solved": {"maze": -80}}
    trials = experiment_of("e", values).trials
    assert [trial.name for trial in trials] == [
        "maze-kernel-exemplar-3",
        "maze-none-3",
        "maze-kernel-exemplar-4",
        "maze-none-4",
    ]
    assert {trial.solved_at for trial in trials} == {-80}


def test_arms_inherit_and_differ() -> None:
    values = {
        "tasks": ["maze"],
        "seeds": [1],
        "set": {"num_envs": 4},
        "arms": {"plain": {"bonuses": ["none"]}, "no-counts": {"set": {"episode_counts": False}}},
    }
    plain, counts = experiment_of("e", values).trials
    assert (plain.bonus, plain.overrides) == ("none", {"num_envs": 4})
    assert (counts.bonus, counts.overrides) == ("kernel-exemplar", {"num_envs": 4, "episode_counts": False})
    assert not counts.configuration().episode_counts
    assert counts.command == "ex2 train maze --bonus kernel-exemplar --seed 1 --set num_envs=4 --set episode_counts=false"


def test_a_task_may_have_its_own() -> None:
    values = {
        "tasks": ["maze", "sparse-maze"],
        "bonuses": ["none"],
        "seeds": [1],
        "steps": {"maze": 8_000},
        "set": {"num_envs": 4},
        "for": {"sparse-maze": {"seeds": [2, 3], "device": "cuda", "gpus": 0.25, "set": {"threads": 1}}},
        "arms": {"plain": {"bonuses": ["rnd"], "seeds": [4]}},
    }
    maze, *sparse, first, last = experiment_of("e", values).trials
    assert (maze.seed, maze.steps, maze.device, maze.overrides) == (1, 8_000, "cpu", {"num_envs": 4})
    assert [(trial.seed, trial.steps, trial.device, trial.gpus) for trial in sparse] == [
        (2, None, "cuda", 0.25),
        (3, None, "cuda", 0.25),
    ]
    assert sparse[0].overrides == {"num_envs": 4, "threads": 1}
    assert [(trial.name, trial.bonus, trial.device) for trial in (first, last)] == [
        ("maze-plain-4", "rnd", "cpu"),
        ("sparse-maze-plain-4", "rnd", "cuda"),
    ]


def test_seeds_and_steps_can_be_others(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text('tasks = ["maze"]\n[for.maze]\nseeds = [1]\n[arms.a]\nseeds = "2-9"\nsteps = 5\n')
    (trial,) = read_experiment(path, seeds=[7], steps=100).trials
    assert (trial.seed, trial.steps) == (7, 100)
    path.write_text('command = "make"')
    with pytest.raises(UsageError, match="takes no seeds"):
        read_experiment(path, seeds=[7])


def test_the_papers_table_is_whole() -> None:
    trials = read_experiment(ROOT / "experiments" / "paper.toml").trials
    found = {(trial.task, trial.bonus) for trial in trials}
    assert found == {(name, bonus) for name, task in TASKS.items() for bonus in task.paper}
    assert all(trial.preset == "paper" for trial in trials if trial.bonus in ("amortized", "k-exemplar", "none"))
    assert all(trial.arm == trial.bonus for trial in trials)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"tasks": ["mace"]}, "maze"),
        ({"taks": ["maze"]}, "tasks"),
        ({}, "tasks"),
        ({"tasks": "maze"}, "list"),
        ({"tasks": ["maze"], "bonuses": ["kernel"]}, "kernel-exemplar"),
        ({"tasks": ["maze"], "seeds": "9-3"}, "seeds"),
        ({"tasks": ["maze"], "seeds": 3}, "seeds"),
        ({"tasks": ["maze"], "steps": "many"}, "steps"),
        ({"tasks": ["maze"], "set": {"bonus.kk": 1}}, "kk"),
        ({"tasks": ["maze"], "seeds": [1, 1]}, "twice"),
        ({"tasks": ["maze"], "arms": {"a": 3}}, "arms.a"),
        ({"command": "make", "tasks": ["maze"]}, "command"),
        ({"tasks": ["maze"], "solved": {"mace": 1}}, "maze"),
        ({"tasks": ["maze"], "solved": {"maze": "a"}}, "solved.maze"),
        ({"tasks": ["maze"], "steps": {"mace": 10}}, "maze"),
        ({"tasks": ["maze"], "steps": {"maze": "many"}}, "steps"),
        ({"tasks": ["maze"], "device": "gpu"}, "cuda"),
        ({"tasks": ["maze"], "gpus": 1.5}, "gpus"),
        ({"tasks": ["maze"], "for": {"mace": {}}}, "maze"),
        ({"tasks": ["maze"], "for": {"maze": {"tasks": ["doom"]}}}, "tasks"),
        ({"tasks": ["maze"], "for": {"maze": 3}}, "for.maze"),
        ({"command": " "}, "empty"),
        ({"tasks": ["maze"], "solved": {"maze": float("nan")}}, "solved.maze"),
        ({"tasks": ["maze"], "seeds": "0-99999999"}, "10,000"),
        ({"tasks": ["maze"], "seeds": [True]}, "seeds"),
        ({"tasks": ["maze"], "bonuses": []}, "bonuses"),
    ],
)
def test_what_cannot_be_run_is_named(values: dict, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        experiment_of("e", values)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml"):
        read_experiment(tmp_path / "nowhere.toml")
    (tmp_path / "bad.toml").write_text("tasks = [")
    with pytest.raises(UsageError, match="not TOML"):
        read_experiment(tmp_path / "bad.toml")


def test_the_examples_that_are_shown_can_be_read() -> None:
    paragraphs = re.split(r"\n(?=\S)", experiment.__doc__ or "")
    shown = [textwrap.dedent(text.partition("\n\n")[2]) for text in paragraphs]
    shown = [text for text in shown if text.strip()]
    shown += re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "sweeps.md").read_text(), re.S)
    assert len(shown) >= 3
    for text in shown:
        values = tomllib.loads(text)
        experiment_of("shown", values if {"tasks", "command", "arms"} & set(values) else {"tasks": ["maze"]} | values)


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_every_experiment_of_ours_can_be_read(path: Path) -> None:
    experiment = read_experiment(path)
    assert experiment.title != experiment.name
    assert experiment.trials or experiment.command
