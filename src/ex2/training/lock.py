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
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise UsageError(
                    f"{folder} is being trained by {_holder(handle)}: wait for it to end, or stop it with Ctrl-C there."
                ) from None
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    """The process that holds the lock, where the system tells."""
    place = os.fstat(handle).st_ino
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        parts = line.split()
        if parts[1] == "FLOCK" and parts[5].endswith(f":{place}"):
            return f"process {parts[4]}"
    return "another process"
