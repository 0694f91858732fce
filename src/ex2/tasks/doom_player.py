"""Players of Doom: starts the processes that games are played in (`ex2.tasks.doom_game`), asks them, ends them, and sweeps what
killed ones leave."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import vizdoom

from ex2.errors import UsageError
from ex2.tasks import doom_game
from ex2.tasks.doom_game import BEGIN, REQUEST

START_SECONDS = 120.0  # that a game may take to come up, on a machine that starts many
LEAVE_SECONDS = 5.0  # that whoever plays a game may take to end it
PREFIX = "ex2-games-"  # of the folder of a batch


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"Doom needs a temporary folder ({error}): name another in the variable TMPDIR.") from None


class Folder:
    """The temporary folder of a batch, with one in it for each game; locked as long as the batch or one of its games lives."""

    def __init__(self) -> None:
        with temporary():
            while True:
                self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
                self.lock = os.open(self.path, os.O_RDONLY)
                fcntl.flock(self.lock, fcntl.LOCK_EX)
                if self.path.exists():
                    break
                os.close(self.lock)  # somebody's `sweep` had it first
            script = doom_game.starter(self.path)
        program = Path(vizdoom.__file__).parent / "vizdoom"
        for needed, remedy in (
            (program, "The game {0} cannot be run: install vizdoom anew."),
            (script, "No program can be run from {0.parent}: name a folder where that is allowed in the variable TMPDIR."),
        ):
            if not os.access(needed, os.X_OK):
                self.remove()
                raise UsageError(remedy.format(needed))
        script.unlink()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def sweep() -> None:
    """Removes what games have left that were killed together with those who could: folders, processes, shared memory."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # in use, gone meanwhile, a link, or not to be read
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    for each in folder.iterdir():
                        if each.is_dir() and not each.is_symlink():
                            doom_game.remove(each)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


class Player:
    """The near end of a game: asks it for something, and later takes its answer."""

    def __init__(self, folder: Folder, scenario: Path, seconds: float) -> None:
        self._batch, self._scenario, self._seconds = folder, scenario, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._until = 0.0
        self._owes = False  # an answer that nobody has taken
        self.trouble = ""  # the last words of a game that has died

    def _start(self) -> None:
        with temporary():
            self._folder = Path(tempfile.mkdtemp(dir=self._batch.path))
        paths = [path for path in sys.path if isinstance(path, str) and path]
        try:
            self._link, other = socket.socketpair()
            given = [str(other.fileno()), str(self._batch.lock), str(self._folder), str(self._scenario)]
            with other, (self._folder / "words").open("wb") as words:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", doom_game.__file__, *given],
                    stdin=subprocess.DEVNULL,
                    stdout=words,
                    stderr=words,
                    pass_fds=(other.fileno(), self._batch.lock),
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"},
                    start_new_session=True,  # so that Ctrl-C is for the training, and a game ends with whoever plays it
                )
        except OSError as error:
            raise UsageError(f"A game of Doom cannot be started ({error}): play fewer at once (num_envs).") from None

    def ask(self, what: bytes, number: int = 0) -> None:
        """Of a game that has died only BEGIN is taken; it then is another one."""
        if self._owes:  # whoever asked was interrupted
            self.end()
        seconds = self._seconds
        if self._process is None:
            if what != BEGIN:
                return
            seconds = max(seconds, START_SECONDS)
            self._start()
        self._until, self._owes = time.monotonic() + seconds, True
        with contextlib.suppress(OSError):  # of one that has died, no answer will come
            self._link.sendall(REQUEST.pack(what, number), socket.MSG_NOSIGNAL)

    def answer(self, size: int) -> bytes | None:
        """So many bytes; None where the game has died, or does not answer."""
        came = bytearray()
        with contextlib.suppress(OSError):
            while self._process is not None and len(came) < size:
                self._link.settimeout(max(self._until - time.monotonic(), 1.0))
                part = self._link.recv(size - len(came))
                if not part:
                    break
                came += part
        if len(came) == size:
            self._owes = False
            return bytes(came)
        self.end()
        return None

    def leave(self) -> None:
        """Lets whoever plays the game end it and go, if an answer is not still awaited; `end` waits for that."""
        if self._process is not None and not self._owes:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)  # which a copy of it in a fork does not keep open

    def end(self) -> None:
        """Ends the game, and whoever plays it."""
        self.leave()
        process, self._process = self._process, None
        if process is None:
            return
        shared: list[Path] = []
        if self._owes or not _has_ended(process):  # it may hang
            with contextlib.suppress(OSError):  # its number is its own until it is waited for
                os.killpg(process.pid, signal.SIGSTOP)
                shared = doom_game.shared_by(process.pid)
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._link.close()
        self._owes = False
        self.trouble = next(filter(None, reversed(doom_game.noted(self._folder, "words"))), "").strip()
        doom_game.remove(self._folder, shared)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LEAVE_SECONDS)
    return process.returncode is not None
