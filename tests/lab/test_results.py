"""Results as tables: what is written is read back, once, and what is damaged is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ex2
from ex2 import UsageError
from ex2.cli import main
from ex2.commit import commit
from ex2.lab.results import SCORES, read_results, write_csv, write_trial


def facts(seed: int = 0, **changed: Any) -> dict[str, Any]:
    known = {
        "experiment": "e",
        "task": "maze",
        "arm": "none",
        "bonus": "none",
        "algo": "trpo",
        "preset": "default",
        "seed": seed,
    }
    known |= {"steps": 400, "overrides": "{}", "solved_at": -70.0, "commit": "abc", "command": "ex2 train maze"}
    return known | changed


def curve(*scores: float) -> dict[str, Any]:
    count = len(scores)
    steps = 100 * np.arange(1, count + 1)
    return {"step": steps, "score": scores, "seconds": np.arange(1.0, count + 1), "bonus/seconds": np.full(count, 0.25)}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_trial(tmp_path, facts(0), curve(np.nan, -200, -69, -80))
    write_trial(tmp_path, facts(1), curve(np.nan, -200, -200, -200))
    results = read_results(tmp_path)
    first, second = results.scores.sort_values("seed").to_dict("records")
    assert (first["step"], first["score"], first["first"], first["seconds"], first["bonus_share"]) == (400, -80, 300, 4.0, 0.25)
    assert np.isnan(second["first"])
    assert len(results.curves) == 8
    assert not results.problems


def test_a_folder_of_files_is_one_table(tmp_path: Path) -> None:
    write_trial(tmp_path, facts(0, solved_at=None, experiment=None), curve(-200.0))  # a bonus that reports something of its own
    write_trial(tmp_path, facts(1), curve(-200, -69) | {"bonus/kernels": [1.0, 2.0], "bonus/mean": [0.5, 0.25]})
    whole = pd.read_parquet(tmp_path).sort_values(["seed", "step"])
    assert whole["seed"].tolist() == [0, 1, 1]
    assert whole["bonus/mean"].tolist()[1:] == [0.5, 0.25]
    assert len({tuple(pd.read_parquet(path).dtypes.items()) for path in tmp_path.iterdir()}) == 1


def test_the_committed_files_say_the_same(tmp_path: Path) -> None:
    write_trial(tmp_path / "store", facts(), curve(np.nan, *np.linspace(-200, -60, 200)))
    results = read_results(tmp_path / "store")
    write_csv(tmp_path / "saved", results)
    saved = read_results(tmp_path / "saved")
    pd.testing.assert_frame_equal(saved.scores, results.scores[list(SCORES)], check_dtype=False)
    assert len(saved.curves) == 50
    assert saved.curves["score"].iloc[-1] == -60


def test_a_trial_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    write_trial(tmp_path / "old", facts(), curve(-200, -100))
    write_trial(tmp_path / "new", facts(), curve(-200, -100, -60))
    results = read_results(tmp_path / "new", tmp_path / "old")
    assert results.scores["score"].tolist() == [-60]
    assert len(results.curves) == 3


def test_damaged_files_are_named_and_left_out(tmp_path: Path) -> None:
    write_trial(tmp_path, facts(0), curve(-60))
    whole = write_trial(tmp_path, facts(1), curve(-60)).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise.parquet").write_bytes(b"nothing")
    pd.DataFrame({"step": [1]}).to_parquet(tmp_path / "strange.parquet")
    results = read_results(tmp_path)
    assert sorted(results.scores["seed"]) == [0, 1]
    assert len(results.problems) == 3
    for name in ("cut.parquet", "noise.parquet", "strange.parquet"):
        assert sum(name in problem for problem in results.problems) == 1


def test_what_is_saved_of_damaged_files_alone_has_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "cut.parquet").write_bytes(b"PAR1")
    assert main(["results", str(tmp_path / "bad"), "--save", str(tmp_path / "saved")]) == 1
    assert main(["results", str(tmp_path / "saved")]) == 1
    assert main(["report", str(tmp_path / "saved"), "--out", str(tmp_path / "page.html")]) == 2
    assert capsys.readouterr().err.count("scores.csv cannot be read and is left out (it has no rows)") == 2


def test_a_run_is_a_result_too(tmp_path: Path) -> None:
    ex2.train("maze", "none", steps=4_000, seed=3, out=tmp_path / "e" / "run", overrides={"num_envs": 4, "rollout_steps": 250})
    arm = "none num_envs=4 rollout_steps=250"
    for place in (tmp_path, tmp_path / "e" / "run"):
        (row,) = read_results(place).scores.to_dict("records")
        assert (row["experiment"], row["task"], row["arm"], row["seed"], row["step"]) == ("e", "maze", arm, 3, 4_000)
        assert row["command"] == "ex2 train maze --bonus none --seed 3 --steps 4000 --set num_envs=4 --set rollout_steps=250"
        assert row["commit"] == commit()


def test_places_without_results_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        read_results(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="holds no run"):
        read_results(tmp_path)


def small_run(folder: Path, **overrides: Any) -> None:
    ex2.train("maze", "none", steps=400, out=folder, overrides={"num_envs": 4, "rollout_steps": 50} | overrides)


def test_runs_by_hand_that_differ_are_two(tmp_path: Path) -> None:
    small_run(tmp_path / "a")
    small_run(tmp_path / "b", **{"algo.gamma": 0.9})
    scores = read_results(tmp_path / "a", tmp_path / "b").scores
    assert scores["arm"].tolist() == [
        "none num_envs=4 rollout_steps=50",
        "none num_envs=4 rollout_steps=50 algo.gamma=0.9",
    ]


def test_trials_that_still_go_on_are_seen_beside_those_that_have_ended(tmp_path: Path) -> None:
    small_run(tmp_path / "maze-none-0")
    write_trial(tmp_path / "results", facts(0, experiment=tmp_path.name), curve(-200, -60))
    small_run(tmp_path / "maze-none-1", **{"algo.gamma": 0.9})
    scores = read_results(tmp_path).scores
    assert len(scores) == 2
    assert sorted(scores["score"].tolist())[-1] == -60


@pytest.mark.parametrize("column", ["score", "seconds", "step", "seed"])
def test_words_where_numbers_are_to_be_are_named(tmp_path: Path, column: str) -> None:
    write_trial(tmp_path / "store", facts(0), curve(-60))
    write_csv(tmp_path / "saved", read_results(tmp_path / "store"))
    table = pd.read_csv(tmp_path / "saved" / "scores.csv").astype(object)
    table[column] = "many"
    table.to_csv(tmp_path / "saved" / "scores.csv", index=False)
    rows = pd.read_parquet(next((tmp_path / "store").iterdir())).astype(object)
    rows[column] = "many"
    rows.to_parquet(tmp_path / "store" / "wrong.parquet")
    results = read_results(tmp_path / "store", tmp_path / "saved")
    assert len(results.scores) == 1
    assert [any(name in problem for problem in results.problems) for name in ("wrong.parquet", "scores.csv")] == [True, True]


def test_a_trial_of_no_experiment_counts(tmp_path: Path) -> None:
    write_trial(tmp_path, facts(0, experiment=None), curve(-60))
    assert len(read_results(tmp_path).scores) == 1
