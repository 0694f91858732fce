"""A sweep: the trials of an experiment, side by side on Ray.

    FOLDER/TRIAL/                  the run of a trial
    FOLDER/results/TRIAL.parquet   its curve, with what it was in every row, once it has finished

All that a sweep knows is in these files, so one that was stopped, killed or lost its machine is started again and runs what is
missing; several may run on one folder at the same time. Progress is read off the runs, so on a cluster all machines must see
the folder.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from ex2.cluster import SMALL_STORE, check_gpus, connected, most_cores, named
from ex2.commit import commit
from ex2.errors import UsageError
from ex2.lab.experiment import Experiment, Trial
from ex2.lab.progress import RUNNING, WAITING, Board, Job, times
from ex2.lab.results import ASKED, TITLE
from ex2.lab.trial import ELSEWHERE, FAILED, FINISHED, STOPPED, Outcome, difference, is_stored, run_trial
from ex2.training.config import Config

RETRIES = 3  # deaths of a trial's process, one after the other without coming further, until it is given up
POLL_SECONDS = 2.0  # between looks at a trial that another process trains
WAIT_SECONDS = 0.25


def sweep(
    experiment: Experiment,
    out: Path,
    *,
    address: str | None = None,
    workers: int | None = None,
    retries: int = RETRIES,
    console: Console | None = None,
) -> list[Job]:
    """Trains what is missing of an experiment; returns all its trials as they then stand.

    Args:
        experiment: as `read_experiment` gives it.
        out: the folder of runs and results, which all machines see.
        address: of a Ray cluster; by default that of RAY_ADDRESS, or Ray is started on this machine.
        workers: trials at a time, at the most; by default as many as there are cores for.
        retries: how often a trial whose process dies is gone on with, from its last checkpoint, without coming further.
        console: where progress is shown.
    """
    check_bounds(workers, retries)
    out, console = out.absolute(), console or Console()
    if (out / ASKED).exists():
        raise UsageError(f"{out} holds a search, and this is a sweep: choose another --out.")
    jobs = planned(experiment.trials, out)
    missing = [job for job in jobs if job.state == WAITING]
    for job in jobs:
        if job.words:
            console.print(f"{job.words} It is made again.", soft_wrap=True, highlight=False, markup=False)
    if not missing:
        return jobs
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / TITLE).write_text(experiment.title + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"The folder {out} cannot be written ({error.strerror}): choose another --out.") from None
    with connected(address, object_store_memory=SMALL_STORE) as ray, _requests() as asked:
        check_gpus(ray, any(job.trial.device == "cuda" for job in missing))
        room = int(ray.cluster_resources().get("CPU", 1)) // min(*(cores_of(job.config) for job in missing), most_cores(ray))
        room = max(room if workers is None else min(room, workers), 1)
        # A cluster that grows with demand should see all of it; on one machine what cannot begin need not be handed over.
        handed = workers or (len(missing) if named(address) else room)
        with Board(experiment.title, jobs, room, console) as board:
            if len(missing) < len(jobs):
                board.say(f"{len(jobs) - len(missing)} of {len(jobs)} trials have finished already.")
            try:
                _Sweep(ray, missing, out, handed, retries, board).run(asked)
            except (ray.exceptions.RayError, ConnectionError) as error:
                first = str(error).strip().splitlines()[0]
                raise UsageError(f"Ray was lost ({first}): the same command goes on where it was.") from None
    return jobs


def check_bounds(workers: int | None, retries: int) -> None:
    """Refuses numbers with which nothing could be run."""
    if workers is not None and workers < 1:
        raise UsageError(f"workers={workers} must be at least 1.")
    if retries < 0:
        raise UsageError(f"retries={retries} must be at least 0.")


def planned(trials: Sequence[Trial], out: Path) -> list[Job]:
    """The trials and what is there of them; where that was made with other settings, the sweep is refused."""
    jobs = []
    for trial in trials:
        job = Job(trial, trial.configuration(device="cpu"), out / trial.name)
        if words := difference(trial, job.config, out):
            raise UsageError(f"The trial {trial.name} is another one: {words}; choose another --out, or remove what is there.")
        try:
            job.state = FINISHED if is_stored(trial, job.config, out) else WAITING
        except UsageError as error:
            job.words = str(error)
        job.look()
        jobs.append(job)
    return jobs


class _Sweep:
    """Jobs on their way through Ray."""

    spoiled = 0
    """How often a process was asked to stop, or lost a trial, in this session. One to which that happens while it loads a
    library cannot load it again, so trials that are handed over later have processes anew."""

    def __init__(self, ray: Any, jobs: list[Job], out: Path, at_once: int, retries: int, board: Board) -> None:
        self.ray, self.jobs, self.out, self.at_once, self.retries, self.board = ray, jobs, out, at_once, retries, board
        self.handed: dict[Any, Job] = {}
        """What Ray has, by its references."""
        self.commit, self.most = commit(), most_cores(ray)
        # A process takes one trial after the other, but on a GPU, which it gives back only by ending.
        self.remote = {"cpu": ray.remote(run_trial), "cuda": ray.remote(max_calls=1)(run_trial)}

    def run(self, asked: list[int]) -> None:
        """Until nothing is open, or a stop was asked for: once, after the iterations under way; twice, at once."""
        heard = 0
        while self.handed or (not asked and any(job.open for job in self.jobs)):
            if not asked:
                self._hand_over()
            if self.handed:
                for ref in self.ray.wait(list(self.handed), num_returns=1, timeout=WAIT_SECONDS)[0]:
                    self._take_back(ref, stopping=bool(asked))
            else:
                time.sleep(WAIT_SECONDS)
            if len(asked) > heard:
                heard, _Sweep.spoiled = len(asked), _Sweep.spoiled + 1
                self.board.say(
                    "Stopping after the iterations under way (Ctrl-C again: at once)." if heard == 1 else "Stopping."
                )
                for ref in self.handed:
                    self.ray.cancel(ref, force=heard > 1, recursive=False)
            for job in self.handed.values():
                if job.has_begun():
                    job.state = RUNNING
            self.board()
        for job in self.jobs:
            if job.open:
                job.state, job.words = STOPPED, ""
        self.board()
        if heard:
            self.board.say(self.board.summary() + ".")

    def _hand_over(self) -> None:
        """Gives Ray what is waiting, in the order of the experiment; it begins them as cores and GPUs become free."""
        now, there = time.monotonic(), set(map(id, self.handed.values()))
        anew = {"runtime_env": {"env_vars": {"EX2_SPOILED": str(_Sweep.spoiled)}}} if _Sweep.spoiled else {}
        for state in (WAITING, ELSEWHERE):
            for job in self.jobs:
                if len(self.handed) >= self.at_once:
                    return
                if job.state == state and id(job) not in there and now >= job.again and not self._stored(job):
                    cores = min(cores_of(job.config), self.most)
                    asks = {"num_cpus": cores, "num_gpus": job.trial.gpus if job.trial.device == "cuda" else 0}
                    remote = self.remote["cpu" if job.trial.device == "cpu" else "cuda"]
                    task = remote.options(**asks, **anew, max_retries=0, name=job.trial.name)
                    job.hand_over()
                    self.handed[task.remote(job.trial, self.out, self.commit, cores)] = job

    def _stored(self, job: Job) -> bool:
        """Whether another process has finished a trial meanwhile."""
        try:
            stored = job.state == ELSEWHERE and is_stored(job.trial, job.config, self.out)
        except UsageError:
            return False
        if stored:
            job.state = FINISHED
        return stored

    def _take_back(self, ref: Any, stopping: bool) -> None:
        job = self.handed.pop(ref)
        try:
            outcome = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            outcome = Outcome(STOPPED) if stopping else self._died(job, error)
        if outcome.state == STOPPED and not stopping:  # by a machine that goes away, say
            outcome = self._died(job, InterruptedError("something else asked it to stop"))
        job.state, job.words = outcome.state, outcome.words
        if outcome.state == ELSEWHERE:
            job.again = time.monotonic() + POLL_SECONDS

    def _died(self, job: Job, error: Exception) -> Outcome:
        """What is to become of a trial whose process was killed, or ended by anything but a sentence."""
        _Sweep.spoiled += 1
        job.look()
        if job.step > job.furthest:
            job.furthest, job.deaths = job.step, 0
        job.deaths += 1
        cause = getattr(error, "cause", None) or error
        first = (str(cause).strip().splitlines() or ["no reason given"])[0].split(". ")[0]
        reason = f"{type(cause).__name__}: {first.rstrip('.')}"
        if job.deaths > self.retries:
            told = f"its process died {times(job.deaths)} without coming further than step {job.step:,} ({reason})"
            return Outcome(FAILED, told)
        self.board.say(
            f"{job.trial.name}: its process died at step {job.step:,} ({reason}); it goes on from its last checkpoint"
        )
        return Outcome(WAITING)


def cores_of(config: Config) -> int:
    """Those that a trial asks for: as many as it has threads, PyTorch's or its environments'."""
    return max(config.threads, int(config.task_settings.get("threads") or 1))


@contextmanager
def _requests() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM, as they come; the third ends this process."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        if len(asked) > 2:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
