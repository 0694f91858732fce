"""The tasks of the paper, by name, and their registration with Gymnasium. No task is imported before it is made."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from ex2.errors import missing_extra, unknown


@dataclass(frozen=True)
class Task:
    """What the library knows of a task without importing it."""

    env_id: str
    module: str
    summary: str
    episode_steps: int
    extra: str
    """The extra that installs what it needs ..."""
    needs: str
    """... and the module that must then be importable."""
    paper: dict[str, float] = field(default_factory=dict)
    """The paper's scores (Table 1), by bonus."""


TASKS = {
    "maze": Task(
        env_id="ex2/Maze-v0",
        module="ex2.tasks.maze",
        summary="a ball, a wall, and a goal behind it; position only (2 numbers)",
        episode_steps=200,
        extra="mujoco",
        needs="mujoco",
        paper={"k-exemplar": -104.2, "amortized": -132.2, "kde": -117.5, "histogram": -69.6, "none": -175.6},
    ),
}


def find_task(name: str) -> Task:
    """The task of this name, or an error that names the nearest one."""
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    return TASKS[name]


def make_vector_env(name: str, num_envs: int, **settings: Any) -> VectorEnv:
    """A batch of environments of a task, through Gymnasium's vector entry point."""
    task = find_task(name)
    if importlib.util.find_spec(task.needs) is None:
        raise missing_extra(task.extra, task.needs)
    return gymnasium.make_vec(task.env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **settings)


def register() -> None:
    """Makes the tasks known to Gymnasium."""
    for task in TASKS.values():
        if task.env_id not in gymnasium.registry:
            gymnasium.register(
                id=task.env_id,
                entry_point=f"{task.module}:make_env",
                vector_entry_point=f"{task.module}:make_vector_env",
                max_episode_steps=task.episode_steps,
            )
