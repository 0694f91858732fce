"""How a sweep stands, while it goes on: a table where there is a terminal, lines where there is none."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ex2.lab.experiment import Trial
from ex2.lab.trial import ELSEWHERE, FAILED, FINISHED, STOPPED, last_row
from ex2.tables import number
from ex2.training.config import Config
from ex2.training.run import CONFIG

WAITING, RUNNING = "waiting", "running"
ORDER = (RUNNING, FAILED, ELSEWHERE, STOPPED, WAITING, FINISHED)
ELSEWHERE_SECONDS = 15.0  # in which a trial that is locked comes back
LOOK_SECONDS = 1.0  # between looks at what runs have reported
PLAIN_SECONDS = 30.0  # between lines where there is no terminal


@dataclass
class Job:
    """A trial, and how it stands."""

    trial: Trial
    config: Config
    folder: Path
    state: str = WAITING
    words: str = ""
    deaths: int = 0
    """How often its process died since it last came further."""
    furthest: int = 0
    """The step that it had reached when its process died."""
    again: float = 0.0
    """When to look at it again, where another process trains it."""
    step: int = 0
    score: float = math.nan
    speed: float = math.nan
    """Steps a second."""

    handed: tuple[int, ...] = ()
    """When its files were written last, before it was handed to Ray, ..."""
    since: float = 0.0
    """... and when that was."""
    name: str = ""
    """What it is called where it is shown; by default as its trial."""

    def __post_init__(self) -> None:
        self.name = self.name or self.trial.name

    def hand_over(self) -> None:
        """Notes what is there, before another process begins to change it."""
        self.handed, self.since, self.words = self._written(), time.monotonic(), ""

    def has_begun(self) -> bool:
        """Whether the process it was handed to trains it; if it was trained elsewhere, that process ends at once or trains."""
        if self.state == ELSEWHERE:
            return time.monotonic() - self.since > ELSEWHERE_SECONDS
        return self.state == WAITING and self._written() != self.handed

    def _written(self) -> tuple[int, ...]:
        paths = [self.folder / name for name in (CONFIG, "metrics.csv")]
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)

    def look(self) -> None:
        """Reads what the run has reported."""
        row = last_row(self.folder)
        self.step = int(row.get("step", self.step))
        self.score = row.get("score", self.score)
        self.speed = row.get("steps_per_second", self.speed)

    @property
    def open(self) -> bool:
        """Whether it is still to be trained, here or elsewhere."""
        return self.state in (WAITING, RUNNING, ELSEWHERE)


def seconds_left(jobs: Sequence[Job], at_once: int) -> float:
    """Of all trials that are open, with so many side by side; those that have not begun as fast as others of their task."""
    known: dict[str, list[float]] = {}
    for job in jobs:
        if job.speed > 0:
            known.setdefault(job.trial.task, []).append(job.speed)
    total, longest = 0.0, 0.0
    for job in jobs:
        if job.open:
            speeds = known.get(job.trial.task, [speed for some in known.values() for speed in some])
            speed = job.speed if job.speed > 0 else sum(speeds) / len(speeds) if speeds else math.nan
            own = max(job.config.steps - job.step, 0) / speed
            total, longest = total + own, max(longest, own)
    return max(total / max(at_once, 1), longest)


def spoken(seconds: float) -> str:
    """
    >>> spoken(45), spoken(150), spoken(9000), spoken(math.nan)
    ('45 s', '2 min', '2 h 30 min', '-')
    """
    if not math.isfinite(seconds):
        return "-"
    minutes = int(seconds // 60)
    return f"{seconds:.0f} s" if minutes < 1 else f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def times(count: int) -> str:
    """
    >>> times(1), times(2)
    ('once', '2 times')
    """
    return "once" if count == 1 else f"{count} times"


class Board:
    """Shows jobs; a context manager that is called again and again."""

    def __init__(self, title: str, jobs: Sequence[Job], at_once: int, console: Console) -> None:
        self.title, self.jobs, self.at_once, self.console = title, jobs, at_once, console
        self._said = [job.state for job in jobs]
        self._looked, self._printed = 0.0, time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def __call__(self) -> None:
        """Looks at the runs, and shows what has changed."""
        now = time.monotonic()
        for place, job in enumerate(self.jobs):
            if job.state != self._said[place]:
                self._said[place] = job.state
                if job.state not in (WAITING, RUNNING):
                    job.look()
                    if job.state != STOPPED or job.step:  # of those that had not begun there is nothing to say
                        self.say(f"{job.name}: {self._ended(job)}; {self.summary()}")
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for job in self.jobs:
            if job.state in (RUNNING, ELSEWHERE):
                job.look()
        if self.console.is_terminal:
            self._live.update(Group(self._table(), Text(self.summary())), refresh=True)
        elif now - self._printed > PLAIN_SECONDS:
            self._printed = now
            going = [f"{job.name} {job.step / job.config.steps:.0%}" for job in self.jobs if job.state == RUNNING]
            self.say(": ".join([self.summary(), *([", ".join(going)] if going else [])]))

    def say(self, words: str) -> None:
        self.console.print(words, soft_wrap=True, highlight=False, markup=False)

    def summary(self) -> str:
        """All trials in a line."""
        counts = Counter(job.state for job in self.jobs)
        parts = [f"{counts[state]} {state}" for state in (RUNNING, WAITING, FAILED, STOPPED, ELSEWHERE) if counts[state]]
        left = seconds_left(self.jobs, self.at_once)
        parts += [f"{spoken(left)} left"] if any(job.open for job in self.jobs) else []
        return ", ".join([f"{counts[FINISHED]} of {len(self.jobs)} finished", *parts])

    def _ended(self, job: Job) -> str:
        if job.state == FINISHED:
            return f"finished, score {number(job.score)}"
        return f"{job.state}: {job.words}" if job.words else f"{job.state} at step {job.step:,}"

    def _table(self) -> Table:
        """As many trials as the screen holds, those that run first."""
        table = Table(title=self.title)
        for heading in ("trial", "state"):
            table.add_column(heading)  # which are cut where the screen is narrow, ...
        for heading in ("progress", "score", "steps/s", "left"):
            table.add_column(heading, justify="right", no_wrap=True)  # ... and numbers never
        rows = sorted(self.jobs, key=lambda job: ORDER.index(job.state))
        space = max(self.console.height - 7, 3)
        for job in rows[:space]:
            running = job.state == RUNNING
            left = (job.config.steps - job.step) / job.speed if running and job.speed > 0 else math.nan
            state = job.state + (f", died {times(job.deaths)}" if job.deaths else "")
            words = [Text(word, no_wrap=True, overflow="ellipsis") for word in (job.name, state)]
            cells = [f"{min(job.step / job.config.steps, 1):.0%}", number(job.score)]
            cells += [f"{job.speed:,.0f}" if running and job.speed > 0 else "-", spoken(left)]
            table.add_row(*words, *cells, style="" if running else "dim" if job.state == FINISHED else None)
        if len(rows) > space:
            table.add_row(f"and {len(rows) - space} more", *[""] * 5, style="dim")
        return table
