"""DoomMyWayHome+: the derived map, the start, the vest, the time limit, and games that die."""

from __future__ import annotations

import contextlib
import copy
import os
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
from ex2.tasks import doom, doom_game, doom_map, doom_player
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


def games(env) -> list[int]:
    """The processes of a batch's games."""
    return [doom_game.started(player._folder) for player in env._players]


def left(folder: Path) -> list[str]:
    """What games have left: processes that began in a folder, and its content."""
    found = [str(path) for path in folder.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder) in (process / "cmdline").read_text():
                found.append((process / "cmdline").read_text())
    return found


def ended(process: int) -> bool:
    """Whether a process has; what started it may not have been told yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def swept(folder: Path) -> bool:
    """Whether nothing is left after a sweep; threads of a killed process hold its lock for a moment after it has ended."""
    doom_player.sweep()
    return not list(folder.iterdir())


def wait_for(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def test_nothing_is_left_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = make_vector_env("doom", 4)
    env.reset(seed=0)
    env.step(np.zeros(4, int))
    folders = [player._folder for player in env.unwrapped._players]
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
    """It goes to the processes of a terminal's group."""
    env.reset(seed=0)
    assert all(os.getpgid(game) != os.getpgrp() for game in games(env))


def after(env, what):
    """A step after something has happened to the first game: only its episode has ended, and all games play on."""
    others = games(env)[1:]
    what()
    with pytest.warns(UserWarning, match="environment 0 died, or did not answer, and was started anew"):
        observation, reward, terminated, truncated, infos = env.step(np.array([NOTHING, NOTHING]))
    assert truncated.tolist() == infos["died"].tolist() == infos["_final_obs"].tolist() == [True, False]
    assert not terminated.any()
    assert not reward.any()
    assert observation[0].any()
    assert games(env)[1:] == others
    assert env.restarts == 1
    for _ in range(5):
        _, _, terminated, truncated, infos = env.step(np.array([FORWARD, FORWARD]))
        assert not (terminated | truncated).any()
        assert np.isfinite(infos["position"]).all()


def test_a_game_that_dies_is_started_anew_and_its_episode_is_truncated(env):
    env.reset(seed=0)
    env.step(np.array([FORWARD, FORWARD]))
    after(env, lambda: os.kill(games(env)[0], signal.SIGKILL))


def test_whoever_plays_a_game_may_die(env):
    env.reset(seed=0)
    game = games(env)[0]
    after(env, env._players[0]._process.kill)
    assert wait_for(lambda: ended(game))


@pytest.mark.parametrize("who", ["game", "player"])
def test_a_game_that_does_not_answer_is_started_anew(who):
    env = make_vector_env("doom", 2, answer_seconds=1.0).unwrapped
    env.reset(seed=0)
    hung = games(env)[0] if who == "game" else env._players[0]._process.pid
    after(env, lambda: os.kill(hung, signal.SIGSTOP))
    assert wait_for(lambda: ended(hung))
    env.close()


def test_a_game_that_hangs_while_it_starts_is_started_anew(monkeypatch):
    monkeypatch.setattr(doom_player, "START_SECONDS", 5.0)
    env = make_vector_env("doom", 1, answer_seconds=5.0).unwrapped
    start, hung = env._players[0]._start, list[int]()

    def stop():
        start()
        if not hung:
            hung.append(env._players[0]._process.pid)
            os.kill(hung[0], signal.SIGSTOP)

    monkeypatch.setattr(env._players[0], "_start", stop)
    _, infos = env.reset(seed=0)
    assert np.isfinite(infos["position"]).all()
    assert hung
    assert wait_for(lambda: ended(hung[0]))
    env.close()


def interrupt(env, index):
    """A step that ends by Ctrl-C, as in a notebook, before a game's answer is taken."""

    def interrupted(size):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(env._players[index], "answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            env.step(np.array([FORWARD] * env.num_envs))


def test_a_step_that_was_interrupted_leaves_no_stale_answer(env):
    """The game whose answer nobody has taken is started anew."""
    env.reset(seed=0)
    interrupt(env, 1)
    observation, infos = env.reset(seed=0)
    assert infos["position"][:, :2] == pytest.approx(np.array([doom.START] * 2), abs=0.01)
    again, _ = env.reset(seed=0)
    assert np.array_equal(observation, again)


def test_a_step_after_an_interrupted_one_says_that_the_game_is_another(env):
    env.reset(seed=0)
    interrupt(env, 1)
    with pytest.warns(UserWarning, match="environment 1 died"):
        _, _, terminated, truncated, infos = env.step(np.array([FORWARD, FORWARD]))
    assert truncated.tolist() == infos["died"].tolist() == [False, True]
    assert not terminated.any()


def test_the_only_game_may_be_started_anew_again_and_again():
    env = make_vector_env("doom", 1).unwrapped
    for _ in range(4):
        env.reset(seed=0)
        interrupt(env, 0)
    assert env._folder.path.is_dir()
    env.close()


def test_a_picture_of_a_game_that_has_died_is_black_and_the_step_after_it_says_so():
    env = make_vector_env("doom", 1, render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    picture = env.render()[0]
    assert picture.any()
    picture[:] = 0  # it is the caller's own
    os.kill(env._players[0]._process.pid, signal.SIGKILL)
    assert not env.render()[0].any()
    with pytest.warns(UserWarning, match="environment 0 died"):
        assert env.step(np.array([NOTHING]))[4]["died"].all()
    env.close()


def test_a_fork_neither_plays_nor_ends_the_games_of_its_parent(env):
    env.reset(seed=0)
    process = os.fork()
    if not process:
        try:
            env.step(np.array([FORWARD, FORWARD]))
        except UsageError as error:
            env.close()
            os._exit(7 if "made it" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
    assert not env.step(np.array([FORWARD, FORWARD]))[4]["died"].any()


def test_a_fork_that_lives_on_does_not_hold_up_the_end(env):
    env.reset(seed=0)
    running, process = games(env), os.fork()
    if not process:
        time.sleep(30)
        os._exit(0)
    begun = time.monotonic()
    env.close()
    assert time.monotonic() - begun < doom_player.LEAVE_SECONDS
    assert wait_for(lambda: all(map(ended, running)))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def test_games_are_not_copied(env):
    with pytest.raises(UsageError, match="cannot be copied"):
        copy.deepcopy(env)


def test_a_game_that_no_process_can_be_started_for_is_a_sentence(monkeypatch):
    env = make_vector_env("doom", 1)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(UsageError, match="cannot be started"):
        env.reset(seed=0)
    env.close()


def test_paths_that_are_no_text_are_passed_over(monkeypatch, env):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere")])
    env.reset(seed=0)


PLAYS = """
import numpy as np
from ex2 import make_vector_env
env = make_vector_env("doom", 3)
print("made", flush=True)
env.reset(seed=0)
print("begun", flush=True)
while True:
    env.step(np.zeros(3, int))
"""


@contextlib.contextmanager
def playing(folder: Path, until: str):
    """A process that plays games, with temporary files in a folder, once it has said so."""
    command = [sys.executable, "-c", PLAYS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(folder)}) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != until:
            assert process.poll() is None
        yield process
        process.kill()


@pytest.mark.parametrize(("until", "hung"), [("begun", False), ("begun", True), ("made", False)])
def test_games_end_with_a_process_that_is_killed(tmp_path, monkeypatch, until, hung):
    """Its folders, too; also where a game hangs, and while games are starting."""
    with playing(tmp_path, until) as process:
        if hung:
            assert wait_for(lambda: list(tmp_path.glob("*/*/process")))
            os.kill(int(next(tmp_path.glob("*/*/process")).read_text()), signal.SIGSTOP)
            time.sleep(0.3)
    assert process.returncode == -signal.SIGKILL
    assert wait_for(lambda: not any("wad" in found for found in left(tmp_path))), left(tmp_path)
    if until == "made":  # perhaps nobody had begun to play
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        assert wait_for(lambda: swept(tmp_path))
    assert wait_for(lambda: not left(tmp_path)), left(tmp_path)


def test_what_lies_behind_a_link_is_not_swept(tmp_path, monkeypatch):
    (tmp_path / "mine" / "folder").mkdir(parents=True)
    (tmp_path / f"{doom_player.PREFIX}link").symlink_to(tmp_path / "mine")
    (tmp_path / f"{doom_player.PREFIX}old").mkdir()
    (tmp_path / f"{doom_player.PREFIX}old" / "link").symlink_to(tmp_path / "mine")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    doom_player.sweep()
    assert (tmp_path / "mine" / "folder").is_dir()
    assert not (tmp_path / f"{doom_player.PREFIX}old").exists()


def test_what_is_left_when_everybody_was_killed_is_swept(tmp_path, monkeypatch):
    with playing(tmp_path, "begun"):
        folders = list(next(tmp_path.iterdir()).iterdir())
        running = [doom_game.started(folder) for folder in folders]
        players = [os.getpgid(game) for game in running]
        shared = [path for player in players for path in doom_game.shared_by(player)]
        for player in players:
            os.kill(player, signal.SIGSTOP)  # so that they do not see their parent die
    for player in players:
        os.kill(player, signal.SIGKILL)
    assert wait_for(lambda: all(map(ended, players)))
    assert [doom_game.started(folder) for folder in folders] == running
    assert len(set(shared)) == 9
    assert all(path.exists() for path in shared)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert wait_for(lambda: swept(tmp_path))
    assert wait_for(lambda: all(map(ended, running)))
    assert not any(path.exists() for path in shared)


def test_a_batch_that_is_played_is_not_swept(env):
    env.reset(seed=0)
    doom_player.sweep()
    assert not env.step(np.array([FORWARD, FORWARD]))[4]["died"].any()
    assert env._folder.path.is_dir()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.5, float("nan"), float("inf")])
def test_a_time_limit_must_be_one(seconds):
    with pytest.raises(UsageError, match="answer_seconds"):
        make_vector_env("doom", 1, answer_seconds=seconds)


@pytest.mark.slow
def test_training_goes_on_when_a_game_dies():
    """The episode counts as cut short, and not as a score."""
    settings = {"num_envs": 2, "rollout_steps": 40, "algo.batch_size": 40, "threads": 1}
    trainer = Trainer(configure("doom", "none", overrides=settings))
    trainer.iterate()
    os.kill(games(trainer.collector.groups[0].env.unwrapped)[0], signal.SIGKILL)
    with pytest.warns(UserWarning, match="was started anew"):
        rollout = trainer.collector.collect(40)
    assert rollout.batch.truncated.sum() == 1
    assert not trainer.collector.episodes
    assert trainer.iterate()["step"] == 160
    trainer.collector.close()
