"""One training at a time in a run's folder."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ex2.errors import UsageError
from ex2.training.files import writing

ATTEMPTS = 3


class Locked(UsageError):
    """Another process trains in the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder while a training writes to it; whoever holds it already is named.

    The lock is the system's, on the folder itself: it leaves no file behind, and a process that dies holds it no longer. Where
    there is no such lock, as on some network drives, none is held.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with writing(folder, "make it so, and try again"):
        handle = os.open(folder, os.O_RDONLY)
    try:
        for attempt in range(ATTEMPTS):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    break
                holder = _holder(handle)
                if holder or attempt == ATTEMPTS - 1:  # else it has let go meanwhile
                    named = holder or "another process"
                    words = f"{folder} is being trained by {named}: wait for it to end, or stop it with Ctrl-C there."
                    raise Locked(words) from None
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    """The process that holds the lock, where the system tells; else nothing."""
    place = os.fstat(handle).st_ino
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        parts = line.split()
        if parts[1] == "FLOCK" and parts[5].endswith(f":{place}"):
            return f"process {parts[4]}"
    return ""
