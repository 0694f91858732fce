"""`ex2 watch`: the page of a report while its runs go on, from a server of this machine's own.

It listens on 127.0.0.1 only, answers GET only, and only to requests that name a loopback address as their host: a page of
some other site, whose name was made to point here, gets nothing. The page asks for what is new every two seconds. Episodes of
the last checkpoints are played in a thread, now and then, at the lowest priority.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ex2.errors import UsageError
from ex2.lab import report, statistics
from ex2.lab.page import Html, element, packed, page, slug, table
from ex2.lab.pictures import film_of
from ex2.lab.results import Results, read_results
from ex2.lab.sections import number
from ex2.training.run import CONFIG, Run

ADDRESS = "127.0.0.1"
HOSTS = ("127.0.0.1", "localhost")
FILM_SECONDS = 30.0  # at the least between two episodes that are played for a task
UNMADE = "unmade"  # the version of a page that could not be made yet
FRESH_SECONDS = 1.0  # during which what was made is given again


class Watched:
    """What there is to show of some folders, which need not be there yet."""

    def __init__(self, paths: Sequence[str | Path], title: str = "", seed: int = 0) -> None:
        self.paths, self.seed = [Path(path) for path in paths], seed
        self.title = title or " and ".join(path.name for path in self.paths[:3])
        self.command = shlex.join(["ex2", "watch", *map(str, self.paths)])
        self.films: dict[str, dict[str, Any]] = {}
        self.unplayed: dict[str, str] = {}
        """A sentence for each task whose last episode could not be played, and why."""
        self._lock, self._made, self._at = threading.Lock(), self._empty(), 0.0

    def state(self) -> dict[str, Any]:
        """The page's body, the data of its charts, and a version that changes with them."""
        with self._lock:
            if time.monotonic() - self._at > FRESH_SECONDS:
                try:
                    self._made = self._make()
                except Exception as error:  # a folder is being removed just now, or a file of it holds what nobody expects
                    self._made = self._unmade(f"cannot be read just now ({_said(error)})")
                self._at = time.monotonic()
            return self._made

    def runs(self) -> list[Run]:
        """The runs that have begun."""
        found = []
        for run in report.runs_at([path for path in self.paths if path.exists()]):
            with suppress(UsageError):
                _ = run.config
                found.append(run)
        return found

    def _empty(self) -> dict[str, Any]:
        return {"version": "", "main": "", "charts": {}, "state": ""}

    def _unmade(self, words: str) -> dict[str, Any]:
        """What was made last, with these words; where there was nothing yet, they are all there is."""
        if self._made["version"] not in ("", UNMADE):
            return self._made | {"state": words}
        main = "".join([element("h1", self.title), element("p", f"{self.title} {words}.", class_="missing")])
        return {"version": UNMADE, "main": main, "charts": {}, "state": words}

    def _make(self) -> dict[str, Any]:
        results, waiting = self.results()
        runs = self.runs()
        progress = self._progress(runs, waiting)
        if results.scores.empty:
            problems = [element("p", problem) for problem in results.problems]
            made = report.Content(self.title, [element("h1", self.title), *progress, *problems])
        else:
            made = report.contents(
                results, runs, self.title, self.command, self.seed, films=False, first=progress, made_by="ex2 watch"
            )
            self._add_films(made)
        main = "".join(made.main)
        charts = packed(made.charts)
        version = hashlib.sha256((main + charts).encode()).hexdigest()[:16]
        return {"version": version, "main": main, "charts": made.charts, "state": f"live, {time.strftime('%H:%M:%S')}"}

    def results(self) -> tuple[Results, list[str]]:
        """What can be read by now, and what is waited for."""
        waiting = list[str]()
        swept = [path for path in self.paths if path.is_dir() and any(path.rglob("*.parquet"))]
        going = [run.folder for run in report.runs_at(swept)]  # which a sweep adds to its results when they have ended
        results = read_results(*going, *self.paths, waiting=waiting)
        unready = [problem for problem in results.problems if "has reported nothing yet" in problem]
        problems = [problem for problem in results.problems if problem not in unready]
        return Results(results.scores, results.curves, problems), [*waiting, *unready]

    def _progress(self, runs: Sequence[Run], waiting: Sequence[str]) -> list[Html]:
        """How far each run is."""
        rows = []
        for run in runs:
            history, config = run.history(), run.config
            last = {name: float(values[-1]) for name, values in history.items()} if len(history.get("step", ())) else {}
            done, speed = int(last.get("step", 0)), last.get("steps_per_second", 0.0)
            left = f"{(config.steps - done) / speed:,.0f} s" if speed and done < config.steps else ""
            bar = element("progress", value=done, max=config.steps, aria_label=f"{done:,} of {config.steps:,} steps")
            state = "done" if done >= config.steps else "waiting" if not done else f"{done / config.steps:.0%}"
            numbers = [number(last.get("score")), number(last.get("bonus/mean")), number(speed), left]
            rows.append([run.folder.name, bar, state, *numbers])
        headings = ["run", "steps", "", "score", "mean bonus", "steps a second", "left"]
        shown = [table("Runs", headings, rows, names=3, part="runs")] if rows else []
        notes = [element("p", text, class_="missing") for text in dict.fromkeys([*waiting, *list(self.unplayed.values())])]
        return [element("section", *shown, element("div", *notes, data_part="waiting", role="status"), id="runs")]

    def _add_films(self, made: report.Content) -> None:
        """The latest episodes, each in its task's section."""
        for task, film in list(self.films.items()):  # the thread that plays adds to them
            name = f"film-{slug(task)}"
            shown = report.film_shown(name, film)
            for index, part in enumerate(made.main):
                if part.startswith(f'<section id="task-{slug(task)}">'):
                    made.main[index] = Html(part.removesuffix("</section>") + shown + "</section>")
                    made.charts[name] = film

    def play(self) -> None:
        """Plays an episode of each task's best agent."""
        results, _ = self.results()
        if results.scores.empty:
            return
        scores = results.scores.assign(method=statistics.methods(results.scores))
        shown = report.runs_shown(self.runs(), scores, report.colours_of(scores), [])
        for task, runs in shown.items():
            self.unplayed.pop(task, None)
            try:
                if (film := film_of(runs[0].run, self.seed)) is not None:
                    self.films[task] = film
            except UsageError:
                continue  # its first checkpoint is not there yet, or it cannot be drawn
            except Exception as error:  # one task's must not keep the others' from being played
                self.unplayed[task] = f"No episode of {task} can be played ({_said(error)})."


def server(watched: Watched, port: int = 0) -> ThreadingHTTPServer:
    """One that is bound and not yet running; port 0 is any that is free."""

    class Handler(BaseHTTPRequestHandler):
        """Two addresses: the page, and what is new."""

        server_version, sys_version = "ex2", ""

        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")
            if (host[0] or host[2]) not in HOSTS:
                return self.answer(403, "text/plain", "This server answers to 127.0.0.1 only.\n")
            address = urlsplit(self.path)
            if address.path == "/":
                made = watched.state()
                return self.answer(200, "text/html", page(watched.title, made["main"], made["charts"], live="/state"))
            if address.path == "/state":
                made, since = watched.state(), parse_qs(address.query).get("since", [""])[0]
                known = {"version": made["version"], "state": made["state"]}
                return self.answer(200, "application/json", packed(known if since == made["version"] else made))
            return self.answer(404, "text/plain", "There is nothing here: the page is at /.\n")

        def answer(self, status: int, kind: str, text: str) -> None:
            content = text.encode()
            with suppress(ConnectionError):  # the page was closed meanwhile
                self.send_response(status)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: whoever watches looks at the page."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    if not 0 <= port <= 65_535:
        raise UsageError(f"--port {port} must be from 0, for any that is free, to 65535.")
    try:
        return Server((ADDRESS, port), Handler)
    except OSError as error:
        raise UsageError(
            f"Port {port} of {ADDRESS} cannot be listened on ({error.strerror}): choose another --port, or 0 for any."
        ) from None


def watch(paths: Sequence[str | Path], port: int = 0, title: str = "", seed: int = 0, tell: Any = print) -> None:
    """Serves the page until Ctrl-C."""
    watched = Watched(paths, title, seed)
    with server(watched, port) as serving:
        threading.Thread(target=_play, args=(watched,), daemon=True).start()
        tell(f"http://{ADDRESS}:{serving.server_port}/ shows {watched.title}; Ctrl-C ends it.")
        with suppress(KeyboardInterrupt):
            serving.serve_forever(poll_interval=0.2)


def _play(watched: Watched) -> None:
    """Plays episodes for ever, whenever something has changed, after everything else that the machine does."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)  # of this thread alone, on Linux
    seen: dict[str, float] = {}
    while True:
        try:
            now = {str(run.folder): _changed(run) for run in watched.runs()}
            if now != seen:
                watched.play()
                seen = now
            watched.unplayed.pop("", None)
        except Exception as error:  # whatever it is, the next time it may be well again
            watched.unplayed[""] = f"Episodes cannot be played just now ({_said(error)})."
        time.sleep(FILM_SECONDS)


def _said(error: Exception) -> str:
    """An error's first line, and its kind where nobody wrote it to be read."""
    words = (str(error).splitlines() or [""])[0].rstrip(".")
    return words if isinstance(error, UsageError) else f"{type(error).__name__}: {words}"


def _changed(run: Run) -> float:
    with suppress(OSError):
        return (run.folder / "checkpoint.safetensors").stat().st_mtime
    return (run.folder / CONFIG).stat().st_mtime if (run.folder / CONFIG).exists() else 0.0
