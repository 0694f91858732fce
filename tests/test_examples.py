"""Examples run, for as short as they can; examples/outliers.py takes minutes and does not run here."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from ex2 import Run

EXAMPLES = Path(__file__).parent.parent / "examples"
GATHER = EXAMPLES / "gather.py"


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo_vectors", ["--total-steps", "3072", "--num-envs", "8", "--rollout", "128"]),
        ("ppo_pixels", ["--total-steps", "1536", "--num-envs", "4", "--rollout", "128"]),
    ],
)
def test_a_single_file_explores(name, options, monkeypatch, capsys):
    """ex2 is three lines of it, and the third rollout has a bonus."""
    monkeypatch.setattr(sys, "argv", [name, *options])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    last = capsys.readouterr().out.splitlines()[-1]
    assert float(last.split("weight ")[1]) > 0
    source = (EXAMPLES / f"{name}.py").read_text()
    assert sum("# <--" in line for line in source.splitlines()) == 3
    assert len(re.findall(r"\bexplorer\.(?:step|rollout)\(|\bExplorer\.of\(", source)) == 3


@pytest.mark.slow
def test_minigrid_explores(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["door_key", "--steps", "6000"])
    runpy.run_path(str(EXAMPLES / "door_key.py"), run_name="__main__")
    assert capsys.readouterr().out.splitlines()[-1].startswith("6,000 steps, the last 20 episodes: ")
