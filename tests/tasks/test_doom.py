"""DoomMyWayHome+: the derived map, the start, the vest, the time limit, and games that die."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import vizdoom

from ex2 import UsageError, make_vector_env
from ex2.tasks import doom, doom_map
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


def games() -> set[int]:
    """The processes of this one's games."""
    found = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "vizdoom"], capture_output=True, text=True)
    return {int(number) for number in found.stdout.split()}


def test_nothing_is_left_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = make_vector_env("doom", 4)
    env.reset(seed=0)
    env.step(np.zeros(4, int))
    folders = [Path(game._folder.name) for game in env.unwrapped._games]
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
    with pytest.warns(UserWarning, match="died and was started anew"):
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


@pytest.mark.slow
def test_training_goes_on_when_a_game_dies():
    """The episode counts as cut short, and not as a score."""
    settings = {"num_envs": 2, "rollout_steps": 40, "algo.batch_size": 40, "threads": 1}
    trainer = Trainer(configure("doom", "none", overrides=settings))
    trainer.iterate()
    os.kill(min(games()), signal.SIGKILL)
    time.sleep(0.2)
    with pytest.warns(UserWarning, match="died and was started anew"):
        rollout = trainer.collector.collect(40)
    assert rollout.batch.truncated.sum() == 1
    assert not trainer.collector.episodes
    assert trainer.iterate()["step"] == 160
    trainer.collector.close()
