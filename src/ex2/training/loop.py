"""The training loop: rollouts, bonus, update; checkpoints that a run can go on from as if nothing had happened."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from ex2.adapters.sb3 import BonusCallback, GymnasiumVecEnv
from ex2.errors import UsageError
from ex2.shaping import Weight
from ex2.tasks import TASKS, make_vector_env
from ex2.training import checkpoint
from ex2.training.config import Config, Seeds, configure
from ex2.training.metrics import Metrics, Row, numbers, read
from ex2.training.policy import make_agent, take_actor, take_in

CONFIG, CHECKPOINT, SUMMARY = "config.json", "checkpoint.safetensors", "summary.json"
SCORE_EPISODES = 20
"""A score is the mean return, without any bonus, of this many last episodes."""

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


class Trainer:
    """One run in memory: environments, agent and bonus."""

    def __init__(self, config: Config) -> None:
        torch.set_num_threads(config.threads)
        self.config = config
        self.env = GymnasiumVecEnv(environments(config, config.num_envs), config.clip_reward)
        try:
            self.agent = make_agent(config, self.env)
            self.callback = BonusCallback(
                config.bonus,
                Weight(**config.weight),
                centre=config.centre,
                total_steps=config.steps,
                seed=Seeds.of(config.seed).bonus,
                device=config.device,
                last_frame=config.stack > 1,
                entropy=config.entropy,
                episodic=config.episodic,
                **config.bonus_settings,
            )
            self.callback.init_callback(self.agent)
        except UsageError:
            self.env.close()
            raise
        self.agent._setup_learn(0)  # the first reset, so that there is a state to save from the start
        self.seconds = 0.0
        self.bonus_seconds = 0.0

    @property
    def bonus(self) -> Any:
        return self.callback.bonus

    @property
    def steps(self) -> int:
        return self.agent.num_timesteps

    @property
    def exact(self) -> bool:
        """Whether the environments can be saved in the middle of an episode."""
        return TASKS[self.config.task].exact

    @property
    def score(self) -> float:
        episodes = [episode["r"] for episode in self.agent.ep_info_buffer or []]
        return float(np.mean(episodes[-SCORE_EPISODES:])) if episodes else float("nan")

    def iterate(self) -> Row:
        """One rollout, one fit of the bonus, one update of the agent; returns what there is to report."""
        started = time.perf_counter()
        self.agent.learn(
            self.config.iteration_steps,
            callback=self.callback,
            log_interval=None,  # type: ignore[arg-type]
            reset_num_timesteps=False,
        )
        take_in(self.agent)
        elapsed = time.perf_counter() - started
        self.seconds += elapsed
        self.bonus_seconds += self.callback.metrics["bonus/seconds"]
        logged = numbers(self.agent.logger.name_to_value)
        self.agent.logger.dump(self.steps)
        return {
            "step": self.steps,
            "score": self.score,
            "seconds": self.seconds,
            "steps_per_second": self.config.iteration_steps / elapsed,
        } | logged

    def state(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        agent = self.agent
        return {
            "policy": agent.policy.state_dict(),
            "optimiser": agent.policy.optimizer.state_dict(),
            "steps": agent.num_timesteps,
            "updates": agent._n_updates,
            "last_obs": agent._last_obs,
            "last_episode_starts": agent._last_episode_starts,
            "episodes": list(agent.ep_info_buffer or []),
            "env": self.env.get_state() if self.exact else None,
            "bonus": self.bonus.state_dict(),
            "stream": self.callback.stream.state_dict() if self.callback.stream else None,
            "seconds": self.seconds,
            "bonus_seconds": self.bonus_seconds,
            "random": {
                "python": random.getstate(),
                "numpy": np.random.get_state(),  # noqa: NPY002 (what Stable-Baselines3 draws from)
                "torch": torch.get_rng_state(),
                "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            },
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from where `state` was called."""
        agent = self.agent
        agent.policy.load_state_dict(state["policy"])
        agent.policy.optimizer.load_state_dict(state["optimiser"])
        agent.num_timesteps, agent._n_updates = state["steps"], state["updates"]
        assert agent.ep_info_buffer is not None
        agent.ep_info_buffer.extend(state["episodes"])
        if self.exact:
            agent._last_obs, agent._last_episode_starts = state["last_obs"], state["last_episode_starts"]
            self.env.set_state(state["env"])
        else:
            self._begin_episodes()
        self.bonus.load_state_dict(state["bonus"])
        if self.callback.stream:
            self.callback.stream.load_state_dict(state["stream"])
        self.seconds, self.bonus_seconds = state["seconds"], state["bonus_seconds"]
        random.setstate(state["random"]["python"])
        np.random.set_state(state["random"]["numpy"])  # noqa: NPY002
        torch.set_rng_state(state["random"]["torch"])
        if state["random"]["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(state["random"]["cuda"])

    def _begin_episodes(self) -> None:
        """Fresh episodes, for environments that cannot be saved: seeded by the run's seed and how far it has come."""
        seeds = np.random.SeedSequence([Seeds.of(self.config.seed).environment, self.agent.num_timesteps])
        assert self.agent.env is not None
        self.agent.env.seed(int(seeds.generate_state(1)[0] >> 1))
        self.agent._last_obs = self.agent.env.reset()  # type: ignore[assignment]
        self.agent._last_episode_starts = np.ones(self.config.num_envs, bool)


def environments(config: Config, count: int, **settings: Any) -> VectorEnv:
    """Environments of a run's task, with its settings."""
    fixed = sorted(set(config.task_settings) & set(TASKS[config.task].arguments))
    if fixed:
        raise UsageError(f"The settings {fixed} are what makes the task {config.task!r}: choose another task instead.")
    try:
        return make_vector_env(config.task, count, **config.task_settings, **settings)
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"The task {config.task!r} does not take these settings ({error}).") from None


def train(
    task: str,
    bonus: str = "kernel-exemplar",
    *,
    out: str | Path | None = None,
    algo: str = "trpo",
    steps: int | None = None,
    seed: int = 0,
    overrides: dict[str, Any] | None = None,
    listener: Listener | None = None,
    **fields: Any,
) -> Result:
    """Trains an agent on a task with a bonus, and leaves a run folder behind.

    Args:
        task, bonus, algo: names, as `ex2 tasks` and `ex2 bonuses` list them; "trpo" or "ppo".
        out: the run's folder, which must not exist; by default runs/TASK-BONUS-SEED.
        steps, seed: the length in environment steps, and the seed of everything random.
        overrides: settings on top of the preset, such as {"bonus.k": 1, "weight.start": 0.5}.
        listener: called with each iteration's metrics.
        fields: other fields of `ex2.training.config.Config`, such as num_envs or device.
    """
    config = configure(task, bonus, algo=algo, steps=steps, seed=seed, overrides=overrides, **fields)
    folder = Path(out) if out is not None else Path("runs") / f"{task}-{bonus}-{seed}"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already: choose another --out, or go on with 'ex2 resume {folder}'.")
    actor = checkpoint.load(Path(config.actor_of) / CHECKPOINT)["policy"] if config.actor_of else {}
    trainer = Trainer(config)
    try:
        if actor:
            take_actor(trainer.agent.policy, actor, config.actor_of)
        folder.mkdir(parents=True, exist_ok=True)
        config.save(folder / CONFIG)
        checkpoint.save(folder / CHECKPOINT, trainer.state())
    except OSError as error:
        trainer.env.close()
        raise UsageError(f"The run's folder {folder} cannot be written ({error.strerror}): choose another --out.") from None
    except UsageError:
        trainer.env.close()
        raise
    return _run(trainer, folder, listener)


def resume(folder: str | Path, *, steps: int | None = None, listener: Listener | None = None) -> Result:
    """Goes on with a run from its last checkpoint, exactly as if it had never stopped; games go on with fresh episodes.

    `steps` ends the session there instead of at the configured length, which stays what schedules run over.
    """
    trainer = load(folder)
    return _run(trainer, Path(folder), listener, until=steps)


def load(folder: str | Path) -> Trainer:
    """A run as its last checkpoint left it: agent, bonus, environments. Without the GPU it was trained on, on the CPU."""
    folder = Path(folder)
    config = Config.load(folder / CONFIG)
    if config.device.startswith("cuda") and not torch.cuda.is_available():
        warnings.warn(f"The run {folder} is of {config.device}, which is not here: it is opened on the CPU.", stacklevel=2)
        config = replace(config, device="cpu")
    state = checkpoint.load(folder / CHECKPOINT)
    trainer = Trainer(config)
    try:
        trainer.load_state(state)
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        trainer.env.close()
        raise checkpoint.CheckpointError(
            f"{folder / CHECKPOINT} does not belong to the configuration beside it ({str(error).splitlines()[0]})."
        ) from None
    return trainer


def _run(trainer: Trainer, folder: Path, listener: Listener | None, until: int | None = None) -> Result:
    config = trainer.config
    metrics = Metrics(folder, trainer.steps)
    iterations = 0
    saved = trainer.steps
    try:
        with _stop_requests() as stop:
            while trainer.steps < min(until or config.steps, config.steps) and not stop.is_set():
                row = trainer.iterate()
                metrics.write(row)
                iterations += 1
                if iterations % config.checkpoint_every == 0:
                    checkpoint.save(folder / CHECKPOINT, trainer.state())
                    saved = trainer.steps
                if listener:
                    listener(row)
            if saved != trainer.steps:
                checkpoint.save(folder / CHECKPOINT, trainer.state())
    finally:
        metrics.close()
        trainer.env.close()
    result = Result(
        folder, config, trainer.steps, trainer.score, trainer.seconds, trainer.bonus_seconds / max(trainer.seconds, 1e-9)
    )
    summary = {"steps": result.steps, "score": result.score, "seconds": result.seconds, "bonus_share": result.bonus_share}
    (folder / SUMMARY).write_text(json.dumps(summary | {"finished": result.finished}, indent=2) + "\n")
    return result


def history(folder: str | Path) -> list[Row]:
    """The metrics of a run, a row for each iteration."""
    path = Path(folder) / "metrics.csv"
    if not path.exists():
        raise UsageError(f"{folder} is not a run: it has no metrics.csv.")
    return read(path)


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
