"""The full configuration of a run: everything that decides its outcome, saved beside it as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ex2.bonus import bonus_settings, check_device, kind_of
from ex2.errors import UsageError, unknown
from ex2.shaping import CENTRES, Weight
from ex2.tasks import find_task
from ex2.training.presets import PRESETS

ALGORITHMS = ("trpo", "ppo")
FREE = {
    "num_envs": "int",
    "rollout_steps": "int",
    "threads": "int",
    "checkpoint_every": "int",
    "device": "str",
    "centre": "str",
    "entropy": "float",
    "episodic": "bool",
    "actor_of": "str",
    "clip_reward": "bool",
    "stack": "int",
}
"""The fields of a run that stand for themselves; all others belong to a part of it."""
POLICY = {
    "hidden": "list",
    "activation": "str",
    "critic_hidden": "list",
    "scale_critic": "bool",
    "standardise_critic": "bool",
    "zero_critic": "bool",
    "initial_std": "float",
    "convolutions": "list",
}
TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "None": (type(None),),
}


@dataclass(frozen=True)
class Config:
    """One run. `weight` holds the fields of `ex2.shaping.Weight`; settings go to the bonus and the algorithm as they are."""

    task: str
    bonus: str
    algo: str
    steps: int
    seed: int
    num_envs: int
    rollout_steps: int
    device: str = "cpu"
    threads: int = 1
    """PyTorch's threads; part of the configuration because sums over threads depend on their number."""
    centre: str = "median"
    entropy: float = 0.0
    """A reward for acting at random, this times -log pi(a|s)."""
    episodic: bool = True
    """Whether the bonus's returns end with an episode; if not, they have a value function of their own."""
    actor_of: str = ""
    """The folder of a run whose actor this one began with; its critic and its bonus begin anew."""
    checkpoint_every: int = 25
    """Iterations between checkpoints."""
    clip_reward: bool = False
    """Whether the agent learns from rewards clipped to [-1, 1]; scores are of the rewards as they are."""
    stack: int = 1
    """Frames in an observation; the bonus sees the last one."""
    task_settings: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    weight: dict[str, Any] = field(default_factory=dict)
    bonus_settings: dict[str, Any] = field(default_factory=dict)
    algo_settings: dict[str, Any] = field(default_factory=dict)

    @property
    def iteration_steps(self) -> int:
        return self.num_envs * self.rollout_steps

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Config:
        try:
            return cls(**json.loads(path.read_text()))
        except OSError:
            raise UsageError(f"{path.parent} is not a run: it has no {path.name}.") from None
        except (json.JSONDecodeError, TypeError) as error:
            raise UsageError(f"{path} is not the configuration of a run of this version: {error}.") from None


def configure(
    task: str,
    bonus: str = "kernel-exemplar",
    *,
    algo: str = "trpo",
    steps: int | None = None,
    seed: int = 0,
    overrides: dict[str, Any] | None = None,
    **fields: Any,
) -> Config:
    """The task's preset for this bonus and algorithm, with `overrides` such as {"bonus.k": 1, "weight.start": 0.5} on top.

    >>> configure("maze", "k-exemplar", overrides={"bonus.k": 1}).bonus_settings["k"]
    1
    """
    find_task(task)
    kind_of(bonus)
    if algo not in ALGORITHMS:
        raise unknown("algorithm", algo, ALGORITHMS)
    preset = deepcopy(PRESETS[task])
    chosen = _chosen(preset["bonus"], bonus, task)
    parts: dict[str, dict[str, Any]] = {
        "task": preset.get("task", {}),
        "policy": preset["policy"],
        "weight": chosen["weight"],
        "bonus": chosen.get("settings", {}),
        "algo": preset["algo"][algo],
    }
    types = {"weight": Weight.__annotations__, "policy": POLICY}
    own = {name: preset[name] for name in FREE if name in preset}
    given = {name: value for name, value in fields.items() if value is not None}
    for key, value in (given | (overrides or {})).items():
        part, _, name = key.partition(".")
        if not name:
            _check(key, value, FREE, "setting")
            own[key] = value
            continue
        if part not in parts:
            raise unknown("part of the configuration", part, parts)
        if part in types:
            _check(name, value, types[part], f"setting of {part}")
        elif part != "bonus" and name in parts[part]:
            _check(name, value, {name: type(parts[part][name]).__name__}, f"setting of {part}")
        parts[part][name] = value
    bonus_settings(bonus, parts["bonus"])
    _check("steps", preset["steps"] if steps is None else steps, {"steps": "int"}, "setting")
    _check("seed", seed, {"seed": "int"}, "setting")
    config = Config(
        task=task,
        bonus=bonus,
        algo=algo,
        steps=preset["steps"] if steps is None else steps,
        seed=seed,
        task_settings=parts["task"],
        policy=parts["policy"],
        weight=parts["weight"],
        bonus_settings=parts["bonus"],
        algo_settings=parts["algo"],
        **own,
    )
    if min(config.steps, config.num_envs, config.rollout_steps, config.checkpoint_every, config.threads, config.stack) < 1:
        raise UsageError("steps, num_envs, rollout_steps, checkpoint_every, threads and stack must all be at least 1.")
    if config.seed < 0:
        raise UsageError(f"The seed is {config.seed}: it must be 0 or more.")
    if config.centre not in CENTRES:
        raise unknown("centre", config.centre, CENTRES)
    check_device(config.device)
    Weight(**config.weight)
    return config


def _chosen(presets: dict[str, Any], bonus: str, task: str) -> dict[str, Any]:
    """A task's preset for a bonus. A combined one has the settings of each part, and the weight of `kernel-exemplar`, whose
    scores deviate by about 1, as its own do."""
    parts = bonus.split("+")
    for part in parts:
        if part not in presets:
            raise UsageError(f"There is no preset for the bonus {part!r} on {task}: use one of {', '.join(presets)}.")
    if len(parts) == 1:
        return presets[bonus]
    settings = {f"{part}.{name}": value for part in parts for name, value in presets[part].get("settings", {}).items()}
    return {"weight": presets["kernel-exemplar"]["weight"], "settings": settings}


def _check(name: str, value: Any, annotations: dict[str, Any], kind: str) -> None:
    """Refuses a setting that does not exist, or a value of another type than its annotation."""
    if name not in annotations:
        raise unknown(kind, name, annotations)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name}={value} must be a finite number.")
    allowed = [TYPES[word.strip()] for word in str(annotations[name]).split("|")]
    if not any(isinstance(value, types) and (bool in types or not isinstance(value, bool)) for types in allowed):
        raise UsageError(f"{name}={value!r} is of the wrong type: it must be {annotations[name]}.")


@dataclass(frozen=True)
class Seeds:
    """The seeds of the parts of a run, all from its one seed."""

    algorithm: int
    environment: int
    bonus: int

    @classmethod
    def of(cls, seed: int) -> Seeds:
        """
        >>> Seeds.of(0) == Seeds.of(0), Seeds.of(0) == Seeds.of(1)
        (True, False)
        """
        return cls(*(int(value) for value in np.random.SeedSequence(seed).generate_state(3) >> 1))
