"""EX2: exploration with exemplar models for reinforcement learning (Fu, Co-Reyes, Levine, NIPS 2017)."""

import os
from typing import Any

# A thread of PyTorch's that waits would spin, and take the core that games are played on: a tenth of Doom's and Atari's speed.
# This is heard only where ex2 is imported before PyTorch, as by the program `ex2`.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from ex2.batch import Batch
from ex2.bonus import BONUSES, Bonus, DensityBonus, make_bonus
from ex2.errors import UsageError
from ex2.shaping import Weight
from ex2.tasks import TASKS, make_vector_env, register

__version__ = "0.1.0"
__all__ = [
    "BONUSES",
    "TASKS",
    "Batch",
    "Bonus",
    "DensityBonus",
    "ExemplarDensity",
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
    """Training needs Stable-Baselines3, and the estimator scikit-learn: they are imported only when asked for."""
    if name in {"train", "resume"}:
        from ex2.training import loop

        return getattr(loop, name)
    if name == "evaluate":
        from ex2.training.evaluation import evaluate

        return evaluate
    if name == "ExemplarDensity":
        from ex2.density import ExemplarDensity

        return ExemplarDensity
    raise AttributeError(f"module 'ex2' has no attribute {name!r}")
