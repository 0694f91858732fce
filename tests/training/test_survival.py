"""What a kill, a full disk, a second process or a diverged agent leaves behind can be gone on from."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ex2
from ex2 import Run, UsageError
from ex2.training import checkpoint, lock, metrics, run
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


def test_a_training_that_has_just_ended_is_no_obstacle(tmp_path, monkeypatch):
    """It held the lock, and has let go by the time that its process is looked for."""
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    monkeypatch.setattr(lock, "_holder", lambda _: os.close(handle) or "")
    with lock.locked(tmp_path):
        pass


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
        (lambda text: text.replace("\n480,", "\n99999,"), 3),
        (lambda text: text.replace("\n720,", "\n7,"), 3),
        (lambda text: text.replace("\n480,", "\ninf,"), 3),
        (lambda text: text.replace("\n480,", "\nnan,"), 3),
        (lambda text: text + text[text.index("\n240,") + 1 :], 4),  # all rows twice
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


def test_the_checkpoint_before_a_damaged_one_is_offered_and_gone_on_from(tmp_path):
    whole = train(tmp_path / "whole", checkpoint_every=1)
    train(tmp_path / "run", checkpoint_every=1)
    path = tmp_path / "run" / CHECKPOINT
    with pytest.raises(UsageError, match=r"of step 960, is whole: leave --previous out"):
        ex2.resume(tmp_path / "run", previous=True)
    for damage in (lambda: path.write_bytes(path.read_bytes()[:-1]), path.unlink):
        damage()
        offer = rf"of step 720, is whole; go on from there with 'ex2 resume {tmp_path / 'run'} --previous'"
        for command in (ex2.resume, ex2.evaluate, lambda folder: Run(folder).load()):
            with pytest.raises(UsageError, match=offer):
                command(tmp_path / "run")
        assert ex2.resume(tmp_path / "run", previous=True).score == whole.score
        assert Run(tmp_path / "run").history()["step"].tolist() == [240, 480, 720, 960]
        states = [checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "run")]
        assert states[0]["steps"] == states[1]["steps"]
        for name, value in states[0]["policy"].items():
            assert torch.equal(value, states[1]["policy"][name]), name
    for file in (path, checkpoint.previous(path)):
        file.write_bytes(b"")
    for previous in (False, True):
        with pytest.raises(UsageError, match="damaged") as error:
            ex2.resume(tmp_path / "run", previous=previous)
        assert "--previous" not in str(error.value)


def test_what_a_run_leaves_may_be_read_by_whom_the_umask_lets(tmp_path):
    before = os.umask(0o027)
    try:
        train(tmp_path / "run", checkpoint_every=1)
    finally:
        os.umask(before)
    found = {file.name: oct(file.stat().st_mode & 0o777) for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert set(found.values()) == {"0o640"}, found


def test_a_run_goes_on_without_its_metrics(tmp_path):
    train(tmp_path / "run", steps=960)
    (tmp_path / "run" / "metrics.csv").unlink()
    assert Run(tmp_path / "run").history() == {}
    assert ex2.resume(tmp_path / "run").finished
    (tmp_path / "run" / "metrics.csv").unlink()
    (tmp_path / "run" / "metrics.csv").mkdir()
    with pytest.raises(UsageError, match=r"metrics.csv cannot be read"):
        ex2.resume(tmp_path / "run")


def test_a_folder_that_was_used_meanwhile_is_left_alone(tmp_path, monkeypatch):
    """Two trainings were asked for at once, and the first has ended by the time that the second has its environments."""
    built = run.Trainer

    def slow(config, address=None):
        monkeypatch.setattr(run, "Trainer", built)
        train(tmp_path / "run", seed=1)
        return built(config, address)

    monkeypatch.setattr(run, "Trainer", slow)
    with pytest.raises(UsageError, match="exists already"):
        train(tmp_path / "run", seed=2)
    assert Run(tmp_path / "run").config.seed == 1


@pytest.mark.parametrize("part", ["policy", "algorithm", "bonus"])
def test_nothing_that_is_learned_is_saved_where_it_is_not_finite(part):
    trainer = Trainer(configure("maze", "rnd", num_envs=4, rollout_steps=60))
    trainer.iterate()
    state = trainer.state()
    numbers = {
        "policy": trainer.policy.critic[-1].bias.data,
        "algorithm": next(iter(state["algorithm"]["optimizer"].values()))["exp_avg_sq"],
        "bonus": next(value for value in trainer.bonus.networks.parameters()).data,
    }[part]
    numbers.fill_(np.inf)
    if part == "algorithm":
        trainer.algorithm.load_state_dict(state["algorithm"])
    with pytest.raises(UsageError, match=rf"diverged at step 240: {part}/"):
        trainer.state()
    trainer.close()


def test_a_loss_that_is_not_finite_is_told(tmp_path):
    trainer = Trainer(configure("maze", "none", num_envs=4, rollout_steps=60))
    update = trainer.algorithm.update
    trainer.algorithm.update = lambda *given: update(*given) | {"train/loss": float("nan")}
    with pytest.raises(UsageError, match="diverged at step 240: train/loss is no longer finite"):
        trainer.iterate()
    trainer.close()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("threads", 10**9),
        ("rollout_steps", 10**11),
        ("seed", 2**64),
        ("policy.hidden", [10**9]),
        ("algo.n_critic_updates", 2**31),
    ],
)
def test_what_could_not_run_is_refused(key, value):
    given = {key: value} if key == "seed" else {"overrides": {key: value}}
    with pytest.raises(UsageError, match=key.rpartition(".")[2]):
        configure("maze", "none", **given)
    with pytest.raises(UsageError, match="10\\^8 steps"):
        configure("maze", "none", num_envs=1_000, rollout_steps=1_000_000)


def test_a_name_that_cannot_be_a_folder_is_refused(tmp_path):
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(UsageError, match="choose another --out"):
            train(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be read"):
        train(tmp_path / "run", actor_of="a\0b")


@pytest.mark.slow
def test_a_reduced_campaign_finds_nothing():
    """benchmarks/survival.py, a twentieth of it: it forks, which it should not from here."""
    script = Path(__file__).parents[2] / "benchmarks" / "survival.py"
    parts = ["configurations", "rows", "checkpoints", "kills", "commands", "twice", "disks", "modes"]
    answer = subprocess.run([sys.executable, script, *parts, "--times", "0.05", "--seed", "7"], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


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
