"""What a preset is, and settings that several of them share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any

from ex2.settings import Settings, setting
from ex2.shaping import Weight
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.trpo import TRPOSettings


@dataclass(frozen=True)
class Tuned:
    """A bonus on a task: its weight, and the settings that are not its class's defaults."""

    weight: Weight
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Preset(Settings):
    """The settings of a task; what they mean is said in `ex2.training.config.Config`."""

    steps: int = setting(MISSING, "Environment steps of a run.", least=1)
    num_envs: int = setting(MISSING, "Environments side by side.", least=1)
    rollout_steps: int = setting(MISSING, "Steps of each in an iteration.", least=1)
    groups: int = setting(1, "Groups of environments that take turns.", least=1, most=2)
    threads: int = setting(1, "PyTorch's threads.", least=1)
    entropy: float = setting(0.0, "A reward for acting at random.", least=0)
    checkpoint_every: int = setting(25, "Iterations between checkpoints.", least=1)
    clip_reward: bool = setting(False, "Whether the agent learns from clipped rewards.")
    stack: int = setting(1, "Frames in an observation.", least=1)
    task: dict[str, Any] = setting(MISSING, "What environments are made with.")
    policy: PolicySettings = setting(MISSING, "The networks.")
    trpo: TRPOSettings = setting(MISSING, "The settings of TRPO.")
    ppo: PPOSettings = setting(MISSING, "The settings of PPO.")
    weight: Weight = setting(MISSING, "Of bonuses whose scores deviate by about 1, and of those that are not in `bonuses`.")
    bonuses: dict[str, Tuned] = setting(MISSING, "`Tuned` bonuses by name; all others have their defaults.")

    def tuned(self, bonus: str) -> Tuned:
        """A bonus on this task. Several at once have the settings of each part, and the weight of scores that deviate by 1, as
        theirs do."""
        if bonus == "none":
            return Tuned(Weight(start=0.0))
        if "+" not in bonus:
            return self.bonuses.get(bonus, Tuned(self.weight))
        parts = {part: self.bonuses.get(part, Tuned(self.weight)).settings for part in bonus.split("+")}
        return Tuned(self.weight, {f"{part}.{name}": value for part, own in parts.items() for name, value in own.items()})


# The exemplar models as these tasks were tuned with them: the paper's, but for what a preset says. Their defaults are others.
AMORTIZED = {
    "metric": "learned",
    "state_noise": 0.0,
    "information_rate": None,
    "schedule": "constant",
    "pairs": 128,
    "scatter": 0.0,
    "samples": 8,
    "learning_rate": 1e-4,
    "gain": 1.0,
}
K_EXEMPLAR = {"metric": "learned", "state_noise": 0.0, "latent_noise": 0.1, "draws": 8, "hidden": 16}
FEW_HEADS = {"steps": 40, "newton_steps": 5, "newton_negatives": 400}  # of K-exemplar models, that they cost less
