"""The command line, as a person types it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console

from ex2.cli import build_parser, main
from ex2.tables import show

SMALL = ["--set", "num_envs=4", "--set", "rollout_steps=60", "--set", "algo.batch_size=60"]
FEW = ["--set", "bonus.min_replay=300"]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    assert main(["train", "maze", "--steps", "960", "--out", str(folder), *SMALL, *FEW]) == 0
    return folder


def test_train_eval_plot_resume(run, capsys):
    assert main(["eval", str(run), "--episodes", "3"]) == 0
    assert "3 episodes: mean return -200.0" in capsys.readouterr().out
    results = run.parent / "results.csv"
    results.write_text("task,bonus,seed,score\nmaze,none,0,-150.0\nmaze,none,1,-170.0\nother,none,0,7\n")
    assert main(["plot", str(run), "--beside", str(results)]) == 0
    printed = capsys.readouterr().out
    assert "plain TRPO, recorded, 2 seeds" in printed
    assert "-160.0" in printed
    assert (run / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert main(["resume", str(run)]) == 0
    assert "Score" in capsys.readouterr().out


def test_budgets_that_differ_are_said_in_one_sentence(run, capsys):
    results = run.parent / "results"
    results.mkdir()
    (results / "scores.csv").write_text("task,bonus,arm,steps,score\nmaze,none,none,800000,-150.0\nmaze,rnd,rnd,960,-170.0\n")
    assert main(["plot", str(run), "--beside", str(results), "--json"]) == 0
    printed = capsys.readouterr()
    own, none, rnd = json.loads(printed.out)
    assert (own["steps"], none["steps"], rnd["steps"], rnd["score"]) == (960, 800_000, 960, -170.0)
    assert "This run has 960 steps, the recorded ones of none 800,000: their scores are of different budgets." in printed.err


def test_a_run_stands_beside_its_own_recorded_bonus_and_where_there_is_nothing_that_is_said(run, capsys):
    results, pictures = run.parent / "scores.csv", list[bytes]()
    for rows in ("maze,none,-150.0\n", "maze,none,-150.0\nmaze,rnd,-100\n", "maze,none,-150.0\nmaze,kernel-exemplar,-70\n"):
        results.write_text("task,bonus,score\n" + rows)
        assert main(["plot", str(run), "--beside", str(results)]) == 0
        pictures.append((run / "plot.png").read_bytes())
        assert "nothing stands beside" not in capsys.readouterr().out
    assert pictures[0] == pictures[1] != pictures[2]
    results.write_text("task,bonus,score\ncheetah,none,0.0\n")
    assert main(["plot", str(run), "--beside", str(results)]) == 0
    assert f"{results} holds no score of maze: nothing stands beside the run." in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_warnings_are_sentences(run):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"device": "cuda"}))
    done = subprocess.run([sys.executable, "-m", "ex2", "results", str(run)], capture_output=True, text=True)
    assert done.stderr == f"ex2: The run {run} is of cuda, which is not here: it is opened on the CPU.\n"


def test_recorded_trials_without_a_score_are_left_out(run, capsys):
    results = run.parent / "scores.csv"
    rows = ["maze,none,none,960,-150.0", "maze,none,none,960,", "maze,none,none,960,nan", "maze,rnd,rnd,960,"]
    results.write_text("\n".join(["task,bonus,arm,steps,score", *rows]) + "\n")
    assert main(["plot", str(run), "--beside", str(results), "--json"]) == 0
    _, none = json.loads(capsys.readouterr().out)
    assert none["score"] == -150.0


def test_budgets_of_results_are_a_range_and_unfinished_trials_are_counted(tmp_path, capsys):
    header = "experiment,task,arm,bonus,algo,preset,seed,steps,overrides,solved_at,commit,command,"
    header += "step,score,first,seconds,bonus_share"
    rows = [f"e,maze,none,none,trpo,default,{seed},{steps},{{}},-70,,,1600,-100,,1,0" for seed, steps in ((0, 1600), (1, 6400))]
    (tmp_path / "scores.csv").write_text("\n".join([header, *rows]) + "\n")
    assert main(["results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "1,600 of 1,600 to 6,400" in printed
    assert "0 of 2 (0 to 84 %), 1 of them unfinished" in printed
    assert main(["results", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["steps"], row["least_steps"], row["reached"], row["unfinished"]) == (6400, 1600, 1600, 1)


def test_results_of_several_experiments_are_told_apart(tmp_path, capsys):
    header = "experiment,task,arm,bonus,algo,preset,seed,steps,overrides,solved_at,commit,command,"
    header += "step,score,first,seconds,bonus_share"
    rows = [f"{name},maze,none,none,trpo,default,0,800000,{{}},-70,,,800000,-100,,1,0" for name in ("one", "two")]
    (tmp_path / "scores.csv").write_text("\n".join([header, *rows[:1]]) + "\n")
    assert main(["results", str(tmp_path)]) == 0
    assert "experiment" not in capsys.readouterr().out
    (tmp_path / "scores.csv").write_text("\n".join([header, *rows]) + "\n")
    assert main(["results", str(tmp_path)]) == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()] == [
        ["experiment", "task", "arm"],
        ["one", "maze", "none"],
        ["two", "maze", "none"],
    ]
    assert main(["results", str(tmp_path), "--json"]) == 0
    assert [row["experiment"] for row in json.loads(capsys.readouterr().out)] == ["one", "two"]


@pytest.mark.parametrize("steps", [5_000_000, "200,704 to 5,000,000 of 5,000,000"])
def test_numbers_of_a_table_are_whole_on_a_narrow_screen(steps):
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    row = {"task": "MiniGrid-MultiRoom-N4-S5-v1", "arm": "kernel-exemplar", "steps": steps, "mean": -1234.56, "first": 850_000}
    show(console, [row], "title")
    shown = console.file.getvalue()
    assert all(number in shown for number in ("5,000,000", "-1234.6", "850,000"))
    assert "…" not in shown


def test_tables_are_plain_where_they_are_piped_and_json_where_it_is_asked_for(run, capsys):
    for command in (["tasks"], ["bonuses"], ["bonuses", "rnd+simhash"], ["compare", str(run), str(run)]):
        assert main(command) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "  " in line]
        assert len(lines) > 1
        assert not set("┃│━\x1b") & set("".join(lines))  # nothing drawn, no colour
        assert main([*command, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert len(rows) == len(lines) - 1
        assert lines[0].split()[0] == next(iter(rows[0])).split()[0]
        for line, row in zip(lines[1:], rows, strict=True):  # each row on one line, however long
            assert line.startswith(str(next(iter(row.values()))))
    assert main(["eval", str(run), "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["mean"], found["returns"]) == (-200.0, [-200.0, -200.0])


def test_density_figure(run, capsys):
    picture = run.parent / "density.png"
    assert main(["density-figure", str(run), "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["density-figure", str(run), "--model", "kernel"]) == 2
    assert "did you mean 'kernel-exemplar'" in capsys.readouterr().err


def test_listings(capsys):
    assert main(["tasks"]) == 0
    assert main(["bonuses"]) == 0
    printed = capsys.readouterr().out
    for word in ("maze", "ex2/Maze-v0", "ex2[mujoco]", "amortized", "k-exemplar", "kde", "histogram", "none"):
        assert word in printed


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["train"],
        ["resume"],
        ["eval"],
        ["plot"],
        ["compare"],
        ["density-figure"],
        ["sweep"],
        ["results"],
        ["report"],
        ["watch"],
        ["tasks"],
        ["bonuses"],
    ],
)
def test_help_everywhere_with_examples(command, capsys):
    with pytest.raises(SystemExit) as stop:
        build_parser().parse_args([*command, "--help"])
    assert stop.value.code == 0
    assert "example" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "mase"], "did you mean 'maze'"),
        (["train", "maze", "--bonus", "amortised"], "did you mean 'amortized'"),
        (["train", "maze", "--set", "bonus.k"], "not KEY=VALUE"),
        (["resume", "no/such/run"], "is not a run"),
        (["plot", "no/such/run"], "is not a run"),
        (["eval", "no/such/run"], "is not a run"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(arguments, words, capsys):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


@pytest.mark.slow
def test_looking_at_a_task(tmp_path, capsys):
    for name in ("gather.mp4", "gather.gif"):
        assert main(["play", "gather", "--random", "--video", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 2_000
    said = capsys.readouterr().out
    assert "1 episode: mean return" in said
    assert main(["play", "maze", "--video", str(tmp_path / "maze.avi")]) == 2
    assert main(["play", "maze", "--video", str(tmp_path / "no" / "maze.mp4")]) == 2


@pytest.mark.parametrize(
    "task", ["maze", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cheetah", "gather", "doom", "venture"))]
)
def test_a_run_is_evaluated_filmed_and_its_novelty_drawn(task, tmp_path, capsys):
    folder = tmp_path / "run"
    few = ["bonus.min_replay=100", "algo.batch_size=50"]
    few += ["num_envs=4", "rollout_steps=50", "threads=1", *(["task.episode_steps=60"] if task == "venture" else [])]
    settings = [word for setting in few for word in ("--set", setting)]
    assert main(["train", task, "--steps", "400", "--out", str(folder), *settings]) == 0
    assert main(["eval", str(folder), "--episodes", "3", "--video", str(tmp_path / "out.mp4")]) == 0
    assert main(["novelty", str(folder)]) == 0
    assert main(["resume", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "3 episodes: mean return" in said
    assert ("the run goes on with fresh ones" in said) == (task in ("doom", "venture"))
    with open(tmp_path / "out.mp4", "rb") as video:
        assert video.read(12)[4:8] == b"ftyp"
    assert (folder / "novelty.png").stat().st_size > 20_000


def test_novelty_of_a_run_without_a_bonus_is_refused(tmp_path, capsys):
    assert main(["train", "maze", "--bonus", "none", "--steps", "240", "--out", str(tmp_path / "run"), *SMALL]) == 0
    assert main(["novelty", str(tmp_path / "run")]) == 2
    assert "has no bonus" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "ex2", "train", "maze", "--bonus", "none", "--out", str(folder), *SMALL]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = folder / "metrics.csv"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and metrics.stat().st_size > 200) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"ex2 resume {folder}" in said
    assert (folder / "checkpoint.safetensors").exists()
    assert "Traceback" not in said


def test_a_missing_extra_says_what_to_install(tmp_path):
    """In a real environment without MuJoCo: Python is told to find none."""
    blocker = "import sys; sys.modules['mujoco'] = None; from ex2.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", blocker, "train", "maze", "--out", str(tmp_path / "run")]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 2
    assert "pip install 'ex2[mujoco]'" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not (tmp_path / "run").exists()


def test_no_path_of_this_machine_in_the_package():
    root = Path(__file__).parents[1]
    for path in [*root.glob("src/**/*.py"), *root.glob("*.toml"), *root.glob("*.md"), *root.glob("docs/*.md")]:
        assert str(Path.home()) + "/" not in path.read_text(), path


def test_several_runs_are_drawn_side_by_side(tmp_path, capsys):
    runs = [str(tmp_path / name) for name in ("one", "two", "other")]
    for run, task, bonus in zip(runs, ("sparse-maze", "sparse-maze", "cheetah"), ("histogram", "none", "none"), strict=True):
        assert main(["train", task, "--bonus", bonus, "--steps", "960", "--out", run, *SMALL]) == 0
    assert main(["plot", *runs[:2]]) == 0
    said = capsys.readouterr().out
    assert "plain TRPO" in said
    assert "compare.png" in said
    assert (tmp_path / "one" / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert main(["compare", *runs[:2], "--out", str(tmp_path / "two.png"), "--json"]) == 0
    printed = capsys.readouterr()
    first, second = json.loads(printed.out)
    assert (first["method"], second["method"], second["steps"]) == ("histogram", "plain TRPO", 960)
    assert "two.png" in printed.err
    assert main(["compare", runs[0]]) == 2
    assert "name another run" in capsys.readouterr().err
    assert main(["plot", *runs]) == 2
    assert "different tasks, cheetah and sparse-maze" in capsys.readouterr().err
    assert main(["plot", *runs[:2], "--beside", "results/maze.csv"]) == 2
