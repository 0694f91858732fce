"""EX2: exploration with exemplar models for reinforcement learning (Fu, Co-Reyes, Levine, NIPS 2017)."""

import importlib
import os
from typing import TYPE_CHECKING, Any

# A thread of PyTorch's that waits would spin, and take the core that games are played on: a tenth of Doom's and Atari's speed.
# This is heard only where ex2 is imported before PyTorch, as by the program `ex2`.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from ex2.batch import Batch
from ex2.bonus import BONUSES, Bonus, DensityBonus, make_bonus
from ex2.errors import UsageError
from ex2.explorer import Explorer
from ex2.shaping import Weight
from ex2.tasks import TASKS, make_vector_env, register

if TYPE_CHECKING:
    from ex2.density import ExemplarDensity
    from ex2.training.evaluation import evaluate
    from ex2.training.run import Run, resume, train

__version__ = "0.1.0"
LAZY = {
    "ExemplarDensity": "ex2.density",
    "Run": "ex2.training.run",
    "evaluate": "ex2.training.evaluation",
    "resume": "ex2.training.run",
    "train": "ex2.training.run",
}
"""Names that are imported only when asked for, and where from: scikit-learn, TensorBoard and the rest take their time."""
__all__ = [
    "BONUSES",
    "TASKS",
    "Batch",
    "Bonus",
    "DensityBonus",
    "ExemplarDensity",
    "Explorer",
    "Run",
    "UsageError",
    "Weight",
    "evaluate",
    "make_bonus",
    "make_vector_env",
    "resume",
    "train",
]

register()


def __getattr__(name: str) -> Any:
    if name in LAZY:
        return getattr(importlib.import_module(LAZY[name]), name)
    raise AttributeError(f"module 'ex2' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
