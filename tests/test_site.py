"""README, docs and the site: figures are those of the results, links lead somewhere, notebooks run, names exist."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

import cells
import curves
import ex2
import generate
from ex2.lab.experiment import read_experiment
from ex2.lab.results import read_results

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_every_figure_comes_from_the_results():
    assert generate.problems() == []


def test_what_differs_is_named():
    path = ROOT / "README.md"
    text = path.read_text()
    changed = re.sub(r"\*\*\d+ of ", "**1 of ", text, count=1)  # of the headline
    assert changed != text
    assert generate.generated(changed, path)[2] == ["headline"]
    assert generate.generated(text, path)[2] == []


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        ("It solves 9 of 10 seeds, 0.93 on the mean.", ["9 of 10", "0.93"]),
        ("Twice as fast: 12,000 steps, 80 % of them, in 5 minutes.", ["12,000", "80 %", "5 minutes", "Twice as fast"]),
        (
            "Four of six runs learned it; it is ten times cheaper, twice as fast, in half a second.",
            ["Four of six", "ten times cheaper", "twice as fast", "half a second"],
        ),
        ("With `gamma=0.99` in\n\n    ex2 train --set algo.gamma=0.5\n\n[here](0.5.md), K = 1 and 20 episodes.", []),
        ("```\n0.5\n```\n<!-- begin headline -->\n0.5\n<!-- end headline -->", []),
    ],
)
def test_typed_figures_are_found(prose, found):
    assert generate.figures("docs/page.md", prose) == found


def test_examples_of_cells():
    assert doctest.testmod(cells).failed == doctest.testmod(curves).failed == 0


def test_the_results_can_be_read():
    results = read_results(ROOT / "results")
    assert results.problems == []
    assert {"default", "strangers", "earlier/doom"} <= set(results.scores["experiment"])
    assert results.scores["command"].notna().mean() > 0.9


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_ideas_name_what_there_is():
    page = (ROOT / "docs" / "ideas.md").read_text()
    rows = re.findall(r"^\|.*\| (\[[^|]*src/[^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    assert len(rows) > 10
    for links, names in rows:
        paths = re.findall(r"\(\.\./src/([^)]*)\.py\)", links)
        modules = [importlib.import_module(path.replace("/", ".")) for path in paths]
        for name in re.findall(r"`([\w.]+)`", names):
            first, *rest = name.split(".")
            owner = next((getattr(module, first) for module in modules if hasattr(module, first)), None)
            assert owner is not None, name
            assert all(hasattr(owner, part) for part in rest), name


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_experiments_can_be_run(path):
    experiment = read_experiment(path)
    assert experiment.trials or (ROOT / shlex.split(experiment.command)[1]).exists()


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == ex2.__version__
    assert citation["references"][0]["year"] == 2017


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_needs_no_network(tmp_path):
    built = build(ROOT, tmp_path)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    front = (tmp_path / "index.html").read_text()
    assert "source/results/default/scores.csv" in front
    for page in tmp_path.rglob("*.html"):
        assert not re.search(r'<(?:script|img|link)[^>]*(?:src|href)="?https?:', page.read_text()), page
    assert "ex2.explorer.Explorer" in (tmp_path / "api" / "explorer.html").read_text()
    assert (tmp_path / "source" / "results" / "default" / "scores.csv").exists()


@pytest.mark.slow
def test_a_link_to_nothing_fails_the_build(tmp_path):
    for name in ("src", "results", "benchmarks", "examples", "experiments", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path / name)
    with open(tmp_path / "README.md", "a") as file:
        file.write("\n[There](src/ex2/nothing.py) is nothing, and [nobody](docs/design.md#nowhere).\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert "README.md links to src/ex2/nothing.py, which is not there" in built.stderr
    assert "nowhere" in built.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path):
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:  # of a short name, as sockets need
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        NotebookClient(notebook, km=kernel, timeout=120).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any(output.get("text") for output in outputs)
    assert len(json.dumps(notebook)) < 200_000
