"""How many cores environments may be stepped on."""

from __future__ import annotations

import os

LIMIT = "EX2_CORES"
"""The variable that says how many a process may use, where others run beside it (`ex2 sweep` sets it)."""


def cores() -> int:
    """Those that this process may run on, which under `taskset`, in a set of processors or beside others are not all."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(there, int(limit)) if (limit := os.environ.get(LIMIT, "")).isdigit() and int(limit) else there
