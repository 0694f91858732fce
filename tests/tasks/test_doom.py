"""DoomMyWayHome+: the derived map, the start, the vest, the time limit, and games that die."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import vizdoom

from ex2 import UsageError, make_vector_env
from ex2.tasks import doom, doom_game, doom_map, doom_start
from ex2.training.config import configure
from ex2.training.loop import Trainer

FORWARD, RIGHT, LEFT, NOTHING = range(4)


@pytest.fixture
def env():
    env = make_vector_env("doom", 2)
    yield env.unwrapped
    env.close()


def test_the_map_is_derived_once_and_checked(tmp_path):
    path = doom_map.find_map(tmp_path / "cache")
    assert path == doom_map.find_map(tmp_path / "cache")
    written = path.stat().st_mtime_ns
    assert doom_map.find_map(tmp_path / "cache").stat().st_mtime_ns == written
    path.write_bytes(b"half a ma")
    assert doom_map.find_map(tmp_path / "cache").read_bytes() == doom_map.derive_map(doom_map.installed_map())


def test_lumps_are_read_and_written():
    source = doom_map.installed_map().read_bytes()
    lumps = doom_map.read_lumps(source)
    assert doom_map.read_lumps(doom_map.write_lumps(lumps)) == lumps
    derived = dict(doom_map.read_lumps(doom_map.derive_map(doom_map.installed_map())))
    text = derived[b"TEXTMAP\0"].decode()
    assert text.count("x = 240.000;") == 18  # 17 spots and the player's own start
    assert f"x = {doom.VEST[0]:.3f};" in text


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="EX2_CACHE"):
        doom_map.find_map(tmp_path / "file" / "cache")


def test_another_map_is_refused(tmp_path, monkeypatch):
    (tmp_path / "my_way_home.wad").write_bytes(doom_map.write_lumps([(b"BEHAVIOR", b"something else")]))
    monkeypatch.setattr(vizdoom, "scenarios_path", str(tmp_path))
    with pytest.raises(UsageError, match="angle"):
        doom_map.find_map(tmp_path)


def test_start_and_heading(env):
    headings = []
    for seed in range(6):
        _, infos = env.reset(seed=2 * seed)
        assert infos["position"][:, :2] == pytest.approx(np.array([doom.START] * 2), abs=0.01)
        headings += infos["position"][:, 2].tolist()
    assert 0.0 <= min(headings) < max(headings) <= 3.61
    assert max(headings) - min(headings) > 0.5


def test_buttons(env):
    env.reset(seed=0)
    where = env.step(np.array([FORWARD, NOTHING]))[4]["position"]
    assert where[0, 0] > doom.START[0] + 20
    assert where[1, :2] == pytest.approx(doom.START, abs=0.01)
    env.reset(seed=0)
    turned = env.step(np.array([RIGHT, LEFT]))[4]["position"][:, 2]
    assert 180 < turned[0] < 359
    assert 5 < turned[1] < 180


# Through the doors from the first room to the vest, in map units.
WAY = [
    (464, -176),
    (575, -176),
    (687, -173),
    (687, -62),
    (690, 50),
    (871, 50),
    (1040, 50),
    (1040, -62),
    (1040, -170),
    doom.VEST,
]


def walk(env, way, steps=200):
    """Steers the first player from point to point, turning where it faces more than 20 degrees away from the next one."""
    where, total = np.array([*doom.START, 0.0]), 0.0
    points = iter(way)
    x, y = next(points)
    for _ in range(steps):
        if np.hypot(x - where[0], y - where[1]) < 45:
            x, y = next(points)
        off = (np.degrees(np.arctan2(y - where[1], x - where[0])) - where[2] + 180) % 360 - 180
        action = FORWARD if abs(off) < 20 else LEFT if off > 0 else RIGHT
        _, reward, terminated, truncated, infos = env.step(np.array([action, NOTHING]))
        where = infos["position"][0]
        total += reward[0]
        if terminated[0] or truncated[0]:
            break
    return total, terminated, truncated


def test_the_vest_can_be_reached_gives_one_and_ends_the_episode(env):
    env.reset(seed=0)
    total, terminated, truncated = walk(env, WAY)
    assert terminated.tolist() == [True, False]
    assert not truncated.any()
    assert total == pytest.approx(1.0)
    infos = env.step(np.array([NOTHING, NOTHING]))[4]
    assert infos["position"][0, :2] == pytest.approx(doom.START, abs=1.0)  # the next episode has begun


def test_an_episode_is_truncated_after_2100_tics(env):
    env.reset(seed=0)
    for step in range(210):
        _, reward, terminated, truncated, infos = env.step(np.array([NOTHING, RIGHT]))
        assert not terminated.any()
        assert not reward.any()
        assert truncated.all() == (step == 209)
    assert infos["_final_obs"].all()


def test_other_maps_are_refused():
    spots = "".join(f"thing {{ x = {x}.0; y = 0.0; type = 9001; }}" for x in range(16))
    with pytest.raises(ValueError, match="16 spots"):
        doom_map.one_start(spots)
    with pytest.raises(ValueError, match="no spot at"):
        doom_map.one_start(spots + "thing { x = 16.0; y = 0.0; type = 9001; }")
    start = "thing { x = 240.0; y = -176.0; type = 9001; }"
    with pytest.raises(ValueError, match="its vest is not at"):
        doom_map.one_start(spots + start + "thing { x = 0.0; y = -352.0; type = 2018; }")
    assert "x = 3.0" not in doom_map.one_start(spots + start + "thing { x = 1040.0; y = -352.0; type = 2018; }")


def games(of: int | None = None) -> set[int]:
    """The processes of the games of a process, or of this one: children of those that it starts them by."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,stat=,comm="], capture_output=True, text=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    starters = {pid for pid, parent, _, _ in rows if parent == str(of or os.getpid())}
    return {
        int(pid) for pid, parent, state, name in rows if parent in starters and name == "vizdoom" and not state.startswith("Z")
    }


def test_nothing_is_left_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = make_vector_env("doom", 4)
    env.reset(seed=0)
    env.step(np.zeros(4, int))
    folders = [game.folder for game in env.unwrapped._games]
    assert all((folder / "_vizdoom").is_dir() for folder in folders)  # the games look there, and not here
    assert not list(tmp_path.iterdir())
    env.close()
    assert not list(tmp_path.iterdir())
    assert not any(folder.exists() for folder in folders)


def test_the_working_folder_need_not_be_writable(monkeypatch):
    monkeypatch.chdir("/proc")  # where not even root can make a folder
    with pytest.raises(OSError, match="_vizdoom"):
        Path("_vizdoom").mkdir()
    env = make_vector_env("doom", 2)
    env.reset(seed=0)
    assert not env.step(np.zeros(2, int))[4]["died"].any()
    env.close()


def test_two_batches_start_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    envs = [make_vector_env("doom", 2) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda env: env.reset(seed=0)[0], envs)
    assert np.array_equal(one, two)
    assert os.getcwd() == str(tmp_path)
    assert not list(tmp_path.iterdir())
    for env in envs:
        assert env.unwrapped.restarts == 0
        env.close()


def test_a_game_that_cannot_start_is_named(tmp_path, monkeypatch):
    """Before vizdoom tries: it ends our process where its game does not come up."""
    monkeypatch.setattr(vizdoom, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(UsageError, match="cannot be run: install"):
        make_vector_env("doom", 1)


@pytest.mark.skipif(not os.statvfs("/dev/shm").f_flag & os.ST_NOEXEC, reason="programs can be run from /dev/shm here")
def test_a_folder_that_programs_cannot_be_run_from_is_named(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/dev/shm")
    with pytest.raises(UsageError, match="TMPDIR"):
        make_vector_env("doom", 1)


def test_ctrl_c_is_not_for_the_games(env):
    env.reset(seed=0)
    assert len(games()) == 2
    for game in games():
        os.kill(game, signal.SIGINT)
    time.sleep(0.2)
    _, _, terminated, truncated, infos = env.step(np.array([FORWARD, FORWARD]))
    assert not (terminated | truncated | infos["died"]).any()
    assert env.restarts == 0


def test_a_game_that_dies_is_started_anew_and_its_episode_is_truncated(env):
    env.reset(seed=0)
    env.step(np.array([FORWARD, FORWARD]))
    victim = min(games())
    os.kill(victim, signal.SIGKILL)
    time.sleep(0.2)
    with pytest.warns(UserWarning, match="was started anew"):
        observation, reward, terminated, truncated, infos = env.step(np.array([NOTHING, NOTHING]))
    assert truncated.sum() == 1
    assert not terminated.any()
    assert not reward.any()
    assert env.restarts == 1
    assert infos["_final_obs"].tolist() == truncated.tolist() == infos["died"].tolist()
    assert observation[truncated].any()
    assert victim not in games()
    assert len(games()) == 2
    for _ in range(5):
        _, _, terminated, truncated, infos = env.step(np.array([FORWARD, FORWARD]))
        assert not (terminated | truncated).any()
        assert np.isfinite(infos["position"]).all()


def test_a_game_that_does_not_answer_is_started_anew_like_a_dead_one():
    env = make_vector_env("doom", 2, answer_seconds=0.5).unwrapped
    env.reset(seed=0)
    victim = min(games())
    os.kill(victim, signal.SIGSTOP)
    with pytest.warns(UserWarning, match="did not answer"):
        _, _, _, truncated, infos = env.step(np.array([NOTHING, NOTHING]))
    assert truncated.sum() == infos["died"].sum() == env.restarts == 1
    assert victim not in games()
    assert not env.step(np.array([FORWARD, FORWARD]))[4]["died"].any()
    os.kill(min(games()), signal.SIGSTOP)
    env.close()  # does not wait for it
    assert not games()
    with pytest.raises(UsageError, match="answer_seconds=0 must be above 0"):
        make_vector_env("doom", 1, answer_seconds=0)


@pytest.mark.parametrize("fault", ["KILL", pytest.param("STOP", marks=pytest.mark.slow)])
def test_a_game_that_does_not_come_up_is_started_again(fault, tmp_path, monkeypatch):
    """vizdoom would take our process with it, or wait for ever."""
    monkeypatch.setattr(doom_game, "START_SECONDS", 8.0)  # enough for a busy machine
    real, program = Path(vizdoom.__file__).parent / "vizdoom", tmp_path / "vizdoom"
    program.write_text(f'#!/bin/sh\n[ -e {tmp_path}/once ] || (touch {tmp_path}/once; kill -{fault} $$)\nexec {real} "$@"\n')
    program.chmod(0o700)
    monkeypatch.setattr(vizdoom, "__file__", str(tmp_path / "__init__.py"))
    env = make_vector_env("doom", 1, answer_seconds=1.0).unwrapped
    env.reset(seed=0)
    assert len((env._games[0].folder / doom_start.STARTED).read_text().split()) == 2
    env.close()


PLAYER = """
import numpy as np
from ex2 import make_vector_env
env = make_vector_env("doom", 3)
env.reset(seed=0)
print([str(game.folder) for game in env.unwrapped._games], flush=True)
while True:
    env.step(np.zeros(3, int))
"""


@pytest.mark.parametrize("started", [True, False])
def test_games_end_with_a_process_that_is_killed_and_the_next_one_cleans_up(started):
    """Killed while its games are played, or while they start."""
    with subprocess.Popen([sys.executable, "-c", PLAYER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folders = ast.literal_eval(process.stdout.readline()) if started else []
        while len(playing := games(process.pid)) < (3 if started else 1):
            time.sleep(0.01)
        assert started == all(Path(folder).exists() for folder in folders or ["none"])
        shared = set(re.findall(r"/dev/shm/ViZDoom\w+", Path(f"/proc/{process.pid}/maps").read_text()))
        process.kill()
    for _ in range(100):
        alive = [pid for pid in playing if Path(f"/proc/{pid}/exe").exists()]
        if not alive:
            break
        time.sleep(0.02)
    assert not alive
    assert len([path for path in shared if Path(path).exists()]) == len(shared) >= 2
    time.sleep(doom_game.SETTLED_SECONDS + 0.1)
    env = make_vector_env("doom", 1)
    assert not any(Path(folder).exists() for folder in folders)
    assert not [path for path in shared if Path(path).exists()]
    env.reset(seed=0)
    doom_game.sweep()  # of what belongs to nobody: not of this one's
    assert env.unwrapped._games[0].folder.exists()
    assert not env.step(np.array([FORWARD]))[4]["died"].any()
    env.close()


@pytest.mark.slow
def test_a_folder_of_a_process_killed_while_making_it_is_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as dead:
        pass
    for process in (dead.pid, os.getpid()):
        (tmp_path / f".{doom_game.PREFIX}{process}-x").mkdir()
    doom_game.sweep()
    assert [path.name for path in tmp_path.iterdir()] == [f".{doom_game.PREFIX}{os.getpid()}-x"]  # it is being made


def test_a_batch_is_played_by_a_fork_of_the_process_that_made_it():
    script = """
import os
from ex2 import make_vector_env
env = make_vector_env("doom", 1)
if os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
env.reset(seed=0)
env.close()
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_batch_that_is_never_closed_ends_in_silence():
    script = "from ex2 import make_vector_env; env = make_vector_env('doom', 2); env.reset(seed=0)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


@pytest.mark.slow
def test_training_goes_on_when_a_game_dies():
    """The episode counts as cut short, and not as a score."""
    settings = {"num_envs": 2, "rollout_steps": 40, "algo.batch_size": 40, "threads": 1}
    trainer = Trainer(configure("doom", "none", overrides=settings))
    trainer.iterate()
    os.kill(min(games()), signal.SIGKILL)
    time.sleep(0.2)
    with pytest.warns(UserWarning, match="was started anew"):
        rollout = trainer.collector.collect(40)
    assert rollout.batch.truncated.sum() == 1
    assert not trainer.collector.episodes
    assert trainer.iterate()["step"] == 160
    trainer.collector.close()
