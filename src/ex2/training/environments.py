"""The environments of a run: a task's own batch, or copies of any Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import FlattenObservation

from ex2.errors import UsageError
from ex2.tasks import TASKS, make_vector_env
from ex2.training.config import Config


def environments(config: Config, count: int, **settings: Any) -> VectorEnv[Any, Any, Any]:
    """So many environments of a run's task, with its settings; episodes that end begin anew in the same step."""
    own = {**config.task_settings, **settings}
    if config.task not in TASKS:
        return _copies(config.task, count, own)
    fixed = sorted(set(config.task_settings) & set(TASKS[config.task].arguments))
    if fixed:
        raise UsageError(f"The settings {fixed} are what makes the task {config.task!r}: choose another task instead.")
    try:
        return make_vector_env(config.task, count, **own)
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"The task {config.task!r} does not take these settings ({error}).") from None


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
    try:
        flat = isinstance(gymnasium.make(env_id, **settings).observation_space, spaces.Dict | spaces.Tuple)
        return gymnasium.make_vec(
            env_id,
            num_envs=count,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
            wrappers=[FlattenObservation] if flat else [],
            **settings,
        )
    except Exception as error:  # whatever an environment's own code raises
        raise UsageError(f"The environment {env_id!r} cannot be made ({type(error).__name__}: {error}).") from None
