"""Snapshots: they count where agents were, go on with a run that was stopped, and change nothing in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_runs import same, small, stop_after

import ex2
from ex2 import UsageError
from ex2.plots import run_figure
from ex2.tasks import task_map
from ex2.training import checkpoint
from ex2.training.run import CHECKPOINT
from ex2.training.snapshots import SNAPSHOTS, Visits, read_snapshots


def test_visits_are_counted_where_agents_were() -> None:
    arena = task_map("maze")
    assert arena is not None
    visits = Visits(arena)
    places = np.array([[[-0.299, -0.299], [0.299, -0.299]], [[-0.299, -0.299], [5.0, 5.0]]])  # the last one is beyond
    visits.add(places, np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert visits.counts.sum() == 4
    assert (visits.counts[0, 0], visits.counts[0, 31], visits.counts[31, 31]) == (2, 1, 1)  # y first
    assert (visits.paid[0, 0], visits.paid[0, 31]) == (4.0, 2.0)


@pytest.mark.parametrize("bonus", ["kernel-exemplar", "none", "rnd"])
def test_a_run_with_snapshots_equals_one_without(bonus: str, tmp_path: Path) -> None:
    settings = small(bonus)
    ex2.train("maze", bonus, out=tmp_path / "with", seed=3, **settings)
    settings["overrides"] = settings["overrides"] | {"snapshots": 0}
    ex2.train("maze", bonus, out=tmp_path / "without", seed=3, **settings)
    ours, other = (checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("with", "without"))
    assert ours.pop("visits") is not None
    assert other.pop("visits") is None
    same(ours, other)
    assert not (tmp_path / "without" / SNAPSHOTS).exists()
    found = read_snapshots(tmp_path / "with")
    assert found is not None
    assert found["steps"].tolist() == list(range(240, 1441, 240))
    assert (found["visits"].sum(axis=(1, 2)) == 240).all()
    assert np.isfinite(found["density"]).any() == (bonus == "kernel-exemplar")
    if bonus == "rnd":
        assert (np.isfinite(found["bonus"]) == (found["visits"] > 0)).all()


@pytest.mark.parametrize("task", ["maze", "sparse-maze", "cheetah"])
def test_a_resumed_run_has_the_same_snapshots(task: str, tmp_path: Path) -> None:
    """The checkpoint is of iteration 3 of 6, a kill after the fifth: what came after the third is dropped and made again."""
    settings = small("kernel-exemplar")
    settings["overrides"] = settings["overrides"] | {"snapshots": 3, "checkpoint_every": 3}
    ex2.train(task, out=tmp_path / "whole", seed=3, **settings)
    ex2.train(task, out=tmp_path / "parts", seed=3, listener=stop_after(3), **settings)
    early = (tmp_path / "parts" / SNAPSHOTS).read_bytes()
    ex2.resume(tmp_path / "parts", listener=stop_after(2))
    late = (tmp_path / "parts" / SNAPSHOTS).read_bytes()
    assert len(early) < len(late)
    (tmp_path / "parts" / CHECKPOINT).unlink()
    (tmp_path / "parts" / f"{CHECKPOINT}.previous").rename(tmp_path / "parts" / CHECKPOINT)
    ex2.resume(tmp_path / "parts")
    whole, parts = (read_snapshots(tmp_path / name) for name in ("whole", "parts"))
    assert whole is not None
    assert whole["steps"].tolist() == [480, 960, 1440]
    same(whole, parts)


def test_a_damaged_file_is_named_and_does_not_stop_a_run(tmp_path: Path) -> None:
    ex2.train("maze", "none", out=tmp_path / "run", listener=stop_after(2), **small("none"))
    path = tmp_path / "run" / SNAPSHOTS
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(UsageError, match=SNAPSHOTS):
        read_snapshots(tmp_path / "run")
    assert ex2.resume(tmp_path / "run").finished
    found = read_snapshots(tmp_path / "run")
    assert found is not None
    assert found["steps"][0] == 720
    assert read_snapshots(tmp_path) is None


def test_whatever_is_wrong_with_a_file_is_one_sentence(tmp_path: Path) -> None:
    ex2.train("cheetah", "none", out=tmp_path / "run", **small("none"))
    whole, random = (tmp_path / "run" / SNAPSHOTS).read_bytes(), np.random.default_rng(0)
    said = []
    for number in range(300):
        damaged = bytearray(whole[: random.integers(1, len(whole))] if number % 3 == 0 else whole)
        reach = min(len(damaged), 300) if number % 3 == 1 else len(damaged)  # headers, or anywhere
        for place in random.integers(reach, size=random.integers(1, 20)):
            damaged[place] = random.integers(256)
        (tmp_path / SNAPSHOTS).write_bytes(damaged)
        try:
            read_snapshots(tmp_path)
        except UsageError as error:
            said.append(str(error))
    assert len(said) > 200
    assert all(len(words.splitlines()) == 1 for words in said)


@pytest.mark.parametrize(("task", "bonus"), [("cheetah", "kernel-exemplar"), ("maze", "none"), ("CartPole-v1", "rnd")])
def test_a_picture_of_every_kind_of_map(task: str, bonus: str, tmp_path: Path) -> None:
    settings = small(bonus) | {"overrides": {}} if task == "CartPole-v1" else small(bonus)
    ex2.train(task, bonus, out=tmp_path / "run", **settings)
    assert run_figure(tmp_path / "run").stat().st_size > 10_000
