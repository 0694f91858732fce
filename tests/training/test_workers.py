"""Several workers give what one process gives, to the bit: also stopped and gone on with, and where one of them is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_rollout import Bad
from test_runs import same, stop_after

import ex2
from ex2 import Run, UsageError
from ex2.cluster import Session
from ex2.training import checkpoint, workers
from ex2.training.config import configure
from ex2.training.loop import Trainer
from ex2.training.policy import Policy, PolicySettings
from ex2.training.rollout import Collector
from ex2.training.run import CHECKPOINT

pytestmark = pytest.mark.xdist_group("ray")  # one session at a time
SMALL = {"num_envs": 5, "rollout_steps": 48, "steps": 1_200, "threads": 1}  # five iterations, episodes crossing them
FEW = {"bonus.min_replay": 300, "algo.batch_size": 60}


@pytest.fixture(scope="module")
def session():
    """One session for all of these tests; starting one takes seconds."""
    started = not ray.is_initialized()
    if started:
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield
    if started:
        ray.shutdown()


def configured(task, **settings):
    return configure(task, "kernel-exemplar", seed=3, overrides=FEW, **SMALL | settings)


def trained(task, iterations, **settings):
    """The state of a training, and the rollout behind it."""
    with contextlib.closing(Trainer(configured(task, **settings))) as trainer:
        for _ in range(iterations):
            trainer.iterate()
        state = trainer.state()
        return state, trainer.collector.collect(settings.get("rollout_steps", 48))


def process_of(remote) -> int:
    return ray.get(remote.worker.__ray_call__.remote(lambda worker: os.getpid()))


def same_rollouts(one, other):
    for name in ("actions", "parameters", "rewards", "log_probs", "ends", "last"):
        same(getattr(one, name), getattr(other, name), name)
    for name in ("obs", "action", "next_obs", "terminated", "truncated"):
        same(getattr(one.batch, name), getattr(other.batch, name), name)
    same(one.observations[:], other.observations[:])
    assert (one.cut is None) == (other.cut is None)
    if one.cut is not None:
        same(one.cut, other.cut)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["cheetah", "freeway", "Pendulum-v1"])
def test_two_workers_are_two_groups(task, session):
    """Who acts for as many environments at once rounds alike; all draws are of the run. First episodes that are cut short;
    stacks; episodes that all end at once, with other returns."""
    settings = {"rollout_steps": 60 if task == "freeway" else 130, "num_envs": 4}
    elsewhere, seen_elsewhere = trained(task, 2, workers=2, groups=1, **settings)
    here, seen_here = trained(task, 2, groups=2, **settings)
    same(elsewhere, here)
    same_rollouts(seen_elsewhere, seen_here)
    assert (seen_here.cut is not None) == (task == "cheetah")
    assert (len(set(here["collector"]["episodes"])) == 4) == (task == "Pendulum-v1")


def test_7_resumed_with_workers_equals_uninterrupted(session, tmp_path):
    """And both a run in one process, with as many groups."""
    for name, settings in (("whole", {"workers": 2}), ("parts", {"workers": 2}), ("one", {"groups": 2})):
        listener = stop_after(2) if name == "parts" else None
        ex2.train("maze", out=tmp_path / name, seed=3, listener=listener, overrides=FEW, **SMALL, **settings)
    assert Run(tmp_path / "parts").config.workers == 2
    assert checkpoint.load(tmp_path / "parts" / CHECKPOINT)["steps"] == 480
    assert ex2.resume(tmp_path / "parts").finished
    whole = checkpoint.load(tmp_path / "whole" / CHECKPOINT)
    same(whole, checkpoint.load(tmp_path / "parts" / CHECKPOINT))
    same(whole, checkpoint.load(tmp_path / "one" / CHECKPOINT))


def test_a_killed_worker_is_not_seen_in_the_training(session):
    """It dies in the middle of an iteration; another one takes its place and its part again."""
    settings = {"rollout_steps": 2_000, "steps": 100_000}
    whole, _ = trained("maze", 2, groups=2, **settings)
    with contextlib.closing(Trainer(configured("maze", workers=2, **settings))) as trainer:
        trainer.iterate()
        timer = threading.Timer(0.05, os.kill, (process_of(trainer.collector.remotes[1]), signal.SIGKILL))
        timer.start()
        with pytest.warns(UserWarning, match="Worker 2 died and was started anew; it goes on from where this iteration began"):
            trainer.iterate()
        assert trainer.collector.deaths == 1
        same(trainer.state(), whole)
    with contextlib.closing(Trainer(configured("maze", workers=2, **settings))) as trainer:
        os.kill(process_of(trainer.collector.remotes[0]), signal.SIGKILL)
        with pytest.warns(UserWarning, match="Worker 1 died"):
            trainer.load_state(whole)
        same(trainer.state(), whole)


def test_episodes_that_cannot_be_saved_begin_anew_and_a_worker_may_not_die_for_ever(session, monkeypatch):
    with contextlib.closing(Trainer(configured("MountainCarContinuous-v0", workers=2, num_envs=4))) as trainer:
        collector = trainer.collector
        trainer.iterate()
        assert not collector.anew
        before = collector.state(False)["returns"]
        os.kill(process_of(collector.remotes[1]), signal.SIGKILL)
        with pytest.warns(UserWarning, match="Worker 2 died and was started anew; it goes on with fresh episodes"):
            rollout = collector.collect(48)
        assert collector.anew
        expected = rollout.rewards.sum(0) + before * [1, 1, 0, 0]
        np.testing.assert_allclose(collector.state(False)["returns"], expected, rtol=1e-5)
        collector.collect(48)
        assert not collector.anew
        monkeypatch.setattr(workers, "LIVES", 1)
        os.kill(process_of(collector.remotes[0]), signal.SIGKILL)
        with pytest.raises(UsageError, match=r"Worker 1 has died 1 times in one iteration \(.*\): its machine may lack memory"):
            trainer.iterate()


def test_what_is_wrong_is_said_as_without_workers(session):
    sentences = []
    for count in (0, 1):
        with pytest.raises(UsageError) as raised:
            Trainer(configure("maze", "none", overrides={"task.colour": "red"}, **SMALL, workers=count))
        sentences.append(str(raised.value))
    assert sentences[0] == sentences[1]
    assert "The task 'maze' does not take these settings" in sentences[0]
    assert Session.users == 0


def test_more_workers_than_environments_are_refused():
    with pytest.raises(UsageError, match="workers=6 is more than there are environments, num_envs=5"):
        configure("maze", **SMALL, workers=6)


def test_a_share_of_the_environments_has_their_numbers():
    env = SyncVectorEnv([Bad, lambda: Bad("reward")], autoreset_mode=AutoresetMode.SAME_STEP)
    policy = Policy(env.single_observation_space, env.single_action_space, PolicySettings())
    collector = Collector([env], policy, seed=0, generator=torch.Generator(), apart=60, first=4, total=6)
    assert collector.cut_in.tolist() == [40, 50]
    with pytest.raises(UsageError, match="The reward of environment 5 at step 4"):
        collector.collect(10)


COMMAND = [sys.executable, "-m", "ex2"]


def marked(mark: str) -> list[int]:
    """Processes that were started with this in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def until(condition, seconds=60.0):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_nothing_is_left_behind_by_ctrl_c(tmp_path):
    """Which goes to every process of a terminal's group."""
    mark, run, metrics = f"mark-{uuid.uuid4()}", tmp_path / "run", tmp_path / "run" / "metrics.csv"
    settings = ["--set", "num_envs=4", "--set", "rollout_steps=60", "--steps", "1000000", "--out", str(run)]
    command = [*COMMAND, "train", "maze", "--bonus", "none", "--workers", "1", *settings]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {"EX2_MARK": mark}
    outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **outputs) as process:
        until(lambda: process.poll() is not None or (metrics.exists() and metrics.stat().st_size > 500))
        assert process.poll() is None, process.communicate()
        assert len(marked(mark)) > 2
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Stopped and saved after" in out
    assert not errors
    assert not marked(mark)
    assert Run(run).load().steps > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--address", "auto"], "--address auto is of a Ray cluster, which this run does not use: it has no --workers."),
        (
            ["--workers", "2", "--address", "127.0.0.1:1"],
            "There is no Ray cluster at '127.0.0.1:1' ([Errno 111] Connection refused): "
            "begin one with 'ray start --head', or leave --address out.",
        ),
    ],
)
def test_an_address_is_of_a_cluster_and_goes_with_workers(options, sentence, tmp_path):
    command = [*COMMAND, "train", "maze", *options, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ex2: {sentence}\n")
    assert not (tmp_path / "run").exists()
