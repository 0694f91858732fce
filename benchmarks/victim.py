"""What a campaign does to runs: `ex2` is run in forks, or in processes of its own, stopped at chosen instants, and judged."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open

from ex2.cli import main as command_line
from ex2.errors import UsageError
from ex2.training import checkpoint, metrics
from ex2.training.run import CHECKPOINT

Case = tuple[str, str]
"""What was done, and what went wrong: "" if nothing did."""
SMALL = ["num_envs=4", "rollout_steps=60", "algo.batch_size=60", "checkpoint_every=1", "threads=1"]
MEMORY = 16 * 2**30  # of address space that a command may take
PATIENCE = 30.0  # seconds that a command may take, and then again after Ctrl-C
IMPORTED = ["ex2.training.display", "ex2.plots", "ex2.novelty", "ex2.compare", "ex2.training.presets.maze", "torch._dynamo"]
IMPORTED += [f"ex2.tasks.{name}" for name in ("maze", "half_cheetah", "swimmer_gather", "doom", "atari")]
IMPORTED += ["importlib.readers", "importlib.resources.readers", "rich._emoji_codes", "torch.profiler"]
TOUCHES = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate")


def import_all() -> None:
    """So that forks need not."""
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()  # collections in forks then copy nothing


class Answer(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    said: str

    def offence(self, *allowed: int) -> str:
        """What is wrong with it: anything but one of the statuses that are allowed, and a sentence for status 2."""
        if "Traceback" in self.said or "Exception ignored" in self.said:
            lines = self.said.strip().splitlines()
            places = " < ".join(line.strip()[-60:] for line in lines[::-1] if "File" in line)
            return f"a traceback: {lines[-1][:200]} ({places[:300]})"
        if self.status not in (allowed or (0, 2, 130)):
            return f"status {self.status}: {self.said.strip()[-200:]}"
        errors = [line for line in self.said.splitlines() if line.startswith("ex2: ")]
        if self.status == 2 and len(errors) != 1 and "usage: " not in self.said:
            return f"{len(errors)} sentences: {self.said.strip()[-200:]}"
        return ""


def start(arguments: list[str], said: Path, prepare: Callable[[], Any] = lambda: None, fork: bool = True) -> int:
    """Runs `ex2 ARGUMENTS` in a fork, or in a Python of its own, with its output in a file; returns its process."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    status: Any = 99
    try:
        file = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(file, 1)
        os.dup2(file, 2)
        if not fork:
            os.execv(sys.executable, [sys.executable, "-m", "ex2", *arguments])
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        warnings.simplefilter("default")
        prepare()
        status = command_line(arguments)
        gc.collect()
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 99)


def ended(process: int, seconds: float) -> int | None:
    """The status of a process, or minus the signal that ended it; None if it has not ended after so long."""
    until = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.002)


def ask(folder: Path, *arguments: Any, prepare: Callable[[], Any] = lambda: None, patience: float = PATIENCE) -> Answer:
    """Runs a command to its end. One that goes on and on, as it may have been told to, is stopped by Ctrl-C."""
    said = folder / "said"
    process = start([str(word) for word in arguments], said, prepare)
    status = ended(process, patience)
    if status is None:
        os.kill(process, signal.SIGINT)
        status = ended(process, patience + 10)
    if status is None:
        os.kill(process, signal.SIGKILL)
        ended(process, 60)
        status = 98  # stalled
    return Answer(status, said.read_text(errors="replace"))


def training(
    task: str, folder: Path, *extra: str, steps: int = 960, bonus: str = "kernel-exemplar", seed: int = 3
) -> list[str]:
    """The command of a small training."""
    words = ["train", task, "--bonus", bonus, "--steps", str(steps), "--seed", str(seed), "--out", str(folder)]
    return words + [word for setting in (*SMALL, *extra) for word in ("--set", setting)]


def essence(folder: Path) -> str:
    """A digest of all that a run's checkpoint says, but for the time it took."""
    state = checkpoint.load(folder / CHECKPOINT)
    rewritten = folder.parent / "essence"
    checkpoint.save(rewritten, {name: value for name, value in state.items() if "seconds" not in name})
    with safe_open(rewritten, framework="numpy") as file:
        return str(file.metadata()["digest"])


def steps_of(folder: Path) -> list[float]:
    return [row["step"] for row in metrics.read(folder / "metrics.csv")]


def newest(folder: Path) -> int:
    """The step of the newest checkpoint."""
    try:
        return int(checkpoint.load(folder / CHECKPOINT)["steps"])
    except UsageError:
        return 0


def made(place: Path, task: str = "maze", **settings: Any) -> Path:
    """A finished run that faults are tried on copies of."""
    folder = place / f"whole-{task}"
    if not folder.exists():
        answer = ask(place, *training(task, folder, **settings))
        assert answer.status == 0, answer.said
    return folder


def stopped(place: Path) -> Path:
    """The same run, stopped by Ctrl-C after half of it."""
    folder = place / "stopped"
    if not folder.exists():
        process = start(training("maze", folder), place / "said", lambda: when_written(folder, 480, signal.SIGINT))
        assert ended(process, PATIENCE) == 130, (place / "said").read_text()
    return folder


def when_written(folder: Path, step: int, number: int) -> None:
    """Has this process send itself a signal once a checkpoint of a step has been put in its place."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith("metrics.csv") and arguments[1] == "a" and step in steps_of(folder):
            os.kill(os.getpid(), number)

    sys.addaudithook(hook)


def copied(source: Path, place: Path) -> Path:
    target = place / "copy"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


def touching(folder: Path, count: int, do: Callable[[], Any]) -> Callable[[], None]:
    """Has a process do something when it opens, renames, links or removes a file in a folder for the nth time."""
    left = count

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in TOUCHES and str(folder) in str(arguments):
            left -= 1
            if left == 0:
                do()

    return lambda: sys.addaudithook(hook)


def finish(place: Path, folder: Path, task: str) -> Answer:
    """What a person does after a kill: go on, or, where nothing was saved yet, begin again."""
    answer = ask(place, "resume", folder)
    return answer if answer.status != 2 else ask(place, *training(task, folder))
