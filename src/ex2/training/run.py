"""A run is a folder: configuration, metrics, checkpoint, summary. `train` makes one, `Run` opens it, with no environment."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ex2.arrays import Array
from ex2.bonus import Bonus
from ex2.commit import commit
from ex2.errors import UsageError
from ex2.training import checkpoint
from ex2.training.config import Config, configure, read_json, write_json
from ex2.training.files import writing
from ex2.training.lock import locked
from ex2.training.loop import Diverged, Trainer, build_bonus, build_policy
from ex2.training.metrics import Metrics, Row, read
from ex2.training.policy import Policy
from ex2.training.snapshots import Snapshots
from ex2.training.spaces import unpack_space

CONFIG, CHECKPOINT, SUMMARY = "config.json", "checkpoint.safetensors", "summary.json"

BEGUN = (CONFIG, f"{CONFIG}.draft", f"{CHECKPOINT}.draft")  # all there is if a run was killed before its first checkpoint

Listener = Callable[[Row], None]


@dataclass(frozen=True)
class Result:
    """How a run stands: its score is the environment's own return, the mean of the last 20 episodes."""

    folder: Path
    config: Config
    steps: int
    score: float
    seconds: float
    bonus_share: float
    """The share of those seconds that went into the bonus."""

    @property
    def finished(self) -> bool:
        return self.steps >= self.config.steps


@dataclass(frozen=True)
class Loaded:
    """The agent and the bonus of a run, as its last checkpoint left them."""

    policy: Policy
    bonus: Bonus
    steps: int


class Run:
    """A run's folder.

    >>> Run("runs/maze-0").history()["score"]  # doctest: +SKIP
    array([-200. , -200. , ..., -61.4])
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def config(self) -> Config:
        """What the run was started with; on the CPU where the GPU it was trained on is missing."""
        values = read_json(self.folder / CONFIG)
        device = str(values.get("device", "cpu"))
        if device.startswith("cuda") and not torch.cuda.is_available():
            warnings.warn(f"The run {self.folder} is of {device}, which is not here: it is opened on the CPU.", stacklevel=3)
            values["device"] = "cpu"
        return Config.of_file(values, self.folder / CONFIG)

    def history(self) -> dict[str, Array]:
        """What was reported, column by column, a number for each iteration; NaN where there was nothing to report."""
        _ = self.config  # is it a run at all?
        rows = read(self.folder / "metrics.csv")
        columns = dict.fromkeys(name for row in rows for name in row)
        return {name: np.array([row.get(name, np.nan) for row in rows]) for name in columns}

    def load(self) -> Loaded:
        """The policy and the bonus as the last checkpoint left them. No environment is made."""
        config, state = self.config, self._state()
        try:
            spaces = {name: unpack_space(packed) for name, packed in state["spaces"].items()}
            policy = build_policy(config, spaces["observation"], spaces["action"])
            bonus = build_bonus(config, spaces["observation"], spaces["action"])
            policy.load_state_dict(state["policy"])
            bonus.load_state_dict(state["bonus"])
            return Loaded(policy, bonus, state["steps"])
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            raise self._misfit(error) from None

    def trainer(self, address: str | None = None) -> Trainer:
        """The whole run in memory, environments included."""
        config, state = self.config, self._state()
        trainer = Trainer(config, address)
        try:
            trainer.load_state(state)
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            trainer.close()
            raise self._misfit(error) from None
        return trainer

    def resume(
        self,
        *,
        steps: int | None = None,
        listener: Listener | None = None,
        previous: bool = False,
        address: str | None = None,
    ) -> Result:
        """Goes on from the last checkpoint, exactly as if it had never stopped; games go on with fresh episodes.

        `steps` ends the session there instead of at the configured length, which stays what schedules run over. `previous` goes
        on from the checkpoint before the last one, where that one is damaged. `address` is of the Ray cluster for a run with
        workers; by default RAY_ADDRESS, or a session on this machine.
        """
        _ = self.config  # is it a run at all?
        with locked(self.folder):
            if previous:
                self._go_back()
            with closing(self.trainer(address)) as trainer:
                return _run(trainer, self.folder, listener, until=steps)

    def _state(self) -> dict[str, Any]:
        """The last checkpoint; where it is damaged, the one before it is offered."""
        path = self.folder / CHECKPOINT
        try:
            return _loaded(path)
        except checkpoint.CheckpointError as error:
            try:
                before = _loaded(checkpoint.previous(path))["steps"]
            except (checkpoint.CheckpointError, KeyError):
                raise error from None
            raise checkpoint.CheckpointError(
                f"{str(error).rstrip('.')}: the one before it, of step {before:,}, is whole; go on from there with "
                f"'ex2 resume {self.folder} --previous'."
            ) from None

    def _go_back(self) -> None:
        path = self.folder / CHECKPOINT
        try:
            steps = _loaded(path)["steps"]
        except (checkpoint.CheckpointError, KeyError):
            _loaded(checkpoint.previous(path))
            with writing(self.folder, "make it so, and try again"):
                checkpoint.restore(path)
        else:
            raise UsageError(f"The last checkpoint of {self.folder}, of step {steps:,}, is whole: leave --previous out.")

    def _misfit(self, error: Exception) -> checkpoint.CheckpointError:
        path, first = self.folder / CHECKPOINT, str(error).splitlines()[0] if str(error) else type(error).__name__
        return checkpoint.CheckpointError(f"{path} does not belong to the configuration beside it ({first}).")


def train(
    task: str,
    bonus: str = "kernel-exemplar",
    *,
    out: str | Path | None = None,
    algo: str = "trpo",
    preset: str = "default",
    steps: int | None = None,
    seed: int = 0,
    overrides: dict[str, Any] | None = None,
    listener: Listener | None = None,
    address: str | None = None,
    **fields: Any,
) -> Result:
    """Trains an agent on a task with a bonus, and leaves a run folder behind.

    Args:
        task: as `ex2 tasks` lists them, or the id of any Gymnasium environment.
        bonus, algo: names, as `ex2 bonuses` lists them; "trpo" or "ppo".
        preset: "default", or "paper" for the hyperparameters that the paper published.
        out: the run's folder, which must not exist; by default runs/TASK-BONUS-SEED.
        steps, seed: the length in environment steps, and the seed of everything random.
        overrides: settings on top of the preset, such as {"bonus.k": 1, "weight.start": 0.5}.
        listener: called with each iteration's metrics.
        address: of the Ray cluster for a run with workers; by default RAY_ADDRESS, or a session on this machine.
        fields: other fields of `ex2.training.config.Config`, such as num_envs, device or workers.
    """
    config = configure(task, bonus, algo=algo, preset=preset, steps=steps, seed=seed, overrides=overrides, **fields)
    folder = Path(out) if out is not None else Path("runs") / f"{task.replace('/', '-').replace(':', '-')}-{bonus}-{seed}"
    _check_unused(folder)
    actor = checkpoint.load(Path(config.actor_of) / CHECKPOINT)["policy"] if config.actor_of else {}
    with closing(Trainer(config, address)) as trainer:
        if actor:
            trainer.policy.take_actor(actor, config.actor_of)
        with writing(folder, "choose another --out"):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            _check_unused(folder)  # by another training that was asked for at the same time
            with writing(folder, "choose another --out"):
                config.save(folder / CONFIG)
            checkpoint.save(folder / CHECKPOINT, trainer.state())
            return _run(trainer, folder, listener)


def resume(folder: str | Path, **options: Any) -> Result:
    """`Run(folder).resume(**options)`."""
    return Run(folder).resume(**options)


def _check_unused(folder: Path) -> None:
    """Refuses a folder that holds anything but the beginning of a run that was killed."""
    with writing(folder, "choose another --out"):
        used = folder.exists() and (not folder.is_dir() or any(file.name not in BEGUN for file in folder.iterdir()))
    if used:
        raise UsageError(f"{folder} exists already: choose another --out, or go on with 'ex2 resume {folder}'.")


def _loaded(path: Path) -> dict[str, Any]:
    """A run's checkpoint."""
    state = checkpoint.load(path)
    if not isinstance(state, dict):
        raise checkpoint.CheckpointError(f"{path} is no checkpoint of a run.")
    return state


def _run(trainer: Trainer, folder: Path, listener: Listener | None, until: int | None = None) -> Result:
    config, code = trainer.config, commit()
    writer, iterations, saved = checkpoint.Writer(), 0, trainer.steps
    threads = torch.get_num_threads()
    later = f"make it so, then go on with 'ex2 resume {folder}'"
    with writing(folder, later):
        metrics, snapshots = Metrics(folder, trainer.steps), Snapshots(folder, trainer)
    try:
        with _stop_requests() as stop:
            while trainer.steps < min(config.steps if until is None else until, config.steps) and not stop.is_set():
                row = trainer.iterate()
                with writing(folder, later):
                    metrics.write(row)
                    snapshots.take(trainer)
                iterations += 1
                if iterations % config.checkpoint_every == 0:
                    writer.save(folder / CHECKPOINT, trainer.state)
                    saved = trainer.steps
                if listener:
                    listener(row)
            if saved != trainer.steps:
                writer.save(folder / CHECKPOINT, trainer.state)
            writer.wait()
    except Diverged as diverged:
        raise UsageError(
            f"{diverged} The checkpoint of {folder} is of step {saved:,}, before that: begin with its actor and other "
            "settings, such as a smaller learning rate, by "
            f"'ex2 train {config.task} --actor-of {folder} --set algo.learning_rate=...'."
        ) from None
    finally:
        with suppress(Exception):  # of a checkpoint under way, where something else went wrong
            writer.wait()
        torch.set_num_threads(threads)
    share = trainer.bonus_seconds / max(trainer.seconds, 1e-9)
    result = Result(folder, config, trainer.steps, trainer.collector.score, trainer.seconds, share)
    summary = {"steps": result.steps, "score": result.score, "seconds": result.seconds, "bonus_share": result.bonus_share}
    with writing(folder, later):
        write_json(folder / SUMMARY, summary | {"finished": result.finished, "commit": code})
    return result


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM ask for a stop after the iteration under way; a second Ctrl-C stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
