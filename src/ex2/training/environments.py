"""The environments of a run: a task's own batch, or copies of any Gymnasium environment."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import FlattenObservation, TimeLimit

from ex2.errors import UsageError
from ex2.tasks import TASKS, find_task, make_vector_env
from ex2.training.config import Config


def environments(config: Config, count: int, **settings: Any) -> VectorEnv[Any, Any, Any]:
    """So many environments of a run's task, with its settings."""
    return vector_env(config.task, count, **config.task_settings, **settings)


def vector_env(task: str, count: int, **settings: Any) -> VectorEnv[Any, Any, Any]:
    """So many environments of a task, or copies of any other; episodes that end begin anew in the same step."""
    if task not in TASKS:
        return _copies(task, count, settings)
    fixed = sorted(set(settings) & set(TASKS[task].arguments))
    if fixed:
        raise UsageError(f"The settings {fixed} are what makes the task {task!r}: choose another task instead.")
    try:
        return make_vector_env(task, count, **settings)
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"The task {task!r} does not take these settings ({error}).") from None


def groups_of(config: Config) -> list[VectorEnv[Any, Any, Any]]:
    """The environments of a run, in as many groups as its configuration says."""
    first = -(-config.num_envs // config.groups)
    made: list[VectorEnv[Any, Any, Any]] = []
    try:
        for count in [first, config.num_envs - first][: config.groups]:
            made.append(environments(config, count))
    except BaseException:
        for env in made:
            env.close()
        raise
    return made


def _copies(env_id: str, count: int, settings: dict[str, Any]) -> VectorEnv[Any, Any, Any]:
    """Copies of an environment, stepped one after the other; Dict and Tuple observations as one vector."""
    task = find_task(env_id)
    limited = gymnasium.spec(env_id.rpartition(":")[2]).max_episode_steps is not None
    try:
        with contextlib.closing(gymnasium.make(env_id, **settings)) as one:
            flat = isinstance(one.observation_space, spaces.Dict | spaces.Tuple)
        wrappers: list[Any] = [FlattenObservation] if flat else []
        if not limited:  # an episode would perhaps never end
            wrappers.append(partial(TimeLimit, max_episode_steps=task.episode_steps))
        return gymnasium.make_vec(
            env_id,
            num_envs=count,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
            wrappers=wrappers,
            **settings,
        )
    except Exception as error:  # whatever an environment's own code raises
        raise UsageError(f"The environment {env_id!r} cannot be made ({type(error).__name__}: {error}).") from None
