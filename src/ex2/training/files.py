"""Files that are whole whatever happens: a kill, a full disk or a power cut leaves what was there before, or what was to be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ex2.errors import UsageError


def draft_of(path: Path) -> Path:
    return path.with_name(path.name + ".draft")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft to write to, which takes the place of the file if all goes well; what reads it may be whom the umask lets."""
    draft = draft_of(path)
    try:
        draft.touch()
        mode = draft.stat().st_mode
        yield draft
        with open(draft, "rb") as written:
            os.fsync(written.fileno())
        draft.chmod(mode)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


@contextmanager
def writing(folder: Path, remedy: str) -> Iterator[None]:
    """A full disk, a folder without rights or a name that cannot be, in a sentence."""
    if "\0" in str(folder):
        raise UsageError(f"{str(folder)!r} cannot be a folder's name: {remedy}.")
    try:
        yield
    except OSError as error:
        raise UsageError(f"The run's folder {folder} cannot be written ({error.strerror or error}): {remedy}.") from None
