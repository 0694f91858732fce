"""Sweeps on a real Ray: whatever happens to a process, every trial is there in the end, once, as if nothing had happened."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import ex2
from ex2 import UsageError
from ex2.cli import main
from ex2.cluster import connected
from ex2.lab.experiment import Experiment, experiment_of
from ex2.lab.progress import Job
from ex2.lab.results import STORE, read_results
from ex2.lab.sweep import sweep
from ex2.tasks.cores import LIMIT, cores
from ex2.training.lock import Locked, locked
from ex2.training.run import CHECKPOINT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]  # one session, in one process
SMALL = {"num_envs": 4, "rollout_steps": 50, "algo.batch_size": 50, "checkpoint_every": 2}
STEPS = 2_400  # twelve iterations


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """One Ray for all sweeps of this process."""
    with connected():
        yield


def small(steps: int = STEPS, **changed: Any) -> Experiment:
    """Two trials, of the same seed, with a bonus and without."""
    values = {"tasks": ["maze"], "seeds": [3], "steps": steps, "set": SMALL}
    values["arms"] = {"bonus": {"set": {"bonus.min_replay": 300}}, "plain": {"bonuses": ["none"]}}
    return experiment_of("small", values | changed)


def rows_of(folder: Path) -> dict[str, np.ndarray]:
    """What a run has reported, but for times."""
    return {name: column for name, column in ex2.Run(folder).history().items() if "second" not in name}


def same(folder: Path, other: Path) -> None:
    a, b = rows_of(folder), rows_of(other)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def states(jobs: list[Job]) -> list[str]:
    return [job.state for job in jobs]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that nothing happened to."""
    out = tmp_path_factory.mktemp("whole")
    assert states(sweep(small(), out, console=quiet())) == ["finished", "finished"]
    return out


def wait_for(condition: Any, seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)
    return found


def trainer_of(folder: Path) -> int | None:
    """The process that holds a run's folder."""
    if (folder / "metrics.csv").exists():
        try:
            with locked(folder):
                pass
        except Locked as error:
            return int(re.search(r"process (\d+)", str(error))[1])
    return None


def test_a_sweep_of_two_trials(whole: Path, tmp_path: Path) -> None:
    results = read_results(whole / STORE)
    assert sorted(results.scores["arm"]) == ["bonus", "plain"]
    assert set(results.scores["step"]) == {STEPS}
    row = results.scores.set_index("arm").loc["bonus"]
    assert (row["experiment"], row["seed"], row["steps"], row["solved_at"]) == ("small", 3, STEPS, -70)
    assert json.loads(row["overrides"]) == SMALL | {"bonus.min_replay": 300}
    assert row["commit"]
    words = row["command"].split()
    assert words[:2] == ["ex2", "train"]
    assert main([*words[1:], "--out", str(tmp_path / "by-hand")]) == 0
    same(whole / "maze-bonus-3", tmp_path / "by-hand")


def test_a_killed_worker_costs_nothing(whole: Path, tmp_path: Path) -> None:
    folder, killed = tmp_path / "maze-bonus-3", list[int]()

    def kill() -> None:
        for how in (signal.SIGKILL, signal.SIGTERM):  # the second asks it to stop, as a machine does that goes away
            wait_for(lambda: (folder / f"{CHECKPOINT}.previous").exists() or killed)
            process = wait_for(lambda: next((p for p in [trainer_of(folder)] if p not in (None, *killed)), None))
            os.kill(process, how)
            killed.append(process)

    killer = threading.Thread(target=kill)
    killer.start()
    jobs = sweep(small(), tmp_path, console=(console := quiet()))
    killer.join()
    assert len(killed) == 2
    assert console.file.getvalue().count("maze-bonus-3: its process died") == 2
    assert states(jobs) == ["finished", "finished"]
    assert len(list((tmp_path / STORE).glob("*.parquet"))) == len(read_results(tmp_path / STORE).scores) == 2
    for name in ("maze-bonus-3", "maze-plain-3"):
        same(tmp_path / name, whole / name)


def test_a_trial_that_dies_too_often_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "maze-bonus-3"
    killer = threading.Thread(target=lambda: os.kill(wait_for(lambda: trainer_of(folder)), signal.SIGKILL))
    killer.start()
    jobs = sweep(small(steps=8_000), tmp_path, retries=0, workers=1, console=quiet())
    killer.join()
    assert states(jobs) == ["failed", "finished"]
    assert "its process died once without coming further" in jobs[0].words


def test_what_diverges_is_said_and_not_tried_again(tmp_path: Path) -> None:
    arms = {"wild": {"bonuses": ["none"], "algo": "ppo", "set": {"algo.learning_rate": 1e30}}, "plain": {"bonuses": ["none"]}}
    jobs = sweep(small(arms=arms), tmp_path, console=quiet())
    assert states(jobs) == ["failed", "finished"]
    assert "diverged" in jobs[0].words
    assert jobs[0].deaths == 0


def test_started_again_it_runs_what_is_missing(whole: Path, tmp_path: Path) -> None:
    first = small()
    sweep(Experiment(name="small", title="", trials=first.trials[:1]), tmp_path, console=quiet())
    stored = tmp_path / STORE / "maze-bonus-3.parquet"
    before = stored.stat().st_mtime_ns
    plain = first.trials[1]
    ex2.train(
        "maze", "none", seed=3, steps=STEPS, out=tmp_path / plain.name, overrides=plain.overrides, listener=stop_at(1_000)
    )
    assert states(sweep(first, tmp_path, console=quiet())) == ["finished", "finished"]
    assert stored.stat().st_mtime_ns == before
    same(tmp_path / "maze-plain-3", whole / "maze-plain-3")


def stop_at(step: int) -> Any:
    def listen(row: dict[str, float]) -> None:
        if row["step"] >= step:
            signal.raise_signal(signal.SIGINT)

    return listen


def test_damaged_files_are_said_and_made_again(tmp_path: Path, whole: Path) -> None:
    experiment = small()
    sweep(experiment, tmp_path, console=quiet())
    stored = tmp_path / STORE / "maze-bonus-3.parquet"
    kept = stored.read_bytes()
    stored.write_bytes(kept[: len(kept) // 2])
    jobs = sweep(experiment, tmp_path, console=(console := quiet()))
    assert str(stored) in console.file.getvalue()
    assert states(jobs) == ["finished", "finished"]
    assert not read_results(tmp_path / STORE).problems
    (tmp_path / STORE / "maze-plain-3.parquet").unlink()  # and a checkpoint damaged in the middle of a training
    folder = tmp_path / "maze-plain-3"
    (folder / "summary.json").unlink()
    saved = (folder / CHECKPOINT).read_bytes()
    (folder / CHECKPOINT).write_bytes(saved[: len(saved) // 2])
    assert states(sweep(experiment, tmp_path, console=quiet())) == ["finished", "finished"]
    same(folder, whole / "maze-plain-3")


def program(folder: Path, steps: int) -> list[str]:
    """A sweep of one trial as a person starts it, with a Ray of its own."""
    settings = "\n".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in SMALL.items())
    arm = '[arms.bonus]\nset = { "bonus.min_replay" = 300 }'
    (folder / "small.toml").write_text(f'tasks = ["maze"]\nseeds = [3]\nsteps = {steps}\n[set]\n{settings}\n{arm}\n')
    return [sys.executable, "-m", "ex2", "sweep", str(folder / "small.toml"), "--out", str(folder / "out")]


def started(command: list[str]) -> subprocess.Popen[str]:
    """In a group of processes of its own, as a shell starts it: Ctrl-C goes to all of them."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, start_new_session=True)


def test_two_sweeps_of_a_folder_share_the_work_and_one_goes_on_where_the_other_is_killed(tmp_path: Path) -> None:
    folder, command = tmp_path / "out" / "maze-bonus-3", [*program(tmp_path, 12_000), "--json"]
    sweeps = [started(command) for _ in range(2)]
    trainer = wait_for(lambda: (folder / f"{CHECKPOINT}.previous").exists() and trainer_of(folder))
    first, other = sorted(sweeps, key=lambda process: process.pid not in ancestors(trainer))
    os.kill(first.pid, signal.SIGKILL)
    said, errors = other.communicate(timeout=120)
    assert other.returncode == 0, errors
    assert [row["n"] for row in json.loads(said)] == [1]
    assert [path.name for path in (tmp_path / "out" / STORE).iterdir()] == ["maze-bonus-3.parquet"]
    ex2.train("maze", seed=3, steps=12_000, overrides=SMALL | {"bonus.min_replay": 300}, out=tmp_path / "whole")
    same(folder, tmp_path / "whole")
    first.communicate()


def test_a_death_is_one_sentence_and_json_stays_json(tmp_path: Path) -> None:
    sweeping = started([*program(tmp_path, 20_000), "--json"])
    os.kill(wait_for(lambda: trainer_of(tmp_path / "out" / "maze-bonus-3")), signal.SIGKILL)
    said, errors = sweeping.communicate(timeout=120)
    assert [row["n"] for row in json.loads(said)] == [1]
    assert errors.count("its process died at step") == 1
    assert "raylet" not in errors
    assert "\x1b" not in errors


def ancestors(process: int) -> list[int]:
    """The processes that a process was started by."""
    found = list[int]()
    while process > 1:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(process)
    return found


def pressing(folder: Path, times: int, after: float) -> threading.Thread:
    """Ctrl-C, so often, once a run has come so far and has saved something."""

    def press() -> None:
        wait_for(lambda: (folder / f"{CHECKPOINT}.previous").exists() and ex2.Run(folder).history()["step"][-1] > after)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    return threading.Thread(target=press)


def test_ctrl_c_stops_and_saves_and_a_second_one_stops_at_once(tmp_path: Path) -> None:
    folder, long, steps = tmp_path / "maze-bonus-3", small(steps=10**7), 0.0
    for times in (1, 2):
        presses = pressing(folder, times, after=steps)
        presses.start()
        jobs = sweep(long, tmp_path, workers=1, console=(console := quiet()))
        presses.join()
        assert states(jobs) == ["stopped", "stopped"]
        assert "Stopping" in console.file.getvalue()
        steps = ex2.Run(folder).history()["step"][-1]
        if times == 1:
            assert json.loads((folder / "summary.json").read_text())["steps"] == steps
        assert not (tmp_path / "maze-plain-3").exists()
    wait_for(lambda: trainer_of(folder) is None)
    assert ex2.Run(folder).resume(steps=0).steps <= steps  # what was saved is whole


def test_another_experiment_in_the_folder_is_refused(whole: Path) -> None:
    with pytest.raises(UsageError, match=r"maze-bonus-3 .* made with steps=2400 and is now to have steps=4000.* --out"):
        sweep(small(steps=4_000), whole, console=quiet())
    with pytest.raises(UsageError, match=r"num_envs"):
        sweep(small(set=SMALL | {"num_envs": 5}, arms={"bonus": {}}), whole, console=quiet())
    assert read_results(whole / STORE).scores["step"].tolist() == [STEPS, STEPS]


def test_what_cannot_be_run_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, STEPS)
    file = str(tmp_path / "small.toml")
    for words, named in (
        (["--workers", "0"], "workers=0"),
        (["--retries", "-1"], "retries=-1"),
        (["--seeds", "one"], "--seeds one"),
        (["--seeds", "9-3"], "9-3"),
        (["--steps", "0"], "steps"),
        (["--out", f"{file}/folder"], "--out"),
    ):
        assert main(["sweep", file, *words]) == 2
        said = capsys.readouterr().err
        assert named in said
        assert len(said.splitlines()) == 1
    assert main(["results", str(tmp_path)]) == 2


def test_no_ray_is_a_sentence(tmp_path: Path) -> None:
    words = [*program(tmp_path, STEPS)[3:], "--address"]
    calls = f"""
import sys
from ex2.cli import main
sys.modules["ray"] = None
print(main({words[:-1]}))
del sys.modules["ray"]
print([main([*{words}, where]) for where in ("127.0.0.1:1", "nonsense")])
"""
    done = subprocess.run([sys.executable, "-c", calls], capture_output=True, text=True)
    assert done.stdout == "2\n[2, 2]\n"
    missing, nobody, nonsense = done.stderr.splitlines()
    assert "127.0.0.1:1" in nobody
    assert "HOST:PORT" in nonsense
    assert "pip install 'ex2[lab]'" in missing


def test_a_dry_run_lists_what_would_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, STEPS)
    assert main(["sweep", str(tmp_path / "small.toml"), "--dry-run", "--json", "--seeds", "4-5", "--steps", "1000"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [row["trial"] for row in listed] == ["maze-bonus-4", "maze-bonus-5"]
    assert "--seed 4 --steps 1000 --set num_envs=4" in listed[0]["command"]
    assert not (tmp_path / "out").exists()


def test_an_experiment_that_is_a_command_is_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "figure.toml").write_text("title = 'A figure'\ncommand = 'echo drawn; exit 3'\n")
    assert main(["sweep", str(tmp_path / "figure.toml")]) == 3
    assert "drawn" in capfd.readouterr().out


def test_a_command_has_the_python_that_runs_it(tmp_path: Path, monkeypatch, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "figure.toml").write_text("command = 'python -c \"import sys; print(sys.prefix)\"'\n")
    monkeypatch.setenv("PATH", os.defpath)  # the environment is not activated
    assert main(["sweep", str(tmp_path / "figure.toml")]) == 0
    assert capfd.readouterr().out.strip() == sys.prefix


def test_results_are_printed_and_saved(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", str(whole), "--save", str(tmp_path / "saved"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["task"], row["arm"], row["n"], row["solved"]) for row in rows] == [
        ("maze", "bonus", 1, 0),
        ("maze", "plain", 1, 0),
    ]
    assert main(["results", str(tmp_path / "saved")]) == 0
    printed = capsys.readouterr().out
    assert "0 of 1 (0 to 98 %)" in printed
    (tmp_path / "saved" / "cut.parquet").write_bytes(b"PAR1")
    assert main(["results", str(tmp_path / "saved" / "cut.parquet"), str(whole)]) == 1
    assert "cut.parquet cannot be read" in capsys.readouterr().err


def test_trials_side_by_side_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    there = cores()
    monkeypatch.setenv(LIMIT, "1")
    assert cores() == 1
    monkeypatch.setenv(LIMIT, "1000")
    assert cores() == there
