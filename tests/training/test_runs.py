"""Runs: an interrupted and resumed one equals one that never stopped, bit for bit, whatever the bonus."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import ex2
from ex2 import BONUSES, Run, UsageError
from ex2.novelty import novelty_figure
from ex2.training import checkpoint
from ex2.training.config import configure
from ex2.training.loop import Trainer
from ex2.training.run import CHECKPOINT, CONFIG

OUTPUTS = "actor.5.linear.weight"
SMALL = {"num_envs": 4, "rollout_steps": 60, "steps": 1_440, "threads": 1}  # six iterations, episodes crossing them


def small(bonus: str) -> dict:
    settings = configure("maze", bonus).bonus_settings.as_dict()
    few = {"steps": 3, "first_steps": 5, "min_replay": 300, "subsample": 100, "newton_negatives": 64, "replay_capacity": 900}
    return SMALL | {
        "overrides": {f"bonus.{key}": value for key, value in few.items() if key in settings} | {"algo.batch_size": 60}
    }


def stop_after(iterations: int):
    """A listener that presses Ctrl-C in an iteration."""
    count = 0

    def listen(row):
        nonlocal count
        count += 1
        if count == iterations:
            os.kill(os.getpid(), signal.SIGINT)

    return listen


def same(a, b, path=""):
    if isinstance(a, torch.Tensor | np.ndarray):
        assert np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True), path
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            if "seconds" not in str(key):
                same(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), path
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}/{index}")
    else:
        assert a == b, path


@pytest.mark.parametrize("algo", ["trpo", pytest.param("ppo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("bonus", BONUSES)
def test_7_resumed_equals_uninterrupted(bonus, algo, tmp_path):
    whole = ex2.train("maze", bonus, algo=algo, out=tmp_path / "whole", seed=3, **small(bonus))
    part = ex2.train("maze", bonus, algo=algo, out=tmp_path / "parts", seed=3, listener=stop_after(2), **small(bonus))
    assert not part.finished
    assert part.steps == 480
    assert ex2.resume(tmp_path / "parts", listener=stop_after(1)).steps == 720
    end = ex2.resume(tmp_path / "parts")
    assert end.finished
    assert end.score == whole.score
    same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "parts")))
    steps = [Run(tmp_path / name).history()["step"].tolist() for name in ("whole", "parts")]
    assert steps[0] == steps[1] == list(range(240, 1441, 240))


def test_7_resumed_equals_uninterrupted_with_a_stream_of_its_own(tmp_path):
    settings = small("rnd") | {"episodic": False, "entropy": 0.01}
    whole = ex2.train("maze", "rnd+simhash", out=tmp_path / "whole", seed=3, **settings)
    ex2.train("maze", "rnd+simhash", out=tmp_path / "parts", seed=3, listener=stop_after(2), **settings)
    assert ex2.resume(tmp_path / "parts").steps == whole.steps
    same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "parts")))


@pytest.mark.parametrize("num_envs", [pytest.param(1, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("task", ["maze", "cheetah", "gather"])
def test_7_resumed_equals_uninterrupted_on_every_exact_task(task, num_envs, tmp_path):
    settings = small("kernel-exemplar") | {"num_envs": num_envs, "rollout_steps": 240 // num_envs}
    whole = ex2.train(task, out=tmp_path / "whole", seed=3, **settings)
    ex2.train(task, out=tmp_path / "parts", seed=3, listener=stop_after(2), **settings)
    assert ex2.resume(tmp_path / "parts").steps == whole.steps
    same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "parts")))


@pytest.mark.parametrize("algo", ["trpo", "ppo"])
def test_7_resumed_equals_uninterrupted_with_a_standardised_critic(algo, tmp_path):
    """Its moments hold every observation that was seen, and each of them once."""
    settings = small("kernel-exemplar") | {"algo": algo}
    settings["overrides"] = settings["overrides"] | {"policy.standardise": "critic", "policy.critic_hidden": [16]}
    seen, iterate = [], Trainer.iterate

    def watched(trainer):
        collect = trainer.collector.collect

        def kept(steps):
            rollout = collect(steps)
            seen.append(rollout.observations.held.numpy().copy())
            return rollout

        trainer.collector.collect = kept
        row = iterate(trainer)
        trainer.collector.collect = collect
        return row

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "iterate", watched)
        whole = ex2.train("gather", out=tmp_path / "whole", seed=3, **settings)
    ex2.train("gather", out=tmp_path / "parts", seed=3, listener=stop_after(2), **settings)
    assert ex2.resume(tmp_path / "parts").steps == whole.steps
    same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "parts")))
    policy, rows = Run(tmp_path / "whole").load().policy, np.concatenate(seen)
    assert len(rows) == whole.steps
    moments = policy.moments
    body = slice(12)  # of a sensor that hardly ever sees anything, wild numbers are tamed
    np.testing.assert_allclose(moments.mean[body], rows.mean(0, dtype=np.float64)[body], atol=1e-6)
    np.testing.assert_allclose(moments.spread()[body], rows.std(0, dtype=np.float64)[body], rtol=1e-4)
    assert policy.critic[0](torch.as_tensor(rows)).std(0)[:12].min() > 0.9
    assert (policy.critic[0](torch.full((1, 33), 1e6)) == 5.0).all()
    assert policy.critic[1].out_features == 16


@pytest.mark.slow
@pytest.mark.parametrize("task", ["doom", "freeway"])
def test_games_go_on_with_fresh_episodes(task, tmp_path):
    """What was learned and remembered goes on; the same run stopped at the same place goes on in the same way."""
    settings = small("kernel-exemplar") | {"steps": 720}
    for name in ("one", "two"):
        ex2.train(task, out=tmp_path / name, seed=3, listener=stop_after(2), **settings)
        before = Run(tmp_path / name).load()
        assert before.steps == 480
        assert len(before.bonus.replay) == 480
        ends = ex2.resume(tmp_path / name)
        assert ends.finished
    same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("one", "two")))


def test_without_reward_and_bonus_nothing_is_learned(tmp_path):
    """A critic that begins at 0 gives advantages of 0: plain TRPO stays where it is, instead of following noise."""
    settings = {"num_envs": 4, "rollout_steps": 60, "steps": 240}
    policies = []
    for name, steps in (("one", 240), ("three", 720)):
        ex2.train("cheetah", "none", out=tmp_path / name, seed=3, **(settings | {"steps": steps}))
        found = checkpoint.load(tmp_path / name / CHECKPOINT)["policy"]
        policies.append({key: value for key, value in found.items() if "moments" not in key})
    same(*policies)
    moved = ex2.train("cheetah", "none", seed=3, out=tmp_path / "other", overrides={"policy.zero_critic": False}, **settings)
    other = checkpoint.load(moved.folder / CHECKPOINT)["policy"]
    assert not torch.equal(other[OUTPUTS], policies[0][OUTPUTS])


def test_a_killed_run_drops_what_no_checkpoint_holds(tmp_path):
    """Metrics written after the last checkpoint are not counted twice."""
    settings = small("histogram")
    settings["overrides"]["checkpoint_every"] = 2

    def crash(row):
        if row["step"] == 720:
            raise MemoryError("as if killed")

    with pytest.raises(MemoryError):
        ex2.train("maze", "histogram", out=tmp_path / "run", listener=crash, **settings)
    assert checkpoint.load(tmp_path / "run" / CHECKPOINT)["steps"] == 480
    ex2.resume(tmp_path / "run")
    assert Run(tmp_path / "run").history()["step"].tolist() == list(range(240, 1441, 240))


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["trpo", "ppo"])
@pytest.mark.parametrize("task", ["maze", "cheetah", "gather"])
def test_7_killed_and_resumed_equals_uninterrupted(task, algo, tmp_path):
    """kill -9 in the middle of a run, and of the checkpoint that may be under way."""
    small = ["--set", "num_envs=4", "--set", "rollout_steps=60", "--set", "bonus.min_replay=300", "--set", "checkpoint_every=1"]
    command = [sys.executable, "-m", "ex2", "train", task, "--algo", algo, "--seed", "3", "--steps", "4800", *small]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    with subprocess.Popen([*command, "--out", str(tmp_path / "killed")], stdout=subprocess.DEVNULL) as process:
        metrics = tmp_path / "killed" / "metrics.csv"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 6:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert checkpoint.load(tmp_path / "killed" / CHECKPOINT)["steps"] < 4_800
    assert ex2.resume(tmp_path / "killed").finished
    same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "killed")))


def test_a_run_killed_before_its_first_checkpoint_can_go_on(tmp_path):
    def crash(row):
        raise MemoryError("as if killed")

    with pytest.raises(MemoryError):
        ex2.train("maze", "histogram", out=tmp_path / "run", seed=5, listener=crash, **small("histogram"))
    ex2.resume(tmp_path / "run")
    ex2.train("maze", "histogram", out=tmp_path / "whole", seed=5, **small("histogram"))
    same(*(checkpoint.load(tmp_path / name / CHECKPOINT) for name in ("whole", "run")))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="PyTorch sees no GPU"):
        ex2.train("maze", "none", device="cuda", out=tmp_path / "run")


def test_seeds_decide_everything(tmp_path):
    scores = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        ex2.train("maze", "none", out=tmp_path / name, seed=seed, **small("none"))
        scores.append(checkpoint.load(tmp_path / name / CHECKPOINT)["policy"][OUTPUTS])
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])


def test_a_run_leaves_what_it_should(tmp_path):
    result = ex2.train("maze", "k-exemplar", out=tmp_path / "run", **small("k-exemplar"))
    assert {file.name for file in result.folder.iterdir()} == {
        "config.json", "metrics.csv", CHECKPOINT, f"{CHECKPOINT}.previous", "summary.json", "snapshots.npz", "tensorboard"
    }  # fmt: skip
    assert json.loads((result.folder / "config.json").read_text())["bonus_settings"]["k"] == 1
    last = {name: column[-1] for name, column in Run(result.folder).history().items()}
    wanted = {"step", "score", "steps_per_second", "bonus/mean", "bonus/weight", "bonus/accuracy_positive", "train/std"}
    assert wanted <= last.keys()
    assert -201 <= last["score"] <= 0  # the environment's own return: no bonus in it
    assert 0 < result.bonus_share < 1
    assert any(path.name.startswith("events") for path in (result.folder / "tensorboard").iterdir())
    returns = ex2.evaluate(result.folder, episodes=3)
    assert len(returns) == 3
    assert returns == ex2.evaluate(result.folder, episodes=3)


def test_a_folder_in_use_is_left_alone(tmp_path):
    ex2.train("maze", "none", out=tmp_path / "run", **(small("none") | {"steps": 240}))
    before = (tmp_path / "run" / "metrics.csv").read_text()
    with pytest.raises(UsageError, match="exists already"):
        ex2.train("maze", "none", out=tmp_path / "run", **small("none"))
    assert (tmp_path / "run" / "metrics.csv").read_text() == before


def test_a_damaged_or_foreign_checkpoint_is_named_and_left_alone(tmp_path):
    ex2.train("maze", "none", out=tmp_path / "run", **(small("none") | {"steps": 240}))
    path = tmp_path / "run" / CHECKPOINT
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="damaged"):
        ex2.resume(tmp_path / "run")
    assert len(path.read_bytes()) == len(whole) // 2
    checkpoint.save(path, {"policy": {}})
    with pytest.raises(UsageError, match="does not belong"):
        ex2.resume(tmp_path / "run")
    with pytest.raises(UsageError, match="is not a run"):
        ex2.resume(tmp_path)


def test_a_disk_that_fills_stops_the_run_with_its_last_checkpoint(tmp_path):
    """A directory in the draft's place makes writing fail, for any user; what was saved before stays."""
    settings = small("histogram")
    settings["overrides"]["checkpoint_every"] = 1
    folder = tmp_path / "run"

    def fill(row):
        while row["step"] == 480 and not (folder / (CHECKPOINT + ".draft")).is_dir():
            with contextlib.suppress(FileExistsError):  # while a checkpoint is being written
                (folder / (CHECKPOINT + ".draft")).mkdir()

    with pytest.raises(checkpoint.CheckpointError, match="the last good checkpoint is still there"):
        ex2.train("maze", "histogram", out=folder, listener=fill, **settings)
    assert checkpoint.load(folder / CHECKPOINT)["steps"] in (240, 480)  # which was perhaps still being written
    (folder / (CHECKPOINT + ".draft")).rmdir()
    assert ex2.resume(folder).finished


def test_outside_the_main_thread(tmp_path):
    results = []
    settings = small("none") | {"steps": 240}
    thread = threading.Thread(target=lambda: results.append(ex2.train("maze", "none", out=tmp_path / "run", **settings)))
    thread.start()
    thread.join()
    assert results[0].finished


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "mazes"}, "did you mean 'maze'"),
        ({"bonus": "k_exemplar"}, "did you mean 'k-exemplar'"),
        ({"algo": "trop"}, "did you mean 'trpo'"),
        ({"bonus": "amortized", "overrides": {"bonus.klweight": 1}}, "did you mean 'kl_weight'"),
        ({"overrides": {"bonnus.k": 1}}, "did you mean 'bonus'"),
        ({"overrides": {"numenvs": 1}}, "did you mean 'num_envs'"),
        ({"overrides": {"weight.begin": 1}}, "setting of the weight 'begin'"),
        ({"steps": 0}, "at least 1"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"overrides": {"algo.no_such": 1}}, "setting of the trpo 'no_such'"),
        ({"overrides": {"policy.activation": "rellu"}}, "did you mean 'relu'"),
        ({"overrides": {"policy.hiden": [8]}}, "did you mean 'hidden'"),
        ({"overrides": {"policy.hidden": 8}}, "must be tuple[int, ...]"),
        ({"overrides": {"centre": "midian"}}, "did you mean 'median'"),
        ({"overrides": {"weight": 0.5}}, "no setting 'weight'"),
        ({"overrides": {"weight.start": "abc"}}, "must be float"),
        ({"overrides": {"algo.gamma": "abc"}}, "must be float"),
        ({"overrides": {"algo.batch_size": 0}, "algo": "ppo"}, "batch_size=0 must be at least 1"),
        ({"overrides": {"algo.gamma": 2.0}}, "gamma=2.0 must be at least 0 and at most 1"),
        ({"overrides": {"algo.learning_rate": -1.0}}, "learning_rate=-1.0 must be above 0"),
        ({"overrides": {"weight.start": -1.0}}, "start=-1.0 must be at least 0"),
        ({"overrides": {"groups": 3}}, "groups=3 must be at least 1 and at most 2"),
        ({"overrides": {"num_envs": 2.5}}, "must be int"),
        ({"bonus": "amortized", "overrides": {"bonus.pairs": 0}}, "pairs=0"),
        ({"overrides": {"bonus.replay_capacity": "many"}}, "must be int"),
        ({"bonus": "k-exemplar", "overrides": {"bonus.k": "abc"}}, "must be int | None"),
        ({"threads": 0}, "at least 1"),
        ({"device": "gpu"}, "no device 'gpu'"),
        ({"device": "meta"}, "use cpu, cuda"),
        ({"task": "cheetah", "bonus": "histogram"}, "A histogram needs bounded spaces"),
        ({"task": "NoSuchEnv-v0"}, "no task or environment 'NoSuchEnv-v0'"),
        ({"task": "venture", "overrides": {"task.stiky": 0.25}}, "does not take these settings"),
        ({"task": "doom", "overrides": {"policy.convolutions": [[16, 40, 2]]}}, "too small for the convolutions"),
        ({"overrides": {"policy.critic_hidden": [0]}}, "critic_hidden=(0,)"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_written(settings, words, tmp_path):
    with pytest.raises(UsageError, match=re.escape(words)):
        ex2.train(**({"task": "maze", "out": tmp_path / "run"} | settings))
    assert not (tmp_path / "run").exists()


def test_a_run_may_begin_with_the_actor_of_another(tmp_path):
    """With its actor and nothing else; and without the folder, once it has begun."""
    settings = {"out": tmp_path / "second", "actor_of": str(tmp_path / "first")}
    ex2.train("maze", "rnd", out=tmp_path / "first", seed=3, **small("rnd"))
    ex2.train("maze", "none", **settings, seed=4, listener=stop_after(1), **small("none"))
    before, begun, fresh = (
        checkpoint.load(tmp_path / "first" / CHECKPOINT)["policy"],
        Trainer(configure("maze", "none", seed=4, **small("none"))).policy.state_dict(),
        Trainer(configure("maze", "none", seed=4, **small("none"))).policy,
    )
    fresh.take_actor(before, "first")
    for name, value in fresh.state_dict().items():
        taken = name.startswith("actor.") or "moments" in name  # by which the actor sees
        assert torch.equal(value, before[name] if taken else begun[name]), name
    shutil.rmtree(tmp_path / "first")
    assert ex2.resume(tmp_path / "second").finished
    with pytest.raises(UsageError, match="first"):
        ex2.train("maze", "none", **settings | {"out": tmp_path / "third"}, **small("none"))
    with pytest.raises(UsageError, match="second does not fit"):
        ex2.train("cheetah", "none", out=tmp_path / "third", actor_of=str(tmp_path / "second"), **small("none"))
    assert not (tmp_path / "third").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_of_a_gpu_is_opened_without_one(tmp_path):
    ex2.train("maze", "rnd", out=tmp_path / "run", seed=3, listener=stop_after(1), **small("rnd"))
    config = json.loads((tmp_path / "run" / CONFIG).read_text())
    (tmp_path / "run" / CONFIG).write_text(json.dumps(config | {"device": "cuda"}))
    with pytest.warns(UserWarning, match="opened on the CPU"):
        assert len(ex2.evaluate(tmp_path / "run", episodes=2)) == 2
    with pytest.warns(UserWarning, match="opened on the CPU"):
        assert ex2.resume(tmp_path / "run").finished


@pytest.mark.parametrize(
    ("task", "steps", "ran"), [pytest.param("freeway", 400, 400, marks=pytest.mark.slow), ("maze", 4_130, 4_140)]
)
def test_a_run_is_as_long_as_it_was_asked_to_be(task, steps, ran, tmp_path):
    """To the next step of all its environments, however long an iteration of its preset is."""
    result = ex2.train(task, "none", steps=steps, out=tmp_path / "run")
    assert result.finished
    assert result.steps == ran


def test_any_gymnasium_environment(tmp_path):
    """Vectors, numbers, dicts; with a preset that its spaces suggest, and every bonus at its defaults."""
    for env_id, bonus in (("CartPole-v1", "kernel-exemplar"), ("FrozenLake-v1", "histogram"), ("Pendulum-v1", "rnd+icm")):
        result = ex2.train(env_id, bonus, steps=320, out=tmp_path / env_id, rollout_steps=10)
        assert result.steps == 320
        loaded = Run(tmp_path / env_id).load()
        assert loaded.steps == 320
        assert len(ex2.evaluate(result.folder, episodes=2)) == 2
    with pytest.raises(UsageError, match="cannot be drawn"):
        ex2.train("ex2-tests/Bits-v0", "none", steps=320, out=tmp_path / "bits")


class Bits(gymnasium.Env):
    """Actions that no policy here draws, and observations in a Dict."""

    observation_space = gymnasium.spaces.Dict(
        {"place": gymnasium.spaces.Box(-1, 1, (2,)), "room": gymnasium.spaces.Discrete(3)}
    )
    action_space = spaces.MultiBinary(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


class Rooms(Bits):
    action_space = spaces.Discrete(2)


gymnasium.register("ex2-tests/Bits-v0", Bits, max_episode_steps=20)
gymnasium.register("ex2-tests/Rooms-v0", Rooms, max_episode_steps=20)


def test_dict_observations_become_one_vector(tmp_path):
    result = ex2.train("ex2-tests/Rooms-v0", steps=320, out=tmp_path / "run", rollout_steps=10)
    assert Run(result.folder).load().policy.observation_space.shape == (5,)


def test_a_run_is_opened_without_its_environments(tmp_path, monkeypatch):
    ex2.train("maze", "rnd", out=tmp_path / "run", seed=3, **small("rnd"))
    monkeypatch.setattr("ex2.training.environments.environments", lambda *_: pytest.fail("no environment is needed"))
    run = Run(tmp_path / "run")
    loaded = run.load()
    assert run.config.bonus == "rnd"
    assert run.history()["step"][-1] == loaded.steps == 1_440
    action = loaded.policy.act(np.zeros((3, 2), np.float32), torch.Generator().manual_seed(0))
    assert action.shape == (3, 2)
    state = checkpoint.load(tmp_path / "run" / CHECKPOINT)
    same(loaded.bonus.state_dict(), state["bonus"])
    same(loaded.policy.state_dict(), state["policy"])


class Odd(gymnasium.Env):
    """Actions from 2 on, rooms from 1 on, and no end."""

    observation_space = spaces.MultiDiscrete([3, 4], start=[1, 5])
    action_space = spaces.Discrete(3, start=2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, False, False, {}


gymnasium.register("ex2-tests/Odd-v0", Odd)


@pytest.mark.parametrize("bonus", ["icm", "kernel-exemplar"])
def test_spaces_that_begin_elsewhere_and_episodes_without_an_end(bonus, tmp_path):
    """A thousand steps end an episode that nothing else would."""
    overrides = {"bonus.inputs": "state-action"} if bonus == "kernel-exemplar" else {}
    result = ex2.train("ex2-tests/Odd-v0", bonus, steps=640, out=tmp_path / "run", rollout_steps=20, overrides=overrides)
    assert result.steps == 640
    assert ex2.evaluate(result.folder, episodes=1) == [0.0]
    target = novelty_figure(result.folder)
    assert target.exists()


def test_an_environment_by_its_module(tmp_path, monkeypatch):
    (tmp_path / "odd_worlds.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Twin-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = ex2.train("odd_worlds:Twin-v0", "none", steps=320, out=tmp_path / "run", rollout_steps=20)
    assert result.steps == 320
    with pytest.raises(UsageError, match="'no_worlds'"):
        ex2.train("no_worlds:Twin-v0", "none", out=tmp_path / "other")


def test_a_session_of_no_steps(tmp_path):
    ex2.train("maze", "none", out=tmp_path / "run", listener=stop_after(1), **small("none"))
    assert ex2.resume(tmp_path / "run", steps=0).steps == 240
