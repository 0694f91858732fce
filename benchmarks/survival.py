"""Do runs survive? A campaign of faults against run folders and the command line, from outside.

    python benchmarks/survival.py                         # all of it, some minutes on one core
    python benchmarks/survival.py kills games --seed 3    # some of it, with other draws
    python benchmarks/survival.py kills --times 3         # three times as many cases

Every case ends in one of two ways: the command does what it should, or it says in one sentence what is wrong and exits with 2.
What a fault left behind must be recoverable: the run then goes on, and ends to the bit as one that nothing happened to (games:
it ends). Counted are the cases and those that went otherwise, which should be 0; the first of each kind are printed.

Commands run in forks of this process, which has everything imported: a case takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import json
import math
import os
import resource
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open

import ex2
from ex2.bonus import BONUSES
from ex2.cli import main as command_line
from ex2.errors import UsageError
from ex2.training import checkpoint, metrics
from ex2.training.config import configure
from ex2.training.run import CHECKPOINT, CONFIG

Case = tuple[str, str]
"""What was done, and what went wrong: "" if nothing did."""
Part = Callable[[Path, np.random.Generator, int], Iterator[Case]]

SMALL = ["num_envs=4", "rollout_steps=60", "algo.batch_size=60", "checkpoint_every=1", "threads=1"]
MEMORY = 16 * 2**30  # of address space that a command may take
IMPORTED = ["ex2.training.display", "ex2.training.run", "ex2.plots", "ex2.novelty", "ex2.compare", "tensorboard", "torch._dynamo"]
IMPORTED += [f"ex2.tasks.{name}" for name in ("maze", "half_cheetah", "swimmer_gather", "doom", "atari")]  # before any fork
PATIENCE = 30.0  # seconds that a command may take, and then again after Ctrl-C
NOBODY = 65534
ODD = [None, True, -1, 0, 1, -0.5, 2.5, 1e30, 1e-30, math.nan, math.inf, -math.inf, 2**31, 2**63, 2**70, 10**12, "", "abc", "auto"]
ODD += ["cuda:99", "meta", "maze", "none", [], [1], [0], [-1, 2], [[1, 2, 3]], [None], ["a"], {}, {"a": 1}, {"start": 2}, "1", "é\0"]


class Answer(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    said: str

    def offence(self, *allowed: int) -> str:
        """What is wrong with it: anything but one of the statuses that are allowed, and a sentence for status 2."""
        if "Traceback" in self.said or "Exception ignored" in self.said:
            lines = self.said.strip().splitlines()
            return f"a traceback: {lines[-1][:200]} ({' < '.join(line.strip()[-60:] for line in lines[::-1] if 'File' in line)[:300]})"
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


def training(task: str, folder: Path, *extra: str, steps: int = 960, bonus: str = "kernel-exemplar", seed: int = 3) -> list[str]:
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


def configurations(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """Edited configurations: values of other types and sizes, keys gone or new, texts that are no JSON."""
    source = stopped(place)
    text = (source / CONFIG).read_text()
    for _ in range(200 * times):
        config = json.loads(text)
        inner = [name for name, value in config.items() if isinstance(value, dict)]
        part = config[str(random.choice(inner))] if random.random() < 0.5 else config
        names = list(part) or ["new"]
        name, value = str(random.choice(names)), ODD[random.integers(len(ODD))]
        kind = str(random.choice(["value", "value", "value", "value", "gone", "new"]))
        if kind == "gone":
            part.pop(name, None)
        else:
            part[name if kind == "value" else f"{name}_"] = value
        folder = copied(source, place)
        (folder / CONFIG).write_text(json.dumps(config))
        yield f"{kind} {name}={value!r}", ask(place, "resume", folder, patience=3.0).offence()
    for odd in (b"", b"{", b"[]", b"null", b"\xff\xfe\0", text.encode()[:100], b'{"task": "maze"}', b"0" * 10_000, b'"' + b"[" * 99_999):
        folder = copied(source, place)
        (folder / CONFIG).write_bytes(odd)
        for command in ("resume", "eval"):
            yield f"{command} of a configuration {odd[:20]!r}", ask(place, command, folder).offence(2)


def damaged_rows(text: bytes, random: np.random.Generator) -> tuple[str, bytes]:
    """Metrics with a fault, and its name."""
    lines = text.splitlines(keepends=True)
    at, line = int(random.integers(len(text))), int(random.integers(1, len(lines)))
    cell = [b"nan", b"inf", b"-1", b"1e999", b"x", b"", b"480", b"1" * 5_000, b"\xff"][random.integers(9)]
    cells = lines[line].rstrip(b"\r\n").split(b",")
    cells[random.integers(len(cells))] = cell
    faults = {
        "cut": text[:at],
        "NULs": text[:at] + b"\0" * int(random.integers(1, 5_000)),
        "NULs inside": text[:at] + b"\0" * 5 + text[at + 5 :],
        "noise": text[:at] + random.bytes(20) + text[at + 20 :],
        "a cell": b"".join([*lines[:line], b",".join(cells) + b"\r\n", *lines[line + 1 :]]),
        "a line twice": b"".join([*lines[:line], lines[line], *lines[line:]]),
        "a line gone": b"".join([*lines[:line], *lines[line + 1 :]]),
        "lines in another order": b"".join([lines[0], *(lines[1:][i] for i in random.permutation(len(lines) - 1))]),
        "a header again": text + lines[0],
        "a line of more cells": text + b"1," * 500 + b"\r\n",
        "empty": b"",
    }
    name = str(random.choice(list(faults)))
    return name, faults[name]


def rows(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """Damaged metrics: a run goes on from them, and rows that are whole are kept."""
    source = stopped(place)
    text = (source / "metrics.csv").read_bytes()
    header, *lines = text.splitlines()
    for _ in range(60 * times):
        name, damaged = damaged_rows(text, random)
        folder = copied(source, place)
        (folder / "metrics.csv").write_bytes(damaged)
        kept = {float(line.split(b",")[0]) for line in lines if header in damaged and line + b"\r\n" in damaged}
        answer = ask(place, "resume", folder)
        lost = kept - set(steps_of(folder)) if name != "lines in another order" else set()
        wrong = answer.offence(0) or (f"rows {lost} were whole" if lost else "")
        yield name, wrong or ("rows are missing" if steps_of(folder)[-1] != 960 else "")
    for name, change in {"no metrics": Path.unlink, "a folder in their place": lambda path: (path.unlink(), path.mkdir())}.items():
        folder = copied(source, place)
        change(folder / "metrics.csv")
        yield name, ask(place, "resume", folder).offence(*((0,) if name == "no metrics" else (2,)))


def checkpoints(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """Damaged checkpoints: every one is found, and the one before it is offered and can be gone on from."""
    source, whole = stopped(place), essence(made(place))
    path = source / CHECKPOINT
    good = path.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    for number in range(400 * times):
        at = int(random.integers(header if random.random() < 0.5 else len(good)))
        kind = ["a bit", "a bit", "cut", "noise", "zeros", "more"][number % 6]
        flipped = bytes([good[at] ^ (1 << int(random.integers(8)))])
        damaged = {
            "a bit": good[:at] + flipped + good[at + 1 :],
            "cut": good[:at],
            "noise": good[:at] + random.bytes(64) + good[at + 64 :],
            "zeros": good[:at] + bytes(len(good[at : at + 512])) + good[at + 512 :],
            "more": good + random.bytes(1 + at % 99),
        }[kind]
        if damaged == good:  # zeros where there were zeros
            continue
        folder = copied(source, place) if number % 20 == 0 else place
        target = folder / CHECKPOINT
        target.write_bytes(damaged)
        try:
            checkpoint.load(target)
            wrong = "loaded silently"
        except UsageError:
            wrong = ""
        except Exception as error:
            wrong = f"a traceback: {type(error).__name__}: {error}"
        if number % 20 == 0 and not wrong:
            answer = ask(place, "resume", folder)
            wrong = answer.offence(2) or ("" if "--previous" in answer.said else f"no offer: {answer.said}")
            wrong = wrong or ask(place, "resume", folder, "--previous").offence(0)
            wrong = wrong or ("" if essence(folder) == whole else "another end than that of the whole run")
        yield f"{kind} at {at}", wrong


TASKS = {"maze": 0.6, "cheetah": 0.15, "gather": 0.1, "doom": 0.08, "freeway": 0.07}
"""Which tasks are killed, and how often."""


def touching(folder: Path, count: int, do: Callable[[], Any]) -> Callable[[], None]:
    """Has a process do something when it opens, renames, links or removes a file in a folder for the nth time."""
    left = count

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate") and str(folder) in str(arguments):
            left -= 1
            if left == 0:
                do()

    return lambda: sys.addaudithook(hook)


def finish(place: Path, folder: Path, task: str) -> Answer:
    """What a person does after a kill: go on, or, where nothing was saved yet, begin again."""
    answer = ask(place, "resume", folder)
    return answer if answer.status != 2 else ask(place, *training(task, folder))


def newest(folder: Path) -> int:
    """The step of the newest checkpoint."""
    try:
        return int(checkpoint.load(folder / CHECKPOINT)["steps"])
    except UsageError:
        return 0


def kills(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """kill -9 at any instant of a training and of what goes on from it: by the clock, and at every touch of a file."""
    names, odds = zip(*TASKS.items(), strict=True)
    lasts: dict[str, float] = {}
    left = 200 * times
    while left > 0:
        task = str(random.choice(names, p=odds))
        if task not in lasts:
            begun = time.monotonic()
            made(place, task)
            lasts[task] = time.monotonic() - begun
        whole, folder, steps = place / f"whole-{task}", place / "killed", 0
        shutil.rmtree(folder, ignore_errors=True)
        words: list[str] = []
        for number in range(4):
            resumed = (folder / CHECKPOINT).exists() and random.random() < 0.9
            arguments = ["resume", str(folder)] if resumed else training(task, folder)
            touch = int(random.integers(1, 60)) if random.random() < 0.5 else 0
            after = float(random.random()) * lasts[task]
            prepare = touching(folder, touch, lambda: os.kill(os.getpid(), signal.SIGKILL)) if touch else lambda: None
            process = start(arguments, place / "said", prepare)
            status = ended(process, 60.0 if touch else after)
            if status is None:
                os.kill(process, signal.SIGKILL)
                status = ended(process, 60)
            words.append(f"{arguments[0]} {f'at touch {touch}' if touch else f'after {after:.2f} s'} ({status})")
            if status == -signal.SIGKILL:
                left -= 1
            wrong = Answer(status or 0, (place / "said").read_text(errors="replace")).offence(-9, 0, *((2,) if number else ()))
            wrong = wrong or ("" if newest(folder) >= steps else f"the checkpoint of step {steps} is lost")
            steps = newest(folder)
            if number < 3 or wrong:
                yield f"{task}: {', '.join(words)}", wrong
        answer = finish(place, folder, task)
        wrong = answer.offence(0)
        if not wrong and steps_of(folder) != steps_of(whole):
            wrong = f"rows {steps_of(folder)}"
        if not wrong and task not in ("doom", "freeway") and essence(folder) != essence(whole):
            wrong = "another end than that of the whole run"
        yield f"{task}: {', '.join(words)}, then {'gone on' if steps else 'begun again'}", wrong


def left_behind() -> tuple[list[str], list[Path], list[Path]]:
    """Processes, folders and shared memory of games."""
    processes = [path.parent.name for path in Path("/proc").glob("[0-9]*/cwd") if _cwd(path).startswith(tempfile.gettempdir() + "/ex2-doom")]
    folders = list(Path(tempfile.gettempdir()).glob("*ex2-doom-*"))
    return processes, folders, list(Path("/dev/shm").glob("ViZDoom*"))


def _cwd(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def games(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """Doom: nothing is left after kill -9; a game that hangs stalls neither the run nor Ctrl-C."""
    from ex2.tasks import doom_game

    for _ in range(20 * times):
        folder = place / "doom"
        shutil.rmtree(folder, ignore_errors=True)
        process = start(training("doom", folder, steps=10**6), place / "said")
        time.sleep(float(random.uniform(0.05, 1.5)))
        os.kill(process, signal.SIGKILL)
        ended(process, 60)
        time.sleep(0.3)
        alive = left_behind()[0]
        doom_game.sweep()  # as the next start does
        _, folders, shared = left_behind()
        wrong = f"games {alive}, folders {folders}, memory {shared}" if alive or folders or shared else ""
        yield "kill -9", wrong
    for stop in ([], [1], [1, 2]) * times:
        folder = place / "doom"
        shutil.rmtree(folder, ignore_errors=True)
        steps = 480 if not stop else 10**6
        process = start(training("doom", folder, "task.answer_seconds=2", steps=steps), place / "said", fork=False)
        until = time.monotonic() + 60
        while len(found := [pid for pid in left_behind()[0] if _name(pid) == "vizdoom"]) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(int(found[0]), signal.SIGSTOP)
        time.sleep(0.3)
        for _ in stop:
            os.kill(process, signal.SIGINT)
            time.sleep(0.3)
        status = ended(process, 30)
        if status is None:
            os.kill(process, signal.SIGKILL)
            ended(process, 60)
        said = (place / "said").read_text()
        wrong = "stalled" if status is None else Answer(status, said).offence(0 if not stop else 130)
        if not wrong and any(left_behind()):
            wrong = f"left {left_behind()}"
        yield f"a game that hangs, Ctrl-C {len(stop)} times", wrong


def _name(process: str) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def misuse(place: Path, random: np.random.Generator) -> list[list[Any]]:
    """Commands that a person may get wrong."""
    folder, file, new = made(place), place / "file", place / "new"
    file.write_text("x")
    (place / "empty").mkdir(exist_ok=True)
    commands: list[list[Any]] = [[], ["nope"], ["train"], ["train", "mase"], ["train", "maze", "--env", "CartPole-v1"], ["--nope"]]
    commands += [["train", "--env", name] for name in ("", "Nope-v0", "nope:Nope-v0", "json:Nope", "CartPole", "../x", ":", "a:b:c", "Blackjack-v1")]
    for words in (
        *(["--bonus", name] for name in ("", "nope", "+", "rnd+", "none+none", "rnd+rnd", "rnd+simhash+nope", "kde+none")),
        *(["--algo", name] for name in ("", "sac", "PPO")),
        *(["--preset", name] for name in ("", "papers")),
        *(["--device", name] for name in ("", "gpu", "meta", "cuda:99", "cpu:3", "cuda:-1", "mps", "xpu", "cuda:x", "é")),
        *(["--steps", number] for number in (0, -1, "x", 10**30, 1.5, "nan")),
        *(["--seed", number] for number in (-1, 2**64, 10**40, "x", 1.5)),
        *(["--threads", number] for number in (0, -1, 10**9, 10**30)),
        *(["--out", path] for path in (file, folder, file / "x", "", "/proc/nope", "/dev/null", "/nope\0x", "x" * 300)),
        *(["--actor-of", path] for path in (file, place / "empty", "nope", "")),
        *(["--set", text] for text in ("", "=", "x", "a=b", "bonus.=1", ".=1", "task.nope=1", "task.render_mode=human", "task.num_envs=3")),
        *(["--set", text] for text in ("task.max_episode_steps=0", "task.max_episode_steps=-3", 'task.max_episode_steps="x"', "task.autoreset_mode=x")),
        *(["--set", text] for text in ("seed=3", "steps=10", "bonus=rnd", "task=doom", "weight=1", "device=meta", "actor_of=/nope", "bonus.replay_capacity=1000000000000")),
        *(["--set", text] for text in ("num_envs=1000000000", "rollout_steps=100000000000", "policy.hidden=[1000000000]", "policy.hidden=[]", "groups=2", "stack=4")),
        ["--bonus", "none", "--set", "bonus.k=1"],
    ):
        commands.append(["train", "maze", *words])
    for task in ("doom", "freeway", "cheetah", "gather"):
        commands += [["train", task, "--set", text] for text in ("task.nope=1", "num_envs=0", "stack=3", "task.threads=-1", "policy.convolutions=[[1,99,1]]")]
    for command in ("resume", "eval", "novelty", "plot", "density-figure"):
        commands += [[command, path] for path in (file, place / "empty", "nope", "", "/dev/null", "/nope\0x", "x" * 300)] + [[command, folder, "--nope"]]
    commands += [["eval", folder, "--episodes", number] for number in (0, -1, "x")] + [["eval", folder, "--seed", -1]]
    commands += [["eval", folder, "--episodes", 1, "--video", name] for name in ("x", "x.avi", place / "no" / "x.mp4", file / "x.mp4", "/dev/null", "")]
    commands += [["plot", folder, "--out", path] for path in (place / "no" / "x.png", place, "x.nope", "")]
    commands += [["plot", folder, "--beside", path] for path in (file, place, "nope", folder / "metrics.csv", folder / CHECKPOINT)]
    commands += [["plot", folder, place / "empty"], ["plot", folder, "nope"], ["plot", folder, folder, "--out", place]]
    commands += [["novelty", folder, "--out", path] for path in (place / "no" / "x.png", place, "x.nope")] + [["novelty", folder, "--seed", -1]]
    commands += [["density-figure", folder, *words] for words in (["--model", "nope"], ["--out", place / "no" / "x.png"], ["--out", place])]
    commands += [["play", task] for task in ("", "nope", "maze\0")] + [["play", "maze", "--episodes", 0], ["play", "maze", "--video", "x.avi"]]
    commands += [["bonuses", name] for name in ("nope", "", "+", "rnd+nope")] + [["resume", folder, "--previous"], ["tasks", "x"]]
    for _ in range(80):
        config = configure("maze", str(random.choice([name for name in BONUSES if name != "none"]))).as_dict()
        part = str(random.choice(["", "", "policy", "weight", "bonus", "algo", "task"]))
        names = list(config[{"bonus": "bonus_settings", "algo": "algo_settings", "task": "task_settings"}.get(part, part)] if part else config)
        key = ".".join(filter(None, [part, str(random.choice(names or ["sparse"]))]))
        value = json.dumps(ODD[random.integers(len(ODD))])
        commands.append(["train", "maze", "--bonus", config["bonus"], "--steps", 480, "--set", "num_envs=4", "--set", "rollout_steps=60", "--set", f"{key}={value}"])
    return [[*words, "--out", new] if words[:1] == ["train"] and "--out" not in words else words for words in commands]


def commands(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """Misuse of the command line."""
    os.chdir(place)
    for words in misuse(place, random) * times:
        shutil.rmtree(place / "new", ignore_errors=True)
        yield f"ex2 {' '.join(map(str, words))}"[:300], ask(place, *words, patience=4.0).offence()


def twice(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """Two trainings of a folder at once: the second is refused, and the first named."""
    whole = essence(made(place))
    for number in range(10 * times):
        folder = copied(stopped(place), place) if number % 2 else place / "both"
        shutil.rmtree(place / "both", ignore_errors=True)
        arguments = ["resume", str(folder)] if number % 2 else training("maze", folder)
        processes = [start(arguments, place / f"said-{index}") for index in range(2)]
        answers = [Answer(ended(process, 60) or 0, (place / f"said-{index}").read_text()) for index, process in enumerate(processes)]
        wrong = answers[0].offence() or answers[1].offence()
        good = [answer for answer in answers if answer.status == 0]
        refused = [(answer, other) for answer, other in zip(answers, reversed(processes), strict=True) if answer.status == 2]
        if not wrong and not good:
            wrong = f"nobody trained: {answers}"
        for answer, other in refused:
            if f"process {other}" not in answer.said and "exists already" not in answer.said:
                wrong = wrong or f"the first is not named: {answer.said}"
        wrong = wrong or ("" if essence(folder) == whole and steps_of(folder) == [240, 480, 720, 960] else "another end")
        yield f"two of {arguments[0]}", wrong


def full(words: str) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(getattr(errno, words), os.strerror(getattr(errno, words)))

    return fail


def disks(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """Full disks, files that may not grow, folders without rights: a sentence, and nothing is lost."""
    whole = essence(made(place))
    for number in range(60 * times):
        resumed = number % 2 == 1
        folder = copied(stopped(place), place) if resumed else place / "disk"
        if not resumed:
            shutil.rmtree(folder, ignore_errors=True)
        arguments = ["resume", str(folder)] if resumed else training("maze", folder)
        if number % 3 == 0:
            size = int(2 ** random.uniform(10, 17))
            words, prepare = f"files of {size} bytes", lambda size=size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        else:
            kind, touch = ["ENOSPC", "EROFS", "EDQUOT", "EIO"][number % 4], int(random.integers(1, 50))
            words, prepare = f"{kind} at touch {touch}", touching(folder, touch, full(kind))
        before = newest(folder)
        answer = ask(place, *arguments, prepare=prepare)
        wrong = answer.offence() or ("" if newest(folder) >= before else "a checkpoint is lost")
        wrong = wrong or finish(place, folder, "maze").offence(0)
        wrong = wrong or ("" if essence(folder) == whole and steps_of(folder) == [240, 480, 720, 960] else "another end")
        yield f"{arguments[0]}, {words}", wrong
    if os.getuid() == 0:
        place.chmod(0o755)
        for command in ("resume", "eval", "plot", "novelty", "train"):
            for mode in (0o755, 0o700):
                folder = copied(stopped(place), place)
                for path in (folder, *folder.rglob("*")):
                    path.chmod(mode if path.is_dir() else mode & 0o644)
                arguments = training("maze", folder / "new") if command == "train" else [command, str(folder)]
                answer = ask(place, *arguments, prepare=lambda: os.setuid(NOBODY))
                yield f"{command} by another user, folder of mode {mode:o}", answer.offence()


def modes(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """What a run leaves can be read by whom the umask lets read."""
    for mask in (0o022, 0o027, 0o077, 0o002):
        folder = place / f"mask-{mask:o}"
        ask(place, *training("maze", folder), prepare=lambda mask=mask: os.umask(mask))
        for path in folder.rglob("*"):
            mode, wanted = stat.S_IMODE(path.stat().st_mode), (0o777 if path.is_dir() else 0o666) & ~mask
            yield f"umask {mask:o}: {path.name}", "" if mode == wanted else f"mode {mode:o}, not {wanted:o}"


def diverging(place: Path, random: np.random.Generator, times: int) -> Iterator[Case]:
    """Settings that agents diverge with: it is said, and the checkpoint that stays holds finite numbers only."""
    rates = ["algo.learning_rate=1e30", "algo.learning_rate=1e10", "algo.max_grad_norm=1e30", "policy.initial_std=1e-30", "policy.initial_std=1e30"]
    rates += ["weight.start=1e38", "entropy=1e38", "algo.vf_coef=1e38", "algo.ent_coef=1e38", "algo.cg_damping=1e-30", "algo.target_kl=1e30"]
    for algo in ("trpo", "ppo"):
        for bonus, more in {"kernel-exemplar": [], "rnd": ["bonus.learning_rate=1e30"], "amortized": ["bonus.learning_rate=1e20"], "vime": ["bonus.learning_rate=1e20"]}.items():
            for setting in [*rates, *more]:
                folder = place / "diverging"
                shutil.rmtree(folder, ignore_errors=True)
                answer = ask(place, *training("maze", folder, setting, bonus=bonus), "--algo", algo)
                if answer.status == 2 and not folder.exists():  # refused before it began
                    yield f"{algo}, {bonus}, {setting}", answer.offence()
                    continue
                wrong = answer.offence() or ("" if not infinite(checkpoint.load(folder / CHECKPOINT)) else "a checkpoint that is not finite")
                if not wrong and answer.status == 2 and "diverged" not in answer.said:
                    wrong = f"another reason: {answer.said}"
                yield f"{algo}, {bonus}, {setting}", wrong


def infinite(value: Any) -> bool:
    """Whether a policy, or what trains it, holds numbers that are none."""
    if isinstance(value, dict):
        return any(infinite(item) for name, item in value.items() if name in ("policy", "algorithm", "optimizer") or not isinstance(name, str) or "." in name or name.startswith("exp"))
    return isinstance(value, torch.Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all())


PARTS: dict[str, Part] = {
    part.__name__: part for part in (configurations, rows, checkpoints, kills, games, commands, twice, disks, modes, diverging)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=int, default=1, help="so many times as many cases")
    parser.add_argument("--shown", type=int, default=8, help="cases of each part that are printed where they went wrong")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()  # so that collections in forks copy nothing
    wrong_in_all = 0
    print(f"{'part':16}{'cases':>8}{'wrong':>8}{'seconds':>9}", flush=True)
    for name in chosen.parts or PARTS:
        begun, count, shown = time.monotonic(), Counter[str](), list[str]()
        with tempfile.TemporaryDirectory(prefix="ex2-survival-") as place:
            os.environ["TMPDIR"] = tempfile.tempdir = place
            for words, wrong in PARTS[name](Path(place), np.random.default_rng(chosen.seed), chosen.times):
                count["wrong" if wrong else "right"] += 1
                if wrong and len(shown) < chosen.shown:
                    shown.append(f"    {words}\n        {wrong}")
            os.chdir("/")
            os.environ.pop("TMPDIR")
            tempfile.tempdir = None
        wrong_in_all += count["wrong"]
        print(f"{name:16}{count.total():8}{count['wrong']:8}{time.monotonic() - begun:9.0f}", *shown, sep="\n" if shown else "", flush=True)
    raise SystemExit(1 if wrong_in_all else 0)


if __name__ == "__main__":
    main()
