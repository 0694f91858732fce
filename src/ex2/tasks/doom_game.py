"""One game of Doom: a process of its own that ends with ours, and is ended where it no longer answers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import vizdoom
from PIL import Image

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.tasks import doom_start
from ex2.tasks.doom_map import VEST

TICS = 10  # of 1/35 s for each action
SIZE = 32  # pixels a side of an observation
BUTTONS = (vizdoom.Button.MOVE_FORWARD, vizdoom.Button.TURN_RIGHT, vizdoom.Button.TURN_LEFT)
ACTIONS = ([1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0])
"""One button at a time, or none."""
WHERE = (vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y, vizdoom.GameVariable.ANGLE)
FIRST_TIC = 10  # of an episode: the ones before raise the weapon
DEAD = (
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.ViZDoomErrorException,
)
PREFIX = "ex2-doom-"  # of a game's folder
SETTLED_SECONDS = 2.0  # after which shared memory that is being made is in use
START_SECONDS = 60.0  # that a start may take, if an answer may not take longer
LOOKS = 10  # at a game, a tenth of its time limit apart, before it is ended: after Ctrl-Z and fg, one look comes too soon


class Game:
    """One game process: an action in, a small picture out.

    A game writes a folder `_vizdoom` and a configuration to where it is started, and dies where it cannot. So it is started by
    a script that first goes to a temporary folder, in the game's process and no other (`ex2.tasks.doom_start`).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._game: vizdoom.DoomGame | None = None
        self._asking = threading.Lock()
        self._looks = 0
        self._ended = False
        self.folder, lock = _make_folder()
        self._remove = weakref.finalize(self, _remove_folder, self.folder, lock)
        self._prepare()  # and refuse here what would fail at the start

    def _prepare(self) -> str:
        """Writes the script that starts the game for the process that this is, and returns its name."""
        program, starter = Path(vizdoom.__file__).parent / "vizdoom", self.folder / "start"
        if not os.access(program, os.X_OK):  # where a program cannot be run, vizdoom takes our process with it
            raise UsageError(f"The game {program} cannot be run: install vizdoom anew.")
        command = [sys.executable, "-IS", doom_start.__file__, str(self.folder), str(os.getpid()), str(program)]
        with _temporary():
            starter.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            starter.chmod(0o700)
        if not os.access(starter, os.X_OK):
            raise UsageError(
                f"No program can be run from {self.folder}: name a folder where that is allowed in the variable TMPDIR."
            )
        return str(starter)

    def _start(self) -> vizdoom.DoomGame:
        game = vizdoom.DoomGame()
        game.set_vizdoom_path(self._prepare())
        game.set_doom_scenario_path(str(self._path))
        game.set_doom_config_path(str(self.folder / "vizdoom.ini"))
        game.set_doom_map("map01")
        game.set_doom_skill(5)
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        for hide in ("hud", "weapon", "crosshair", "decals", "particles"):
            getattr(game, f"set_render_{hide}")(False)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_console_enabled(False)
        game.set_available_buttons(list(BUTTONS))
        game.set_available_game_variables(list(WHERE))
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_living_reward(0.0)
        game.set_episode_start_time(FIRST_TIC)
        game.set_episode_timeout(0)  # steps are counted outside
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the training, not for its games
        try:
            game.init()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return game

    def begin(self, seed: int, out: Array) -> Array:
        """A new episode: its first picture goes to `out` [SIZE, SIZE, 3]; returns x, y and heading."""
        with self._answering():
            for _ in range(3):
                if self._ended:
                    raise UsageError("This game of Doom has ended.")
                try:
                    if self._game is None:
                        self._game = self._start()
                    self._game.set_seed(seed)
                    self._game.new_episode()
                    return self._look(out)
                except DEAD:
                    self._close()
            raise UsageError("A game of Doom does not start: install vizdoom anew.")

    def step(self, action: int, out: Array) -> tuple[float, bool, Array | None]:
        """Reward, whether the vest was taken, and x, y and heading. The last is None where the game has died.

        A game draws nothing any more once the vest is taken: `out` then stays as it was, the picture before the last action.
        """
        with self._answering():
            try:
                if self._game is None:
                    return 0.0, False, None
                reward = self._game.make_action(ACTIONS[action], TICS)
                if self._game.is_episode_finished():
                    return reward, True, np.array([*VEST, 0.0])
                return reward, False, self._look(out)
            except DEAD:
                self._close()
                return 0.0, False, None

    def _look(self, out: Array) -> Array:
        assert self._game is not None
        state = self._game.get_state()
        self.screen = state.screen_buffer
        out[:] = Image.fromarray(self.screen).resize((SIZE, SIZE), Image.Resampling.BOX)
        assert state.game_variables is not None
        return state.game_variables

    def _close(self) -> None:
        game, self._game = self._game, None
        if game is not None:
            self.kill()  # vizdoom would wait for a game that does not answer, and all of Python with it
            with contextlib.suppress(*DEAD):
                game.close()

    def end(self) -> None:
        """Closes the game for good."""
        with self._answering():
            self._close()
            self._remove()

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """While the game is asked for something."""
        with self._asking:
            self._looks = 0
            yield

    def look_after(self, seconds: float) -> None:
        """Called every so many seconds while answers are awaited: a game that owes one for too long is killed."""
        if self._asking.locked():
            self._looks += 1
            if self._looks >= LOOKS and (self._game is not None or self._looks * seconds >= START_SECONDS):
                self._looks = 0
                self.kill()

    def interrupt(self) -> None:
        """Nothing is asked of the game any more; one that owes an answer is killed."""
        self._ended = True
        if self._asking.locked():
            self.kill()

    def kill(self) -> None:
        """Whoever waits for the game's answer then learns that it is dead."""
        for process in _started(self.folder)[-1:]:
            _kill(process, self.folder)


def _make_folder() -> tuple[Path, int]:
    """A temporary folder that is locked as long as this process lives, and has been since it had its name."""
    with _temporary():
        made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}{os.getpid()}-"))
        lock = os.open(made, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return made.rename(made.with_name(made.name[1:])), lock


@contextlib.contextmanager
def _temporary() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"A game of Doom needs a temporary folder ({error}): name another in the variable TMPDIR.") from None


def _remove_folder(folder: Path, lock: int) -> None:
    for process in _started(folder):
        _kill(process, folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def sweep() -> None:
    """Removes what games of processes that were killed have left behind: folders, and shared memory that nobody uses."""
    temporary = Path(tempfile.gettempdir())
    unnamed = [folder for folder in temporary.glob(f".{PREFIX}*") if not _alive(folder.name.split("-")[2])]
    for folder in (*unnamed, *temporary.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):  # of another user, or gone meanwhile
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # its process is alive
                os.close(lock)
                continue
            _remove_folder(folder, lock)
    shared = list(doom_start.SHARED.glob("ViZDoom*"))
    used = "".join(map(_text, Path("/proc").glob("[0-9]*/maps"))) if shared else ""
    for path in shared:
        with contextlib.suppress(OSError):
            found = path.stat()
            settled = time.time() - found.st_ctime > SETTLED_SECONDS
            if settled and found.st_uid == os.getuid() and path.name not in used:
                path.unlink()


def _alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:  # of another user
        return True
    return True


def _started(folder: Path) -> list[str]:
    """The processes of the games that were started in a folder."""
    return _text(folder / doom_start.STARTED).split()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _kill(process: str, folder: Path) -> None:
    """Kills a process, if it is one of this folder and no other that has its number by now."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{process}/cwd").readlink() == folder.resolve():
            os.kill(int(process), signal.SIGKILL)
