"""The report: what it says is what the results say, whatever names they have, and nothing of it needs a network."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_results import curve, facts

import ex2
from ex2 import UsageError
from ex2.cli import main
from ex2.lab import charts, pictures, report
from ex2.lab.page import bytes_of, packed, page
from ex2.lab.results import FACTS, TITLE, read_results, write_csv, write_trial
from ex2.training.run import Run
from ex2.training.snapshots import SNAPSHOTS

FEW = {"num_envs": 4, "rollout_steps": 250}


class Tables(HTMLParser):
    """The cells of a page's tables, and its ids, and where its links go."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.pictures: list[dict[str, Any]] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.ids += [named["id"] or ""] if "id" in named else []
        self.links += [named["href"] or ""] if tag == "a" else []
        self.pictures += [named] if tag == "img" else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag not in ("td", "th")

    def handle_data(self, text: str) -> None:
        if self._inside:
            self.rows[-1][-1] += text


def charts_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    made: dict[str, Any] = json.loads(found[1])
    return made


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two tasks, two arms, three seeds."""
    for seed in range(3):
        for arm, last in (("none", -200.0), ("rnd", -60.0 - seed)):
            write_trial(tmp_path / "store", facts(seed, arm=arm, bonus=arm), curve(np.nan, -200, -150, last))
            sparse = facts(seed, arm=arm, bonus=arm, task="sparse-maze", solved_at=0.9, commit="c0ffee")
            write_trial(tmp_path / "store", sparse, curve(0, 0, 0, float(arm == "rnd")))
    return tmp_path / "store"


def test_the_table_says_what_the_results_say(store: Path, tmp_path: Path) -> None:
    text = report.write_report([store], tmp_path / "page.html").read_text()
    rows = {(row[0], row[1]): row for row in Tables(text).rows if len(row) == 12}
    assert rows["maze", "rnd"][2:4] == ["-61.0", "3 of 3 (29% to 100%)"]
    assert rows["maze", "rnd"][7:] == ["-62.0", "-61.0", "400", "3", "400"]
    assert rows["maze", "none"][2:10] == ["-200.0", "0 of 3 (0% to 71%)", "-175.6", "-69.6", "-175.6", "-200.0", "-200.0", "–"]
    assert "c0ffee" in text
    assert "ex2 report" in text


def test_links_lead_somewhere_and_nothing_needs_a_network(store: Path, tmp_path: Path) -> None:
    text = report.write_report([store], tmp_path / "page.html").read_text()
    found = Tables(text)
    assert len(set(found.ids)) == len(found.ids)
    assert {link for link in found.links if not link.startswith("#")} == set()
    assert {link[1:] for link in found.links} <= set(found.ids)
    own = re.sub(r"<script>.*?</script>", "", text, count=1, flags=re.DOTALL)  # uPlot names its home in its first line
    assert not re.search(r"""(src|href)=["']?https?:|@import|url\(""", own)
    names = set(re.findall(r'data-chart="([^"]+)"', text))
    assert names == set(charts_of(text)) >= {"iqm", "improvement", "profile", "curves-maze", "dots-sparse-maze"}


def test_curves_survive_the_packing(store: Path, tmp_path: Path) -> None:
    drawn = charts_of(report.write_report([store], tmp_path / "page.html").read_text())["curves-maze"]
    (method,) = [one for one in drawn["methods"] if one["name"] == "rnd"]
    whole = np.frombuffer(base64.b64decode(method["each"]), "<u2").reshape(3, drawn["points"])
    values = np.where(whole == 65535, np.nan, drawn["low"] + whole / 65534 * (drawn["high"] - drawn["low"]))
    assert values[:, -1] == pytest.approx([-60, -61, -62], abs=0.01)
    assert np.isnan(values[:, 0]).all()  # nothing was reported at step 0


def test_numbers_that_are_none_are_told_apart() -> None:
    assert bytes_of(np.array([0.0, 1.0, np.nan]), 0, 1, np.uint8) == "AP7/"
    assert json.loads(packed({"a": [np.nan, np.inf, np.int64(3), None, True]})) == {"a": [None, None, 3, None, True]}


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    evil = '</script><script>document.title="pwned"</script>'
    named = facts(0, arm=evil, experiment=evil, command=evil, commit='"><img src=x onerror=alert(1)>', task=f"Env{evil}")
    results = read_results(_one(tmp_path, named))
    made = report.contents(results, [], f"Title {evil}", f"ex2 report {evil}")
    text = page(made.title, "".join(made.main), made.charts)
    assert evil not in text
    assert text.count("<script") == 4 - 1  # the data, the library and ours
    assert "<img src=x" not in text
    assert not Tables(text).pictures


def _one(folder: Path, named: dict[str, Any]) -> Path:
    """A trial as CSV: a file's name may not hold what its columns may."""
    write_trial(folder / "plain", named | {"task": "t", "arm": "a"}, curve(-1.0, -2.0))
    results = read_results(folder / "plain")
    for table in (results.scores, results.curves):
        table["task"], table["arm"] = named["task"], named["arm"]
    write_csv(folder / "csv", results)
    return folder / "csv"


def test_problems_are_shown(store: Path, tmp_path: Path) -> None:
    (store / "cut.parquet").write_bytes(b"PAR1")
    text = report.write_report([store], tmp_path / "page.html").read_text()
    assert "Left out" in text
    assert "cut.parquet cannot be read" in text


def test_a_title_in_another_encoding_is_a_title(store: Path, tmp_path: Path) -> None:
    (store / TITLE).write_bytes("Bögen".encode("latin-1"))
    assert "<h1>B\N{REPLACEMENT CHARACTER}gen</h1>" in report.write_report([store], tmp_path / "page.html").read_text()


def test_without_runs_it_says_what_is_missing_and_without_curves_too(store: Path, tmp_path: Path) -> None:
    write_csv(tmp_path / "csv", read_results(store))
    (tmp_path / "csv" / "curves.csv").unlink()
    text = report.write_report([tmp_path / "csv"], tmp_path / "page.html").read_text()
    assert text.count("need the folders of runs") == 1
    assert "no learning curves" in text


def test_one_method_and_one_seed_are_no_error(tmp_path: Path) -> None:
    write_trial(tmp_path / "store", facts(task="CartPole-v1", solved_at=None), curve(np.nan, np.nan))
    text = report.write_report([tmp_path / "store"], tmp_path / "page.html").read_text()
    assert "there is only one" in text


def test_methods_of_several_experiments_are_told_apart(tmp_path: Path) -> None:
    for name, score in (("one", -60.0), ("two", -90.0)):
        write_trial(tmp_path / name, facts(experiment=name), curve(score))
    write_trial(tmp_path / "two", facts(experiment="two", task="sparse-maze"), curve(0.5))  # a task that only one has
    text = report.write_report([tmp_path / "one", tmp_path / "two"], tmp_path / "page.html").read_text()
    assert {row[1] for row in Tables(text).rows if len(row) == 12} >= {"none (one)", "none (two)"}


def test_runs_of_two_sweeps_whose_trials_share_their_names_are_told_apart(tmp_path: Path) -> None:
    for name, score in (("alpha", 0.75), ("beta", 0.25)):
        folder = tmp_path / name / "sparse-maze-none-0"
        ex2.train("sparse-maze", "none", steps=1_000, out=folder, overrides=FEW)
        own = facts(0, experiment=name, task="sparse-maze", solved_at=0.9)
        (folder / FACTS).write_text(json.dumps(own))
        write_trial(tmp_path / name / "results", own, curve(score))
    scores = read_results(tmp_path).scores
    scores = scores.assign(method=scores["arm"] + " " + scores["experiment"])
    colours, runs = report.colours_of(scores), report.runs_at([tmp_path])
    shown = report.runs_shown(runs, scores, colours, [])["sparse-maze"]
    assert [(one.method, one.score, one.run.folder.parent.name) for one in shown] == [
        ("none alpha", 0.75, "alpha"),
        ("none beta", 0.25, "beta"),
    ]
    alpha = scores[scores["experiment"] == "alpha"]
    assert len(report.runs_shown(runs[1:], alpha, colours, [])) == 0  # of another experiment, however it is called
    (runs[1].folder / FACTS).write_text("[]")
    assert report.runs_shown(runs[1:], scores, colours, problems := []) == {}
    assert f"{FACTS}" in problems[0]
    (runs[1].folder / FACTS).unlink()
    assert len(report.runs_shown(runs[1:], alpha, colours, [])) == 1  # nobody says whose it is, and the name is alone
    assert len(report.runs_shown(runs[1:], scores.replace("beta", "gamma"), colours, [])) == 0  # the name is not alone


def test_improvement_is_over_the_same_experiment_and_budgets_that_differ_are_said(tmp_path: Path) -> None:
    for name, best, steps in (("one", -150.0, 400), ("two", -60.0, 800)):
        for arm, last in (("none", best - 20), ("rnd", best)):
            write_trial(tmp_path / name, facts(experiment=name, arm=arm, bonus=arm, steps=steps), curve(-200.0, last))
    write_trial(tmp_path / "three", facts(experiment="three", arm="icm", bonus="icm", steps=800), curve(-200.0, -100.0))
    made = report.contents(read_results(tmp_path), [], "Title", "ex2 report")
    assert {row["name"]: row["mid"] for row in made.charts["improvement"]["rows"]} == {
        "rnd (one) over none (one)": 1.0,
        "rnd (two) over none (two)": 1.0,
        "icm (three) over none (one)": 1.0,
    }
    text = "".join(made.main)
    assert text.count("were trained for different numbers of steps") == 1
    assert "icm (three) and none (one) were trained for different numbers of steps (maze)." in text


def test_tasks_that_are_not_the_papers_have_none_of_its_columns(tmp_path: Path) -> None:
    for task, solved_at in (("CartPole-v1", None), ("MountainCar-v0", -150.0), ("MountainCarContinuous-v0", 90.0)):
        for arm, last in (("none", 17.8), ("rnd", 500.0)):
            write_trial(tmp_path, facts(task=task, arm=arm, bonus=arm, solved_at=solved_at), curve(last))
    text = report.write_report([tmp_path], tmp_path / "page.html").read_text()
    headings = ["task", "method", "mean", "solved (95 %)", "lowest", "IQM", "first solved", "seeds", "steps"]
    assert headings in Tables(text).rows
    assert "Ours beside" not in text
    assert "Task by task" in text
    assert "CartPole-v1 17.8 to 500.0 (the lowest and the highest score of any trial)" in text
    assert "MountainCarContinuous-v0 0 to 90.0 (nothing and solved)" in text


def test_budgets_that_differ_are_not_denied(tmp_path: Path) -> None:
    trials = {"steps": 1_600, "overrides": '{"gamma": 0.9}'}, {"steps": 6_400}, {"steps": 6_400, "algo": "ppo"}
    for seed, changed in enumerate(trials):
        write_trial(tmp_path, facts(seed, **changed), curve(*[-100.0] * 16))
    rows = Tables(report.write_report([tmp_path], tmp_path / "page.html").read_text()).rows
    assert next(row for row in rows if len(row) == 12 and row[0] == "maze")[10:] == [
        "3 (2 unfinished)",
        "1,600 of 1,600 to 6,400",
    ]
    assert ["maze: steps", "1600, 6400"] in rows
    assert ["gamma", "0.9, –"] in rows
    assert ["algo", "ppo, trpo"] in rows
    assert not [row for row in rows if row[:1] == ["preset"]]


def test_one_method_with_scores_beside_one_without_is_not_compared(tmp_path: Path) -> None:
    write_trial(tmp_path, facts(), curve(-100.0))
    write_trial(tmp_path, facts(arm="rnd", bonus="rnd"), curve(np.nan))
    text = report.write_report([tmp_path], tmp_path / "page.html").read_text()
    assert "here only one of them has a score" in text
    assert not {"iqm", "improvement", "profile"} & set(charts_of(text))


def test_a_film_of_an_episode_that_does_not_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "FILM_STEPS", 50)
    monkeypatch.setattr(pictures, "MOST_FRAMES", 20)
    ex2.train("sparse-maze", "none", steps=1_000, out=tmp_path / "run", overrides=FEW)
    film = pictures.film_of(Run(tmp_path / "run"))
    assert film is not None
    assert film["text"].startswith("The first 50 steps of an episode of sparse-maze")
    assert film["frames"] == 13  # every fourth


def test_a_run_shows_maps_states_a_film_and_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    ex2.train("sparse-maze", steps=6_000, out=folder / "sparse-maze-kernel-exemplar-0", overrides=FEW)
    ex2.train("sparse-maze", "none", steps=6_000, out=folder / "sparse-maze-none-0", overrides=FEW | {"rollout_steps": 200})
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    drawn, found = charts_of(text), Tables(text)
    methods = {method["name"]: method for method in drawn["maps-sparse-maze"]["methods"]}
    assert methods["kernel-exemplar"]["steps"] == list(range(1_000, 6_001, 1_000))
    assert [layer["name"] for layer in methods["kernel-exemplar"]["layers"]] == ["visits", "density", "bonus"]
    assert [layer["name"] for layer in methods["none"]["layers"]] == ["visits"]
    assert drawn["film-sparse-maze"]["frames"] > 30
    assert len(found.pictures) == 10
    assert all(picture["alt"] and picture["src"].startswith("data:image/webp") for picture in found.pictures)
    assert ["sparse-maze: rollout_steps", "250", "200"] in found.rows
    (folder / "sparse-maze-kernel-exemplar-0" / SNAPSHOTS).write_bytes(b"no")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 1
    assert f"{SNAPSHOTS} cannot be read" in capsys.readouterr().err
    assert f"{SNAPSHOTS} cannot be read" in (tmp_path / "page.html").read_text()


def test_a_film_is_made_without_a_word_of_sound_cards_and_screens(tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    ex2.train("CartPole-v1", "none", steps=1_000, out=tmp_path / "run", overrides=FEW)
    environment = {key: value for key, value in os.environ.items() if key not in ("XDG_RUNTIME_DIR", "SDL_VIDEODRIVER")}
    command = [sys.executable, "-m", "ex2", "report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "film-CartPole-v1" in charts_of((tmp_path / "page.html").read_text())


def test_colours_are_grey_for_no_bonus(store: Path) -> None:
    scores = read_results(store).scores
    assert report.colours_of(scores.assign(method=scores["arm"])) == {"none": "none", "rnd": "c0"}
    assert charts.dots(scores[scores["task"] == "maze"].assign(method="x"), "maze", {"x": "c0"})["marks"][0]["at"] == -69.6


@pytest.mark.parametrize(
    ("arguments", "words"), [(["nowhere"], "does not exist"), (["."], "holds no run"), ([".", "--seed", "-1"], "at least 0")]
)
def test_mistakes_are_one_sentence(arguments: list[str], words: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_named(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose another --out"):
        report.write_report([store], tmp_path / "nowhere" / "page.html")
