"""The full configuration of a run: everything that decides its outcome, saved beside it as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ex2.bonus import bonus_settings, check_device, kind_of, setting_names
from ex2.errors import UsageError, unknown
from ex2.settings import Settings, names, setting
from ex2.shaping import Weight, check_scaled
from ex2.tasks import find_task
from ex2.training.algorithm import Algorithm, AlgorithmSettings
from ex2.training.files import replacing
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPO
from ex2.training.presets import preset_of
from ex2.training.presets.paper import paper_preset
from ex2.training.presets.preset import RunSettings
from ex2.training.trpo import TRPO

ALGORITHMS: dict[str, type[Algorithm]] = {"trpo": TRPO, "ppo": PPO}
PARTS = {"task": "task_settings", "policy": "policy", "weight": "weight", "bonus": "bonus_settings", "algo": "algo_settings"}
"""What overrides such as "bonus.k" begin with, and the fields they are of."""
PRESETS = ("default", "paper")
CHOSEN = ("task", "bonus", "algo", "preset", "steps", "seed")  # which are said by name, and not by overrides


@dataclass(frozen=True, kw_only=True)
class Config(RunSettings):
    """One run."""

    task: str = setting(MISSING, "A task, as `ex2 tasks` lists them, or the id of any Gymnasium environment.")
    bonus: str = setting(MISSING, "A bonus, as `ex2 bonuses` lists them, or several: rnd+simhash.")
    algo: str = setting("trpo", "The algorithm.", among=tuple(ALGORITHMS))
    preset: str = setting("default", "Where its settings come from: ours, or those that the paper published.", among=PRESETS)
    seed: int = setting(0, "Of everything random.", least=0)
    device: str = setting("cpu", "Where networks run: cpu, cuda, cuda:N.")
    workers: int = setting(0, "Ray workers that share the environments; 0 for none, all in this process.", least=0, most=10_000)
    actor_of: str = setting("", "The folder of a run whose actor this one began with; critic and bonus begin anew.")
    task_settings: dict[str, Any] = setting(MISSING, "What environments are made with.")
    policy: PolicySettings = setting(MISSING, "The networks.")
    weight: Weight = setting(MISSING, "Of the bonus.")
    bonus_settings: Settings = setting(MISSING, "Those of the bonus.")
    algo_settings: AlgorithmSettings = setting(MISSING, "Those of the algorithm.")

    def check(self) -> None:
        check_device(self.device)
        check_scaled(self.weight, self.scaled)
        if self.iteration_steps > 10**8:
            steps = f"num_envs={self.num_envs} times rollout_steps={self.rollout_steps}"
            raise UsageError(f"{steps} is more than an iteration can hold: 10^8 steps.")
        if self.groups > self.num_envs:
            raise UsageError(f"groups={self.groups} is more than there are environments, num_envs={self.num_envs}.")

        if self.workers > self.num_envs:
            raise UsageError(f"workers={self.workers} is more than there are environments, num_envs={self.num_envs}.")

    @property
    def iteration_steps(self) -> int:
        return self.num_envs * self.rollout_steps

    def save(self, path: Path) -> None:
        write_json(path, self.as_dict())

    @classmethod
    def of_file(cls, values: Mapping[str, Any], path: Path) -> Config:
        """The configuration that a file held."""
        try:
            return cls.of_json(values)
        except (TypeError, KeyError, AttributeError, UsageError) as error:
            raise UsageError(f"{path} is not the configuration of a run of this version ({error}).") from None

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Config:
        """Reads back what `as_dict` gave."""
        return cls.of(
            dict(values)
            | {
                "policy": PolicySettings.of(values["policy"], "policy"),
                "weight": Weight.of(values["weight"], "weight"),
                "bonus_settings": bonus_settings(values["bonus"], values["bonus_settings"]),
                "algo_settings": algorithm_of(values["algo"]).Settings.of(values["algo_settings"], values["algo"]),
            },
            "run",
        )


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes an object to a file, all or nothing."""
    with replacing(path) as draft:
        draft.write_text(json.dumps(values, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file."""
    try:
        values = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path.parent} is not a run: it has no {path.name}.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise UsageError(f"{path} is not the configuration of a run of this version ({error}).") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not the configuration of a run: it holds no object.")
    return values


def algorithm_of(name: str) -> type[Algorithm]:
    """The algorithm of this name, or an error that names the nearest one."""
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def configure(
    task: str,
    bonus: str = "kernel-exemplar",
    *,
    algo: str = "trpo",
    preset: str = "default",
    steps: int | None = None,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Config:
    """The task's preset for this bonus and algorithm, with `overrides` such as {"bonus.k": 1, "weight.start": 0.5} on top.

    `preset` is "default", or "paper" for the hyperparameters that the paper published.

    >>> configure("maze", "k-exemplar", overrides={"bonus.k": 1}).bonus_settings.k
    1
    """
    find_task(task)
    kind_of(bonus)
    algorithm_of(algo)
    given = {name: value for name, value in fields.items() if value is not None} | dict(overrides or {})
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    made_with = {key.removeprefix("task."): value for key, value in given.items() if key.startswith("task.")}
    chosen = paper_preset(task, bonus) if preset == "paper" else preset_of(task, **made_with)
    parts: dict[str, Any] = {
        "task": dict(chosen.task),
        "policy": chosen.policy.as_dict(),
        "weight": chosen.weight.as_dict(),
        "bonus": {name: list(chosen.entries) for name in setting_names(bonus) if name.rpartition(".")[2] == "entries"}
        if chosen.entries
        else dict(chosen.bonus),
        "algo": getattr(chosen, algo).as_dict(),
    }
    own = {name: getattr(chosen, name) for name in names(RunSettings)}
    for key, value in given.items():
        part, _, name = key.partition(".")
        if name and part not in parts:
            raise unknown("part of the configuration", part, parts)
        if name:
            parts[part][name] = value
        elif key in CHOSEN or key in PARTS.values() or key not in names(Config):
            raise unknown("setting", key, [name for name in names(Config) if name not in (*CHOSEN, *PARTS.values())])
        else:
            own[key] = value
    own |= {"task": task, "bonus": bonus, "algo": algo, "preset": preset, "seed": seed}
    own["steps"] = chosen.steps if steps is None else steps
    return Config.of_json(own | {PARTS[part]: values for part, values in parts.items()})


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
