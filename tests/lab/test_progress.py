"""The board of a sweep on a narrow screen."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

from rich.console import Console

from ex2.lab.experiment import Trial
from ex2.lab.progress import RUNNING, Board, Job


def test_numbers_are_whole_on_a_narrow_screen_and_names_are_cut(tmp_path: Path) -> None:
    trial = Trial(experiment="e", arm="amortized-with-a-long-name", task="MiniGrid-MultiRoom-N4-S5-v1", bonus="none", seed=3)
    config = Trial(experiment="e", arm="a", task="maze", bonus="none", seed=3, steps=100_000_000).configuration()
    jobs = [
        Job(trial, config, tmp_path, state=RUNNING, deaths=1, step=41_000_000, score=-1234.5, speed=9_876.0),
        Job(trial, config, tmp_path, deaths=2, score=math.nan),
    ]
    board = Board("title", jobs, 1, Console(file=io.StringIO(), width=80, height=30, force_terminal=True))
    with board:
        board()
    shown = board.console.file.getvalue()
    assert re.search(r"MiniGrid-M\S*… │ running, died\S*… │ +41% │ -1234.5 │ +9,876 │ 1 h 39 min", shown) is not None
    wide = Board("title", jobs, 1, Console(file=io.StringIO(), width=200, height=30, force_terminal=True))
    with wide:
        wide()
    assert "running, died once " in wide.console.file.getvalue()
    assert "waiting, died 2 times " in wide.console.file.getvalue()
