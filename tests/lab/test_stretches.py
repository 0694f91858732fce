"""benchmarks/atari.py: runs in stretches, carried from machine to machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import atari
import ex2
from ex2.lab.results import read_results

SMALL = 'title = "small"\ntasks = ["maze"]\nbonuses = ["histogram", "none"]\nset = { num_envs = 4, rollout_steps = 50 }\n'


@pytest.mark.slow
def test_a_run_goes_on_on_another_machine_and_its_curve_has_no_seam(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(f"steps = 5_000_000\n{SMALL}")
    said = ["--experiment", str(tmp_path / "small.toml"), "--at-once", "1", "--only", "maze-histogram-0"]
    said += ["--minutes", "0.12", "--carry", str(tmp_path / "carried"), "--out", str(tmp_path / "results")]
    assert atari.main([*said, "--runs", str(tmp_path / "here")]) == 0
    before = read_results(tmp_path / "results").scores["step"].item()
    assert atari.main([*said, "--runs", str(tmp_path / "there")]) == 0
    steps = ex2.Run(tmp_path / "there" / "maze-histogram-0").history()["step"]
    np.testing.assert_array_equal(steps, np.arange(200, steps[-1] + 1, 200))
    assert steps[-1] > before > 0
    after = read_results(tmp_path / "results").scores
    assert after["step"].tolist() == [steps[-1]]
    assert (
        after["command"].item()
        == "ex2 train maze --bonus histogram --seed 0 --steps 5000000 --set num_envs=4 --set rollout_steps=50"
    )


@pytest.mark.slow
def test_all_trials_are_run_to_their_end_and_not_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.toml").write_text(f"steps = 400\n{SMALL}")
    said = ["--experiment", str(tmp_path / "small.toml"), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    assert atari.main(said) == 0
    assert sorted(read_results(tmp_path / "results").scores["arm"]) == ["histogram", "none"]
    touched = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("checkpoint.safetensors")}
    assert len(touched) == 2
    assert atari.main(said) == 0
    assert touched == {file: file.stat().st_mtime_ns for file in touched}


def test_a_file_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(bytes(4_000))
    assert atari.pack(tmp_path / "run", tmp_path / "run.tar") is None
    monkeypatch.setattr(atari, "LIMIT", 2_000)
    assert "replay_capacity" in (atari.pack(tmp_path / "run", tmp_path / "run.tar") or "")


def test_what_has_come_further_is_gone_on_with(tmp_path: Path) -> None:
    for name, step in (("old", 200), ("new", 400)):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "checkpoint.safetensors").write_text(name)
        (tmp_path / name / "run" / "metrics.csv").write_text(f"step,score\n{step},0\n")
        (tmp_path / f"carried-{name}").mkdir()
        atari.pack(tmp_path / name / "run", tmp_path / f"carried-{name}" / "run.tar")
    atari.unpack(tmp_path / "carried-old", tmp_path / "new")
    atari.unpack(tmp_path / "carried-new", tmp_path / "old")
    assert [(tmp_path / name / "run" / "checkpoint.safetensors").read_text() for name in ("new", "old")] == ["new", "new"]


def test_a_trial_that_there_is_not_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    with pytest.raises(SystemExit):
        atari.main(["--experiment", str(tmp_path / "small.toml"), "--only", "maze-histgram-0"])
    assert "maze-histgram-0" in capsys.readouterr().err
