"""Ray: of a cluster that is there already, or started on this machine and stopped behind the last who uses it.

Ray is imported when somebody enters.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ex2.errors import UsageError, missing_extra
from ex2.tasks.cores import cores

PATIENCE = 10.0  # seconds in which a cluster must answer; Ray itself would try for minutes
SMALL_STORE = 100 * 2**20  # bytes of Ray's object store, for those who hand over sentences, and whose results are files
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^A worker died or was killed",  # who uses Ray here says it in a sentence
    "RAY_COLOR_PREFIX": "0",
}


class Session:
    """The session of Ray that this process is part of: the one there is, or one that ends with the last who needs it."""

    users, own = 0, False

    @classmethod
    def enter(cls, address: str | None = None, **local: Any) -> Any:
        """Ray, as a module: of the cluster at an address, or at RAY_ADDRESS, else started here, with `local` for `ray.init`."""
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ModuleNotFoundError:
            raise missing_extra("lab", "ray") from None
        if not ray.is_initialized():
            address = named(address)
            here = {} if address else {"num_cpus": cores(), "include_dashboard": False} | local
            try:
                _knock(address)
                with _handlers_kept():
                    ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
            except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
                where = f"There is no Ray cluster at {address!r}" if address else "Ray does not start"
                remedy = ": begin one with 'ray start --head', or leave --address out" if address else ""
                if address and isinstance(error, ConnectionError) and lines(error)[0].startswith("Failed to connect"):
                    where = f"Ray does not let us in at {address!r}"
                    remedy = (
                        ": if its cluster asks for a token, set RAY_AUTH_MODE=token here, and have the same ~/.ray/auth_token"
                    )
                raise UsageError(f"{where} ({lines(error)[0]}){remedy}.") from None
            cls.own, cls.users = True, 0
        cls.users += 1
        return ray

    @classmethod
    def leave(cls) -> None:
        import ray

        cls.users -= 1
        if cls.own and cls.users <= 0:
            cls.own = False
            ray.shutdown()


def named(address: str | None = None) -> str | None:
    """The cluster that is asked for, here or by RAY_ADDRESS; None for Ray on this machine alone."""
    return address or os.environ.get("RAY_ADDRESS")


@contextmanager
def connected(address: str | None = None, **local: Any) -> Iterator[Any]:
    """Ray, as a module, for a while."""
    ray = Session.enter(address, **local)
    try:
        yield ray
    finally:
        Session.leave()


def lines(error: Exception) -> list[str]:
    """What an error says, one line at least."""
    return [line.strip().rstrip(".:") for line in str(error).splitlines() if line.strip()] or [type(error).__name__]


def check_gpus(ray: Any, wanted: bool) -> None:
    """Refuses trials on GPUs where there are none."""
    if wanted and not ray.cluster_resources().get("GPU"):
        raise UsageError(
            "The experiment's device is cuda, and Ray sees no GPU here: set device = 'cpu', or --address a cluster."
        )


def most_cores(ray: Any) -> int:
    """Those of the largest machine: a trial that asks for more would wait for ever."""
    return int(max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=1)) or 1


def _knock(address: str | None) -> None:
    """Refuses an address where nobody listens."""
    if address and address not in ("auto", "local"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if not (host and port.isdecimal()):
            raise ValueError("an address is HOST:PORT, ray://HOST:PORT or auto, for the one that runs on this machine")
        socket.create_connection((host, int(port)), PATIENCE).close()


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; a run has its own answer to it."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
