"""Which code made a figure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ex2


def commit() -> str:
    """The commit that ex2 is of, with "+changed" where its files are others since; its version, where it is in no checkout."""
    package = Path(ex2.__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return ex2.__version__
    changed = _git(package, "status", "--porcelain", "--", ".")
    return f"{_git(package, 'rev-parse', '--short', 'HEAD')}{'+changed' if changed else ''}"


def _git(folder: Path, *words: str) -> str | None:
    """What git says, if it says anything."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
