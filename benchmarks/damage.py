"""Files of a run that are damaged or edited, for benchmarks/survival.py: nothing is taken that should not be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ex2.errors import UsageError
from ex2.training import checkpoint
from ex2.training.run import CHECKPOINT, CONFIG
from misuse import ODD
from victim import Case, ask, copied, essence, made, steps_of, stopped


def configurations(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """Edited configurations: values of other types and sizes, keys gone or new, texts that are no JSON."""
    source = stopped(place)
    text = (source / CONFIG).read_text()
    for _ in range(round(200 * times)):
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
    for odd in (
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\0",
        text.encode()[:100],
        b'{"task": "maze"}',
        b"0" * 10_000,
        b'"' + b"[" * 99_999,
    ):
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


def rows(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """Damaged metrics: a run goes on from them, and rows that are whole are kept."""
    source = stopped(place)
    text = (source / "metrics.csv").read_bytes()
    header, *lines = text.splitlines()
    for _ in range(round(60 * times)):
        name, damaged = damaged_rows(text, random)
        folder = copied(source, place)
        (folder / "metrics.csv").write_bytes(damaged)
        kept = {float(line.split(b",")[0]) for line in lines if header in damaged and line + b"\r\n" in damaged}
        answer = ask(place, "resume", folder)
        lost = kept - set(steps_of(folder)) if name != "lines in another order" else set()
        wrong = answer.offence(0) or (f"rows {lost} were whole" if lost else "")
        yield name, wrong or ("rows are missing" if steps_of(folder)[-1] != 960 else "")
    for name, change in {
        "no metrics": Path.unlink,
        "a folder in their place": lambda path: (path.unlink(), path.mkdir()),
    }.items():
        folder = copied(source, place)
        change(folder / "metrics.csv")
        yield name, ask(place, "resume", folder).offence(*((0,) if name == "no metrics" else (2,)))


def checkpoints(place: Path, random: np.random.Generator, times: float) -> Iterator[Case]:
    """Damaged checkpoints: every one is found, and the one before it is offered and can be gone on from."""
    source, whole = stopped(place), essence(made(place))
    path = source / CHECKPOINT
    good = path.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    for number in range(round(400 * times)):
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
