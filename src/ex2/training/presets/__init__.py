"""The facts of every task, as data: one file a task, and paper.py for the hyperparameters that the paper published.

`ex2.training.config` makes the configuration of a run of them. Where a preset departs from the paper it says so; the
measurements behind it are in docs/design.md.
"""

from __future__ import annotations

import importlib
from typing import Any

from ex2.tasks import TASKS
from ex2.training.presets.preset import Preset


def preset_of(task: str, **settings: Any) -> Preset:
    """A task's preset; of any other Gymnasium environment, made with these settings, one that its spaces suggest."""
    if task in TASKS:
        preset: Preset = importlib.import_module(f"ex2.training.presets.{task.replace('-', '_')}").PRESET
    else:
        preset = importlib.import_module("ex2.training.presets.any_env").preset_for(task, **settings)
    return preset
