"""What a kill, a full disk, a second process or a diverged agent leaves behind can be gone on from."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
import torch

import ex2
from ex2 import Run, UsageError
from ex2.training import checkpoint, metrics
from ex2.training.config import configure
from ex2.training.loop import Trainer
from ex2.training.run import CHECKPOINT, CONFIG

SMALL = {"num_envs": 4, "rollout_steps": 60, "steps": 960, "threads": 1}


def train(folder, **settings):
    return ex2.train("maze", "none", out=folder, **(SMALL | settings))


def test_a_diverged_agent_is_told_and_the_last_good_checkpoint_stays(tmp_path):
    with pytest.raises(UsageError, match=r"diverged at step \d+.*--actor-of"):
        train(tmp_path / "run", overrides={"algo.learning_rate": 1e30, "checkpoint_every": 1})
    state = checkpoint.load(tmp_path / "run" / CHECKPOINT)
    assert all(torch.isfinite(value).all() for value in state["policy"].values())
    assert train(tmp_path / "next", actor_of=str(tmp_path / "run")).finished


def test_a_checkpoint_is_never_of_numbers_that_are_none():
    trainer = Trainer(configure("maze", "none", num_envs=4, rollout_steps=60))
    with torch.no_grad():
        trainer.policy.critic[-1].bias.fill_(np.nan)
    with pytest.raises(UsageError, match="critic"):
        trainer.state()
    trainer.close()


def test_a_second_training_of_a_folder_is_refused_and_the_first_is_named(tmp_path):
    tried = []

    def again(row):
        if not tried:
            with pytest.raises(UsageError, match=f"is being trained by process {os.getpid()}"):
                ex2.resume(tmp_path / "run")
            tried.append(row)

    result = train(tmp_path / "run", listener=again)
    assert tried
    assert result.finished
    assert ex2.resume(tmp_path / "run").finished  # nobody holds it any more


def test_a_run_killed_before_its_first_checkpoint_begins_anew(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (CONFIG, f"{CONFIG}.draft", f"{CHECKPOINT}.draft"):
        (folder / name).write_text("{")
    assert train(folder).finished
    with pytest.raises(UsageError, match="exists already"):
        train(folder)


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (lambda text: text[:-1], 3),  # the newline of the last row is missing: it may have been cut
        (lambda text: text[: text.rindex(",")], 3),
        (lambda text: text.replace("\n480,", "\n4\x00,"), 3),
        (lambda text: text.replace("\n480,", "\n480,x"), 3),
        (lambda text: text + "\0" * 100, 4),
        (lambda text: text + "96", 4),
        (lambda text: text.partition("\n")[0], 0),
        (lambda text: "", 0),
    ],
)
def test_damaged_metrics_lose_the_rows_that_are_damaged_and_no_others(damage, left, tmp_path):
    train(tmp_path / "run")
    path = tmp_path / "run" / "metrics.csv"
    whole = metrics.read(path)
    assert [row["step"] for row in whole] == [240, 480, 720, 960]
    path.write_bytes(damage(path.read_text().replace("\r\n", "\n")).encode())
    rows = metrics.read(path)
    assert len(rows) == left
    kept = [(row["step"], row["seconds"]) for row in rows]
    assert set(kept) <= {(row["step"], row["seconds"]) for row in whole}
    assert ex2.resume(tmp_path / "run").finished


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def full(self, row):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(metrics.Metrics, "write", full)
        words = f"{tmp_path / 'run'} cannot be written (No space left on device): make it so, then go on with 'ex2 resume"
        with pytest.raises(UsageError, match=re.escape(words)):
            train(tmp_path / "run")
    assert ex2.resume(tmp_path / "run").finished
    assert Run(tmp_path / "run").history()["step"].tolist() == [240, 480, 720, 960]
