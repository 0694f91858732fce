"""The live display of a run: a progress bar with the numbers that matter, or plain lines where there is no terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from ex2.training.config import Config
from ex2.training.metrics import Row

PLAIN_SECONDS = 10.0  # between lines where there is no terminal


def describe(row: Row) -> str:
    """The numbers of one iteration in one line: speed, extrinsic return, bonus, and how the discriminators do.

    >>> describe({"steps_per_second": 9000.0, "score": -63.0, "bonus/mean": 2.5})
    '9,000 steps/s  return -63.0  bonus 2.50'
    """
    parts = [f"{row['steps_per_second']:,.0f} steps/s", f"return {row['score']:.1f}", f"bonus {row['bonus/mean']:.2f}"]
    if "bonus/accuracy_positive" in row:
        accuracy = (row["bonus/accuracy_positive"] + row["bonus/accuracy_negative"]) / 2
        parts.append(f"discriminator {accuracy:.0%} right")
    return "  ".join(parts)


class Display:
    """Shows a run while it trains; a context manager that is called with each iteration's metrics."""

    def __init__(self, config: Config, done: int = 0, console: Console | None = None) -> None:
        self.console = console or Console()
        self.config = config
        self._last = 0.0
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        name = f"{config.task} · {config.bonus} · {config.algo} · seed {config.seed}"
        self._task = self._progress.add_task(name, total=config.steps, completed=done)
        self._numbers = Text()
        self._live = Live(Group(self._progress, self._numbers), console=self.console, refresh_per_second=4)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def __call__(self, row: Row) -> None:
        done = int(row["step"])
        self._progress.update(self._task, completed=done)
        self._numbers.plain = describe(row)
        if self.console.is_terminal and not self._live.is_started:
            self._live.start()
        now = time.monotonic()
        if not self.console.is_terminal and (now - self._last > PLAIN_SECONDS or done >= self.config.steps):
            self._last = now
            left = (self.config.steps - done) / max(row["steps_per_second"], 1e-9)
            self.console.print(
                f"{min(done, self.config.steps):,} of {self.config.steps:,} steps  {describe(row)}  {left:.0f} s left",
                soft_wrap=True,
                highlight=False,
            )
