"""One game of Doom in a process of its own: `python doom_game.py SOCKET LOCK FOLDER MAP`, as `ex2.tasks.doom_player` starts it.

vizdoom runs the game itself in a further process, and takes its caller along where that one does not come up, hangs or dies. So
it is called from here and never from a training: this process answers what it is asked over a socket, and when nobody is at the
other end any more, however that came, it ends with its game and removes what both have made.

It imports nothing of ex2, since there are many of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import vizdoom
from PIL import Image

TICS = 10  # of 1/35 s for each action
SIZE = 32  # pixels a side of an observation
SCREEN = (120, 160, 3)
BUTTONS = (vizdoom.Button.MOVE_FORWARD, vizdoom.Button.TURN_RIGHT, vizdoom.Button.TURN_LEFT)
ACTIONS = ([1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0])
"""One button at a time, or none."""
WHERE = (vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y, vizdoom.GameVariable.ANGLE)
FIRST_TIC = 10  # of an episode: the ones before raise the weapon

REQUEST = struct.Struct("<ci")  # what is asked for, and its number
BEGIN, STEP, LOOK = b"b", b"s", b"l"  # an episode with a seed; an action; the whole screen
ANSWER = struct.Struct("<d?3d")  # to the first two: reward, whether the vest was taken, x, y and heading; the picture follows

START_SECONDS = 10.0  # that a game which nobody waits for any more may take to come up
SHARED = Path("/dev/shm")  # where Linux shows shared memory


class Game:
    """A game as vizdoom has it: an action in, a small picture out."""

    def __init__(self, folder: Path, scenario: str) -> None:
        self.picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        self.screen = np.zeros(SCREEN, np.uint8)
        self._where = [0.0, 0.0, 0.0]
        self._game = game = vizdoom.DoomGame()
        game.set_vizdoom_path(str(starter(folder)))
        game.set_doom_scenario_path(scenario)
        game.set_doom_config_path(str(folder / "vizdoom.ini"))
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
        game.init()

    def begin(self, seed: int) -> bytes:
        self._game.set_seed(seed)
        self._game.new_episode()
        return self._answer(0.0, False)

    def step(self, action: int) -> bytes:
        reward = self._game.make_action(ACTIONS[action], TICS)
        return self._answer(reward, self._game.is_episode_finished())

    def _answer(self, reward: float, over: bool) -> bytes:
        """Once the vest is taken a game draws nothing any more: the picture stays the one before the last action."""
        if not over:
            state = self._game.get_state()
            self.screen = state.screen_buffer
            self.picture = np.asarray(Image.fromarray(self.screen).resize((SIZE, SIZE), Image.Resampling.BOX))
            assert state.game_variables is not None
            self._where = state.game_variables.tolist()
        return ANSWER.pack(reward, over, *self._where) + self.picture.tobytes()


def starter(folder: Path) -> Path:
    """A script that starts the game in its folder, since it writes to where it is started, and notes which one it was."""
    program, script = Path(vizdoom.__file__).parent / "vizdoom", folder / "start"
    note = f"cd {shlex.quote(str(folder))} && echo $$ > process && printf '%s\\n' \"$@\" > arguments"
    script.write_text(f'#!/bin/sh\n{note} && exec {shlex.quote(str(program))} "$@"\n')
    script.chmod(0o700)
    return script


def noted(folder: Path, name: str) -> list[str]:
    try:
        return (folder / name).read_text(errors="replace").split("\n")
    except OSError:
        return []


def started(folder: Path) -> int | None:
    """The process of the game that was started in a folder, if it is alive; another may have its number by now."""
    for number in noted(folder, "process")[:1]:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{number}/cwd").readlink() == folder.resolve():
                return int(number)
    return None


def shared_by(process: int) -> list[Path]:
    """The shared memory that a process has with its game; it has some before there is a game."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
        return [Path(line.split()[-1]) for line in lines if f"{SHARED}/ViZDoom" in line and not line.endswith("(deleted)")]
    return []


def remove(folder: Path, shared: Iterable[Path] = ()) -> None:
    """Ends the game that was started in a folder, and removes what it leaves: the folder, and shared memory."""
    process = started(folder)
    if process is not None:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    arguments = noted(folder, "arguments")
    if "+viz_instance_id" in arguments[:-1]:
        instance = arguments[arguments.index("+viz_instance_id") + 1]
        shared = {*shared, *(SHARED.glob(f"ViZDoom*{instance}") if instance.isalnum() else ())}
    for path in shared:
        with contextlib.suppress(OSError):
            path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def leave(folder: Path) -> None:
    """Ends this process, and its game whether or not it has been noted yet: they are a process group of their own."""
    try:
        game = started(folder)
        remove(folder, shared_by(os.getpid()))
        with contextlib.suppress(OSError):
            folder.parent.rmdir()  # the last one does
        until = time.monotonic() + 1.0
        while game is not None and Path(f"/proc/{game}").exists() and time.monotonic() < until:
            time.sleep(0.005)  # vizdoom waits for it, and whoever inherits it may not
    finally:
        os.killpg(os.getpid(), signal.SIGKILL)


def hung_up(link: socket.socket, wait: bool) -> bool:
    """Whether nobody is at the other end of a socket any more; or waits for that."""
    end = select.poll()
    end.register(link, 0)  # hang-ups are always told
    return bool(end.poll(None if wait else 0))


def watch(link: socket.socket, folder: Path, up: threading.Event) -> None:
    """Leaves when the other end of a socket is closed, also while a game does not answer.

    A game that is coming up is waited for: what it and vizdoom are about to share could not be removed yet.
    """
    if hung_up(link, wait=True):
        up.wait(START_SECONDS)
        leave(folder)


def main() -> None:
    link, lock, folder, scenario = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    for number in (link, lock):  # not for the game, which would hold them open
        os.set_inheritable(number, False)
    other = socket.socket(fileno=link)
    up = threading.Event()
    watcher = threading.Thread(target=watch, args=(other, folder, up), daemon=True)
    watcher.start()
    try:
        game = Game(folder, scenario)
        up.set()
        while len(asked := other.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
            what, number = REQUEST.unpack(asked)
            other.sendall(game.begin(number) if what == BEGIN else game.step(number) if what == STEP else game.screen.tobytes())
    finally:
        up.set()
        if hung_up(other, wait=False):
            watcher.join()  # it is leaving, and has ended the game


if __name__ == "__main__":
    main()
