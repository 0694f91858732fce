"""A search on a real Ray Tune: the better of two settings is found, all from one seed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ex2 import UsageError
from ex2.cluster import connected
from ex2.lab import progress
from ex2.lab.experiment import Experiment, experiment_of
from ex2.lab.results import ASKED, STORE, TITLE, read_results
from ex2.lab.search import _jobs, _note, best_of, drawn, search
from ex2.lab.sweep import sweep

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]  # one session, in one process


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """One Ray for all searches of this process."""
    with connected():
        yield


def small(**ranges: Any) -> Experiment:
    """Every step that does not reach the goal costs 1: a shorter episode has the better score."""
    values = {"tasks": ["maze"], "bonuses": ["none"], "seeds": [0, 1], "steps": 3_000, "search": ranges}
    return experiment_of("small", values | {"set": {"num_envs": 4, "rollout_steps": 50, "algo.batch_size": 50}})


def test_the_best_choice_is_found_and_kept_whatever_becomes_of_others(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.0)
    console = Console(file=io.StringIO(), width=300)
    experiment = small(**{"task.max_episode_steps": [0, 20, 100]})  # 0 is refused when environments are made
    best = search(experiment, tmp_path, console=console)
    assert best is not None
    assert best["overrides"] == {"task.max_episode_steps": 20}
    assert (best["score"], best["step"], len(best["tried"])) == (-20.0, 3_000, 3)
    (failed,) = (one for one in best["tried"] if one["score"] is None)
    assert failed["overrides"] == {"task.max_episode_steps": 0}
    assert "max_episode_steps=0" in failed["words"]
    assert best == json.loads((tmp_path / "best.json").read_text())
    curves = read_results(tmp_path).scores.set_index(["arm", "seed"])
    assert curves.loc[("task.max_episode_steps=20", 1), "score"] == -20.0
    assert sorted(curves.index.get_level_values("arm").unique()) == ["task.max_episode_steps=100", "task.max_episode_steps=20"]
    assert best["command"] in console.file.getvalue()
    assert best["command"].endswith("--set algo.batch_size=50 --set task.max_episode_steps=20")
    said = console.file.getvalue()
    assert "task.max_episode_steps=20: finished, score -20.0; " in said
    assert "task.max_episode_steps=0: failed: " in said
    assert re.search(r"0 of 3 finished, .*[1-9]\d* s left: task.max_episode_steps=\d+ [1-9]\d?%", said)  # while it goes on
    again = Console(file=io.StringIO(), width=300)
    assert search(experiment, tmp_path, console=again) == best  # nothing is trained again
    assert "max_episode_steps=20: finished" not in again.file.getvalue()
    with pytest.raises(UsageError, match="another search"):
        search(small(**{"task.max_episode_steps": [20, 50]}), tmp_path, console=console)
    assert (tmp_path / TITLE).read_text() == "small\n"
    with pytest.raises(UsageError, match=r"holds a search.*--out"):
        sweep(small(), tmp_path, console=console)


def test_a_search_that_was_stopped_goes_on_and_shows_it(tmp_path: Path) -> None:
    values = {"tasks": ["maze"], "bonuses": ["none"], "steps": 16_000, "search": {"algo.gamma": [0.99, 0.995]}}
    experiment = experiment_of("small", values | {"set": {"num_envs": 4, "rollout_steps": 50, "algo.batch_size": 50}})

    def press() -> None:
        until = time.monotonic() + 60
        while not any((tmp_path / STORE).glob("*.parquet")) and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    presses = threading.Thread(target=press)
    presses.start()
    assert search(experiment, tmp_path, console=Console(file=io.StringIO())) is None
    presses.join()
    again = Console(file=io.StringIO(), width=300)
    assert search(experiment, tmp_path, console=again) is not None
    assert again.file.getvalue().count("finished, score") == 2


@pytest.mark.parametrize(("changed", "words"), [({"workers": 0}, "workers=0"), ({"retries": -2}, "retries=-2")])
def test_bounds_are_those_of_a_sweep(changed: dict[str, int], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        search(small(centre=["median"]), tmp_path, **changed)


def test_the_folder_of_a_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / TITLE).write_text("A sweep\n")
    with pytest.raises(UsageError, match=r"holds a sweep.*--out"):
        search(small(centre=["median"]), tmp_path)
    assert not (tmp_path / ASKED).exists()


def test_a_board_shows_settings_that_run_were_stopped_early_or_died(tmp_path: Path) -> None:
    settings = [{"centre": "none"}, {"centre": "mean"}, {"centre": "median"}, {"centre": "none"}]
    jobs = _jobs(small(centre=["median"]).trials, settings, tmp_path)
    board = progress.Board("title", jobs, 2, Console(file=io.StringIO(), width=80, height=30, force_terminal=True))
    told = {"step": 1_000, "score": -123.4, "time_total_s": 2.0}
    stands = [(settings[0], "RUNNING", told), (settings[1], "TERMINATED", told), (settings[2], "ERROR", {})]
    _note(jobs, [*stands, (settings[3], "PENDING", {})], seeds=2)
    with board:
        board()
    shown = board.console.file.getvalue()
    assert [job.state for job in jobs] == ["running", "stopped", "failed", "waiting"]
    assert re.search(r"centre=none +│ running +│ +33% │ +-123.4 │ +1,000 │ +4 s", shown)
    assert jobs[1].words == "others were better than -123.4 at step 1,000"
    assert "0 of 4 finished, 1 running, 1 waiting, 1 failed, 1 stopped, 6 s left" in shown


def test_draws_are_of_one_seed_and_in_range() -> None:
    ranges = {"a": {"from": 0.01, "to": 1.0, "log": True}, "b": {"from": 1, "to": 3}, "c": ["x", "y"]}
    some = drawn(ranges, 300, seed=1)
    assert some == drawn(ranges, 300, seed=1) != drawn(ranges, 300, seed=2)
    assert {one["b"] for one in some} == {1, 2, 3}
    assert {one["c"] for one in some} == {"x", "y"}
    assert all(0.01 <= one["a"] <= 1.0 for one in some)
    assert 100 < sum(one["a"] < 0.1 for one in some) < 200


def test_those_that_were_stopped_early_do_not_win() -> None:
    trial = small(centre=["median"]).trials[0]
    settings = [{"entropy": 0.1}, {"entropy": 0.2}, {"entropy": 0.3}, {"entropy": 0.4}]
    results = [
        {"config": {"setting": settings[0]}, "step": 1_000, "score": -10.0},
        {"config": {"setting": settings[1]}, "step": 3_000, "score": -50.0},
        {"config": {"setting": settings[2]}, "step": 3_000, "score": -50.0},
        {},  # its process died before it could report
    ]
    assert best_of(trial, settings, results)["overrides"] == {"entropy": 0.2}
    assert best_of(trial, settings, results[::-1])["overrides"] == {"entropy": 0.2}  # as a search that goes on has them
    with pytest.raises(UsageError, match="No setting could be trained"):
        best_of(trial, settings, [{}])


@pytest.mark.parametrize(
    "among",
    [
        {"from": 1, "to": 1},
        {"from": 2, "to": 1},
        {"from": 0, "to": 1, "log": True},
        {"low": 1, "to": 2},
        [],
        3,
        {"from": "a", "to": "b"},
    ],
)
def test_ranges_that_are_none_are_refused(among: Any) -> None:
    with pytest.raises(UsageError, match=r"search\.entropy"):
        small(entropy=among)


def test_settings_that_there_are_not_are_refused() -> None:
    with pytest.raises(UsageError, match="entropy"):
        small(entropi=[1, 2])
    with pytest.raises(UsageError, match="one task and one bonus"):
        experiment_of("e", {"tasks": ["maze"], "bonuses": ["none", "rnd"], "search": {"entropy": [0.0, 0.1]}})
