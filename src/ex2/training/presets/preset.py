"""What a preset is: the facts of a task."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import Any

from ex2.settings import Settings, setting
from ex2.shaping import CENTRES, Weight
from ex2.training.policy import PolicySettings
from ex2.training.ppo import PPOSettings
from ex2.training.trpo import TRPOSettings


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """What a preset says and a run's configuration holds."""

    steps: int = setting(MISSING, "Environment steps of the whole run.", least=1)
    num_envs: int = setting(MISSING, "Environments side by side.", least=1, most=100_000)
    rollout_steps: int = setting(MISSING, "Steps of each environment in an iteration.", least=1, most=1_000_000)
    groups: int = setting(
        1, "Groups of environments that take turns: one is stepped while the actor acts for the other.", least=1, most=2
    )
    threads: int = setting(1, "PyTorch's threads; sums depend on their number, so a run does.", least=1, most=1_024)
    centre: str = setting("median", "What is subtracted from the bonuses of a batch.", among=CENTRES)
    scaled: bool = setting(True, "Whether bonuses are divided by the running deviation of their discounted sums.")
    episodic: bool = setting(True, "Whether the bonus's returns end with an episode; if not, they have a critic of their own.")
    episode_counts: bool = setting(True, "Whether what recurs within an episode counts less, for bonuses that have a metric.")
    entropy: float = setting(0.0, "A reward for acting at random: this times -log pi(a|s).", least=0)
    checkpoint_every: int = setting(25, "Iterations between checkpoints.", least=1)
    clip_reward: bool = setting(False, "Whether the agent learns from rewards clipped to [-1, 1]; scores are not clipped.")
    stack: int = setting(1, "Frames in an observation; the bonus sees the last one.", least=1)
    snapshots: int = setting(20, "Moments of a training that are kept on its task's map, if it has one.", least=0, most=1_000)


@dataclass(frozen=True, kw_only=True)
class Preset(RunSettings):
    """The settings of a task. Its bonuses have their class's defaults and the weight "auto"."""

    task: dict[str, Any] = setting(MISSING, "What environments are made with.")
    policy: PolicySettings = setting(MISSING, "The networks.")
    trpo: TRPOSettings = setting(MISSING, "The settings of TRPO.")
    ppo: PPOSettings = setting(MISSING, "The settings of PPO.")
    weight: Weight = setting(Weight(), "Of the bonus.")
    entries: tuple[int, ...] | None = setting(None, "The entries of an observation that novelty is about, if not all of them.")
    bonus: dict[str, Any] = setting(MISSING, "Settings of the bonus that are not its defaults: of published ones only.")
