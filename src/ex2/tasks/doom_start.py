"""The program that vizdoom starts as its game: it runs the real one, and ties it to the process that asked for it.

Run by `ex2.tasks.doom_game`, on its own: `python doom_start.py FOLDER PARENT PROGRAM ARGUMENTS`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal that a process gets when the one that started it is gone
TRIES = 3
SHARED = Path("/dev/shm")
STARTED = "started"
"""The file in a game's folder with its process, once for each time it was started."""


def end_with(parent: int) -> None:
    """From now on this process is killed when its parent is; at once, if that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def main(folder: str, parent: str, program: str, *arguments: str) -> int:
    end_with(int(parent))
    os.chdir(folder)  # where the game writes, whatever its parent's working folder is
    instance = arguments[arguments.index("+viz_instance_id") + 1]
    for _ in range(TRIES):
        starter = os.getpid()
        game = os.fork()
        if game == 0:
            end_with(starter)
            with open(STARTED, "a") as file:
                file.write(f"{os.getpid()}\n")
            os.execv(program, [program, *arguments])
        status = os.waitstatus_to_exitcode(os.waitpid(game, 0)[1])
        if sys.platform != "linux" or (SHARED / f"ViZDoomSM{instance}").exists():
            return 0  # it was up, and vizdoom can tell that it is no more
    # Where a game has never been up, vizdoom takes the process that asked for it along.
    print(f"ex2: The game {program} does not start (status {status}): install vizdoom anew.", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
