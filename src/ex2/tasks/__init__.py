"""The tasks of the paper, by name, and their registration with Gymnasium. No task is imported before it is made."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from ex2.errors import UsageError, missing_extra, unknown
from ex2.tasks.map import Map


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
    arguments: dict[str, Any] = field(default_factory=dict)
    """What its entry points are called with."""
    exact: bool = True
    """Whether its environments can be saved and restored to the bit, in the middle of an episode."""
    paper: dict[str, float] = field(default_factory=dict)
    """The paper's scores (Table 1), by bonus."""
    solved_at: float | None = None
    """The score from which on we call it solved."""


def _atari(game: str, summary: str, solved_at: float, **paper: float) -> Task:
    return Task(
        env_id=f"ex2/{game.capitalize()}-v0",
        module="ex2.tasks.atari",
        summary=summary,
        episode_steps=4_500,
        extra="atari",
        needs="ale_py",
        arguments={"game": game},
        exact=False,
        paper=paper,
        solved_at=solved_at,
    )


TASKS = {
    "maze": Task(
        env_id="ex2/Maze-v0",
        module="ex2.tasks.maze",
        summary="a ball, a wall, and a goal behind it; position only (2 numbers)",
        episode_steps=200,
        extra="mujoco",
        needs="mujoco",
        paper={"k-exemplar": -104.2, "amortized": -132.2, "vime": -135.5, "kde": -117.5, "histogram": -69.6, "none": -175.6},
        solved_at=-70.0,
    ),
    "sparse-maze": Task(
        env_id="ex2/SparseMaze-v0",
        module="ex2.tasks.maze",
        summary="the maze without a hint: 1 at the goal, 0 elsewhere (not of the paper)",
        episode_steps=200,
        extra="mujoco",
        needs="mujoco",
        arguments={"sparse": True},
        solved_at=0.9,
    ),
    "cheetah": Task(
        env_id="ex2/SparseHalfCheetah-v0",
        module="ex2.tasks.half_cheetah",
        summary="a planar cheetah, rewarded only when 5 m away from its start (20 numbers)",
        episode_steps=500,
        extra="mujoco",
        needs="mujoco",
        paper={"k-exemplar": 3.56, "amortized": 173.2, "vime": 98.0, "simhash": 0.5, "kde": 0.0, "none": 0.0},
        solved_at=173.2,
    ),
    "gather": Task(
        env_id="ex2/SwimmerGather-v0",
        module="ex2.tasks.swimmer_gather",
        summary="a swimmer among green and red objects, seen by two sensors (33 numbers)",
        episode_steps=500,
        extra="mujoco",
        needs="mujoco",
        paper={"k-exemplar": 0.228, "amortized": 0.240, "vime": 0.196, "simhash": 0.258, "kde": 0.098, "none": 0.0},
        solved_at=0.24,
    ),
    "doom": Task(
        env_id="ex2/DoomMyWayHomePlus-v0",
        module="ex2.tasks.doom",
        summary="a vest, eight rooms away, seen through the player's eyes (32x32 RGB)",
        episode_steps=210,
        extra="doom",
        needs="vizdoom",
        exact=False,
        paper={"k-exemplar": 0.740, "amortized": 0.788, "vime": 0.443, "simhash": 0.331, "kde": 0.195, "none": 0.250},
        solved_at=0.9,
    ),
    "freeway": _atari(
        "freeway", "a chicken across ten lanes of cars (4 frames, grey 42x42)", 33.3, amortized=33.3, simhash=33.5, none=16.5
    ),
    "frostbite": _atari(
        "frostbite", "floes to jump on, an igloo (4 frames, grey 42x42)", 4901.0, amortized=4901.0, simhash=5214.0, none=2869.0
    ),
    "venture": _atari(
        "venture", "rooms with treasures and monsters (4 frames, grey 42x42)", 900.0, amortized=900.0, simhash=445.0, none=121.0
    ),
}


def find_task(name: str) -> Task:
    """The task of this name; any other environment that Gymnasium knows is one, too. Else an error names the nearest task."""
    if name in TASKS:
        return TASKS[name]
    module, _, env_id = name.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        spec = gymnasium.spec(env_id)
    except ImportError as error:
        raise UsageError(f"The module {module!r} of the environment {name!r} cannot be imported ({error}).") from None
    except gymnasium.error.Error:
        raise unknown("task or environment", name, TASKS) from None
    return Task(
        env_id=name,
        module="",
        summary="an environment of Gymnasium",
        episode_steps=spec.max_episode_steps or 1_000,
        extra="",
        needs="gymnasium",
        exact=False,
    )


def _installed(name: str) -> Task:
    task = find_task(name)
    if importlib.util.find_spec(task.needs) is None:
        raise missing_extra(task.extra, task.needs)
    return task


def task_map(name: str) -> Map | None:
    """The task as a map, or None if it has none."""
    if name not in TASKS:
        return None
    module = importlib.import_module(_installed(name).module)
    return module.make_map() if hasattr(module, "make_map") else None


def make_vector_env(name: str, num_envs: int, **settings: Any) -> VectorEnv[Any, Any, Any]:
    """A batch of environments of a task, through Gymnasium's vector entry point."""
    task = _installed(name)
    return gymnasium.make_vec(task.env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **settings)


def register() -> None:
    """Makes the tasks known to Gymnasium."""
    entries = [(task.env_id, task, task.arguments) for task in TASKS.values()]
    entries.append(("ex2/SparseHalfCheetah5Steps-v0", TASKS["cheetah"], {"physics_steps": 5}))
    for env_id, task, arguments in entries:
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point=f"{task.module}:make_env",
                vector_entry_point=f"{task.module}:make_vector_env",
                max_episode_steps=task.episode_steps if task.exact else None,  # the others count for themselves
                kwargs=arguments,
            )
