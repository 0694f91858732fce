"""Do runs survive? A campaign of faults against run folders and the command line, from outside.

    python benchmarks/survival.py                         # all of it, some minutes on one core
    python benchmarks/survival.py kills modes --seed 3    # some of it, with other draws
    python benchmarks/survival.py kills --times 3         # three times as many cases; 0.1: a tenth of them

Every case ends in one of two ways: the command does what it should, or it says in one sentence what is wrong and exits with 2.
What a fault left behind must be recoverable: the run then goes on, and ends to the bit as one that nothing happened to (games:
it ends). Counted are the cases and those that went otherwise, which should be 0; the first of each kind are printed.

Commands run in forks of this process, which has everything imported: a case takes a fraction of a second.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import resource
import shutil
import signal
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from damage import checkpoints, configurations, rows
from ex2.tasks import doom_game, doom_player, find_task
from ex2.training import checkpoint
from ex2.training.loop import LEARNED, not_finite
from ex2.training.run import CHECKPOINT
from misuse import misuse
from victim import (
    Answer,
    Case,
    ask,
    copied,
    ended,
    essence,
    finish,
    import_all,
    made,
    newest,
    start,
    steps_of,
    stopped,
    touching,
    training,
)

Part = Callable[[Path, np.random.Generator, float], Iterator[Case]]
TASKS = {"maze": 0.6, "cheetah": 0.16, "gather": 0.1, "freeway": 0.07, "doom": 0.07}
"""Which tasks are killed, and how often."""
NOBODY = 65534  # the number of a user without rights


def kills(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """kill -9 at any instant of a training and of what goes on from it: by the clock, and at every touch of a file."""
    names, odds = zip(*TASKS.items(), strict=True)
    lasts: dict[str, float] = {}
    left = round(200 * times)
    while left > 0:
        task = str(random.choice(names, p=odds))
        if task not in lasts:
            begun = time.monotonic()
            made(place, task)
            lasts[task] = time.monotonic() - begun
        whole, folder, steps = place / f"whole-{task}", place / "killed", 0
        shutil.rmtree(folder, ignore_errors=True)
        words: list[str] = []
        cases: list[Case] = []
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
            wrong = Answer(status or 0, (place / "said").read_text(errors="replace")).offence(-9, 0, *((2,) if number else ()))
            wrong = wrong or ("" if newest(folder) >= steps else f"the checkpoint of step {steps} is lost")
            steps = newest(folder)
            if status == -signal.SIGKILL or wrong:
                cases.append((f"{task}: {', '.join(words)}", wrong))
        answer = finish(place, folder, task)
        wrong = answer.offence(0)
        if not wrong and steps_of(folder) != steps_of(whole):
            wrong = f"rows {steps_of(folder)}"
        if not wrong and find_task(task).exact and essence(folder) != essence(whole):
            wrong = "another end than that of the whole run"
        if wrong:  # the fault of the last kill
            cases[-1:] = [(f"{task}: {', '.join(words)}, then {'gone on' if steps else 'begun again'}", wrong)]
        left -= len(cases)
        yield from cases


def games(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """kill -9 of a training of Doom leaves no game, no folder and no shared memory; a game that hangs stops no training."""
    lasts = time.monotonic()
    made(place, "doom")
    lasts = time.monotonic() - lasts
    for number in range(round(20 * times)):
        shutil.rmtree(place / "killed", ignore_errors=True)
        after = float(random.random()) * lasts
        process = start(training("doom", place / "killed"), place / "said")
        status = ended(process, after)
        if status is None:
            os.kill(process, signal.SIGKILL)
            ended(process, 60)
        until = time.monotonic() + 12.0
        while (found := leftovers(place)) and time.monotonic() < until:
            time.sleep(0.02)
        if found == [
            str(path) for path in place.glob(f"{doom_player.PREFIX}*")
        ]:  # nobody had begun to play: the next start does it
            doom_player.sweep()
            found = leftovers(place)
        yield f"kill {number} after {after:.2f} s", f"left: {found}" if found else ""
    for number in range(round(6 * times)):
        who = ["game", "player"][number % 2]
        shutil.rmtree(place / "hung", ignore_errors=True)
        process = start(training("doom", place / "hung", "task.answer_seconds=1", steps=4800), place / "said")
        until = time.monotonic() + 20.0
        while not (place / "hung" / "metrics.csv").exists() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(float(random.random()) * 0.5)
        folders = list(place.glob(f"{doom_player.PREFIX}*/*"))
        hung = doom_game.started(folders[int(random.integers(len(folders)))]) if folders else None
        if hung is not None:
            with contextlib.suppress(ProcessLookupError):  # the training has just ended
                os.kill(hung if who == "game" else os.getpgid(hung), signal.SIGSTOP)
        status = ended(process, 60.0)
        if status is None:
            os.kill(process, signal.SIGKILL)
            ended(process, 60)
        wrong = "stalled" if status is None else Answer(status, (place / "said").read_text()).offence(0)
        yield f"a {who} hangs", wrong or ("" if hung is not None else "none was there to be stopped")


def leftovers(place: Path) -> list[str]:
    """What is left of games with temporary folders in a place: processes, folders, shared memory."""
    found = [str(path) for path in place.glob(f"*{doom_player.PREFIX}*")]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{place}/{doom_player.PREFIX}" in (process / "cmdline").read_text():
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found + [str(path) for path in doom_game.SHARED.glob("ViZDoom*")]


def commands(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """Misuse of the command line."""
    os.chdir(place)
    wrong_ones = misuse(place, random)
    for words in [wrong_ones[index] for index in random.permutation(len(wrong_ones))[: round(len(wrong_ones) * times)]]:
        shutil.rmtree(place / "new", ignore_errors=True)
        yield f"ex2 {' '.join(map(str, words))}"[:300], ask(place, *words, patience=4.0).offence()


def twice(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """Two trainings of a folder at once: the second is refused, and the first named."""
    whole = essence(made(place))
    for number in range(round(10 * times)):
        folder = copied(stopped(place), place) if number % 2 else place / "both"
        shutil.rmtree(place / "both", ignore_errors=True)
        arguments = ["resume", str(folder)] if number % 2 else training("maze", folder)
        processes = []
        for index in range(2):
            processes.append(start(arguments, place / f"said-{index}"))
            time.sleep(float(random.random()) * 0.6)  # by then the first may have ended
        answers = [
            Answer(ended(process, 60) or 0, (place / f"said-{index}").read_text()) for index, process in enumerate(processes)
        ]
        wrong = answers[0].offence() or answers[1].offence()
        good = [answer for answer in answers if answer.status == 0]
        refused = [(answer, other) for answer, other in zip(answers, reversed(processes), strict=True) if answer.status == 2]
        if not wrong and (not good or (len(good) == 2 and not number % 2)):
            wrong = f"{len(good)} have trained: {answers}"
        for answer, other in refused:
            if f"process {other}" not in answer.said and "exists already" not in answer.said:
                wrong = wrong or f"the first is not named: {answer.said}"
        wrong = wrong or ("" if essence(folder) == whole and steps_of(folder) == [240, 480, 720, 960] else "another end")
        yield f"two of {arguments[0]}", wrong


def full(words: str) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(getattr(errno, words), os.strerror(getattr(errno, words)))

    return fail


def disks(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """Full disks, files that may not grow, folders without rights: a sentence, and nothing is lost."""
    whole = essence(made(place))
    for number in range(round(60 * times)):
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


def modes(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """What a run leaves can be read by whom the umask lets read."""
    for mask in (0o022, 0o027, 0o077, 0o002):
        folder = place / f"mask-{mask:o}"
        ask(place, *training("maze", folder), prepare=lambda mask=mask: os.umask(mask))
        for path in folder.rglob("*"):
            mode, wanted = stat.S_IMODE(path.stat().st_mode), (0o777 if path.is_dir() else 0o666) & ~mask
            yield f"umask {mask:o}: {path.name}", "" if mode == wanted else f"mode {mode:o}, not {wanted:o}"


def diverging(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """Settings that agents diverge with: it is said, and the checkpoint that stays holds finite numbers only."""
    rates = [
        "algo.learning_rate=1e30",
        "algo.learning_rate=1e10",
        "algo.max_grad_norm=1e30",
        "policy.initial_std=1e-30",
        "policy.initial_std=1e30",
    ]
    rates += [
        "weight.start=1e38",
        "entropy=1e38",
        "algo.vf_coef=1e38",
        "algo.ent_coef=1e38",
        "algo.cg_damping=1e-30",
        "algo.target_kl=1e30",
    ]
    for algo in ("trpo", "ppo"):
        for bonus, settings in {
            "kernel-exemplar": rates,
            "rnd": [*rates, "bonus.learning_rate=1e30"],
            "amortized": ["bonus.learning_rate=1e20"],
            "vime": ["bonus.learning_rate=1e20"],
        }.items():
            for setting in settings:
                folder = place / "diverging"
                shutil.rmtree(folder, ignore_errors=True)
                answer = ask(place, *training("maze", folder, setting, bonus=bonus), "--algo", algo)
                if answer.status == 2 and not folder.exists():  # refused before it began
                    yield f"{algo}, {bonus}, {setting}", answer.offence()
                    continue
                saved = checkpoint.load(folder / CHECKPOINT)
                bad = list(not_finite({name: saved[name] for name in LEARNED}))
                wrong = answer.offence() or (f"a checkpoint with {bad}" if bad else "")
                if not wrong and answer.status == 2 and "diverged" not in answer.said:
                    wrong = f"another reason: {answer.said}"
                yield f"{algo}, {bonus}, {setting}", wrong


PARTS: dict[str, Part] = {
    part.__name__: part for part in (configurations, rows, checkpoints, kills, games, commands, twice, disks, modes, diverging)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--times", type=float, default=1.0, help="so many times as many cases")
    parser.add_argument("--shown", type=int, default=8, help="cases of each part that are printed where they went wrong")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    import_all()
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
        print(
            f"{name:16}{count.total():8}{count['wrong']:8}{time.monotonic() - begun:9.0f}",
            *shown,
            sep="\n" if shown else "",
            flush=True,
        )
    raise SystemExit(1 if wrong_in_all else 0)


if __name__ == "__main__":
    main()
