"""examples/gather.py runs; examples/outliers.py takes minutes and does not run here."""

import runpy
import sys
from pathlib import Path

import pytest

from ex2 import Run

GATHER = Path(__file__).parent.parent / "examples" / "gather.py"


@pytest.mark.slow
def test_gather_steers_with_the_actor_that_swims(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gather.py", "--swim", "15000", "--steer", "30000", "--out", str(tmp_path)])
    runpy.run_path(str(GATHER), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("30,000 steps, the last 20 episodes: ")
    assert "nan" not in last
    swimmer, gatherer = (Run(tmp_path / f"{name}-0").config for name in ("swimmer", "gatherer"))
    assert swimmer.steps == 15_000
    assert gatherer.actor_of == str(tmp_path / "swimmer-0")
    assert swimmer.bonus_settings.as_dict()["entries"] == (10, 11, *range(13, 33))
    assert gatherer.bonus_settings.as_dict()["entries"] == (10, 11)
    with pytest.raises(SystemExit, match="gatherer-0 exists already"):
        runpy.run_path(str(GATHER), run_name="__main__")
