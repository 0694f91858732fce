"""The live page: it shows runs while they go on, to this machine only, and never falls over what is half there."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, chromium
from test_results import facts

import ex2
from ex2 import UsageError
from ex2.lab import report
from ex2.lab import watch as watching
from ex2.lab.results import write_trial
from ex2.lab.watch import ADDRESS, Watched, server
from ex2.training.run import CONFIG, Run

FEW = {"num_envs": 4, "rollout_steps": 250}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[int, Path, Watched]]:
    """A server that watches two runs that are not there yet."""
    watched = Watched([tmp_path / "a", tmp_path / "b"])
    with server(watched) as serving:
        threading.Thread(target=serving.serve_forever, args=(0.05,), daemon=True).start()
        yield serving.server_port, tmp_path, watched
        serving.shutdown()


def ask(port: int, path: str = "/", method: str = "GET", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=60)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def state(port: int, since: str = "") -> dict[str, Any]:
    made: dict[str, Any] = json.loads(ask(port, f"/state?since={since}")[1])
    return made


def test_only_this_machine_is_answered_and_only_get(served: tuple[int, Path, Watched]) -> None:
    port = served[0]
    assert ask(port)[0] == 200
    assert ask(port, host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "0.0.0.0"):
        assert ask(port, host=host)[0] == 403
    for method in ("POST", "PUT", "DELETE", "HEAD"):
        assert ask(port, method=method)[0] == 501
    for path in ("/etc/passwd", "/../../etc/passwd", "/state/x"):
        assert ask(port, path)[0] == 404


def test_runs_that_are_not_there_or_half_written_are_waited_for(served: tuple[int, Path, Watched]) -> None:
    port, folder, watched = served
    first = state(port)
    assert first["main"].count("has not begun yet") == 2
    (folder / "a").mkdir()
    (folder / "a" / CONFIG).write_text("{")
    (folder / "b").mkdir()
    (folder / "b" / "metrics.csv").write_text("step,sco")
    watched._at = 0.0
    assert "a/config.json" in state(port)["main"].replace("&#x27;", "")
    ex2.train("sparse-maze", "none", steps=2_000, out=folder / "c", overrides=FEW)
    (folder / "a" / CONFIG).write_text((folder / "c" / CONFIG).read_text())
    watched._at = 0.0
    assert "reported nothing yet" in state(port)["main"]
    (folder / "a" / "metrics.csv").write_text("step,score\n1000,0.0\n2000,")
    watched._at = 0.0
    shown = state(port)
    assert "50%" in shown["main"]
    assert "charts" not in state(port, since=shown["version"])  # nothing new
    assert ask(port)[0] == 200


def test_episodes_are_played_from_the_last_checkpoint(served: tuple[int, Path, Watched]) -> None:
    port, folder, watched = served
    watched.play()
    assert watched.films == {}
    ex2.train("sparse-maze", steps=4_000, out=folder / "a", overrides=FEW)
    watched.play()
    watched._at = 0.0
    shown = state(port)
    assert shown["charts"]["film-sparse-maze"]["frames"] > 30
    assert shown["main"].count('data-chart="film-sparse-maze"') == 1
    assert {"maps-sparse-maze", "curves-sparse-maze"} <= set(shown["charts"])


def test_whatever_goes_wrong_is_a_sentence_and_the_page_goes_on(served: tuple[int, Path, Watched], monkeypatch) -> None:
    port, _, watched = served

    def broken() -> None:
        raise TypeError("nobody expects it")

    with monkeypatch.context() as patched:
        patched.setattr(watched, "results", broken)
        shown = state(port)
        assert "cannot be read just now (TypeError: nobody expects it)" in shown["main"]
        assert "cannot be read just now" in ask(port)[1]
    watched._at = 0.0
    kept = state(port, since=shown["version"])
    assert "has not begun yet" in kept["main"]
    with monkeypatch.context() as patched:
        patched.setattr(watched, "results", broken)
        watched._at = 0.0
        shown = state(port)
        assert (shown["main"], "nobody expects it" in shown["state"]) == (kept["main"], True)


def test_a_film_that_fails_is_told_and_the_others_are_played(served: tuple[int, Path, Watched], monkeypatch) -> None:
    port, folder, watched = served
    for name, task in (("a", "sparse-maze"), ("b", "maze")):
        ex2.train(task, "none", steps=1_000, out=folder / name, overrides=FEW)
    real = watching.film_of

    def broken(run: Run, seed: int) -> Any:
        if run.config.task == "sparse-maze":
            raise RuntimeError("it cannot be drawn")
        return real(run, seed)

    with monkeypatch.context() as patched:
        patched.setattr(watching, "film_of", broken)
        watched.play()
    assert list(watched.films) == ["maze"]
    watched._at = 0.0
    assert "No episode of sparse-maze can be played (RuntimeError: it cannot be drawn)." in state(port)["main"]
    watched.play()
    assert (set(watched.films), watched.unplayed) == ({"maze", "sparse-maze"}, {})
    shown = report.film_shown
    with monkeypatch.context() as patched:  # an episode ends while the page is made
        patched.setattr(
            report, "film_shown", lambda *of: (watched.films.update({f"more-{len(watched.films)}": {}}), shown(*of))[1]
        )
        watched._add_films(report.Content("title"))
    assert len(watched.films) == 4


def test_the_thread_that_plays_goes_on_whatever_happens(tmp_path: Path, monkeypatch) -> None:
    asked = list[str]()

    class Odd(Watched):
        """What reads runs fails at first."""

        def runs(self) -> list[Run]:
            asked.append(self.unplayed.get("", ""))
            if len(asked) < 3:
                raise RuntimeError("not now")
            return []

    monkeypatch.setattr(watching, "FILM_SECONDS", 0.01)
    watched = Odd([tmp_path])
    threading.Thread(target=watching._play, args=(watched,), daemon=True).start()
    until = time.monotonic() + 10
    while len(asked) < 5 and time.monotonic() < until:
        time.sleep(0.01)
    assert asked[2:5] == ["Episodes cannot be played just now (RuntimeError: not now).", "", ""]


def test_a_sweep_shows_what_still_goes_on_beside_what_has_ended_each_once(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    for arm, seed in (("early", 0), ("late", 1)):
        ex2.train("sparse-maze", "none", seed=seed, steps=3_000, out=folder / f"sparse-maze-{arm}-{seed}", overrides=FEW)
    ended = facts(0, experiment="sweep", task="sparse-maze", arm="early", steps=3_000, solved_at=0.9)
    write_trial(folder / "results", ended, {"step": [1_000, 2_000, 3_000], "score": [0.0, 0.0, 0.25]})
    results, waiting = Watched([folder]).results()
    assert sorted(zip(results.scores["arm"], results.scores["score"], strict=True)) == [
        ("early", 0.25),
        ("late", 0.0),
    ]
    assert not waiting


def test_ports_that_cannot_be_had_are_named() -> None:
    with server(Watched(["a"])) as taken, pytest.raises(UsageError, match="choose another --port"):
        server(Watched(["a"]), taken.server_port)
    with pytest.raises(UsageError, match="99999"):
        server(Watched(["a"]), 99_999)


def test_ctrl_c_ends_it_without_a_word(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "ex2", "watch", str(tmp_path / "nowhere")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    port = int(line.split(":")[2].split("/")[0])
    assert ask(port)[0] == 200
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, errors) == (0, "", "")


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="there is no Chromium: apt-get install chromium")
@pytest.mark.xdist_group("browser")
def test_the_page_follows_a_run_without_being_loaded_again(served: tuple[int, Path, Watched]) -> None:
    port, folder, watched = served
    with Browser() as browser:
        browser.open(f"http://{ADDRESS}:{port}/")
        browser.wait("document.body.textContent.includes('has not begun yet')")
        browser.run("window.mine = 1")

        def stop(row: dict[str, float]) -> None:
            time.sleep(0.35)  # so that there is something to follow

        thread = threading.Thread(
            target=lambda: ex2.train("sparse-maze", steps=30_000, out=folder / "a", overrides=FEW, listener=stop)
        )
        thread.start()
        browser.wait("window.ex2.drawn > 0", 60)
        browser.wait("document.querySelector('[data-chart=\"maps-sparse-maze\"]') !== null", 60)
        browser.run("document.querySelector('[data-chart=\"maps-sparse-maze\"]').scrollIntoView()")
        browser.wait("document.querySelector('[data-chart=\"maps-sparse-maze\"] input') !== null", 60)
        moments = browser.run("document.querySelector('[data-chart=\"maps-sparse-maze\"] input').max")
        browser.wait(f"document.querySelector('[data-chart=\"maps-sparse-maze\"] input').max > {moments}", 60)
        thread.join()
        watched.play()
        browser.wait("document.querySelector('[data-chart=\"film-sparse-maze\"]') !== null", 60)
        browser.run("document.querySelector('[data-chart=\"film-sparse-maze\"]').scrollIntoView()")
        browser.wait("document.querySelector('[data-chart=\"film-sparse-maze\"] canvas') !== null", 60)
        browser.wait("document.querySelector('#runs').textContent.includes('done')", 60)
        assert browser.run("window.mine") == 1
        assert browser.run("window.ex2.updates") > 2
        assert browser.errors == []
