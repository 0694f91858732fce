"""RLlib, new API stack: a learner connector that adds any bonus to PPO's rewards before advantages are estimated.

The bonus, with all that it has seen, lives on the learner; environment runners, however many, know nothing of it, so episode
returns and evaluations are the environment's own. Its state is part of the learner's, and so of every checkpoint.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ex2.adapters.steps import in_a_row
from ex2.arrays import Array
from ex2.batch import mapped
from ex2.bonus import Bonus, check_bonus
from ex2.choices import GATHER, check_choices, check_length, check_training
from ex2.errors import UsageError, missing_extra
from ex2.explorer import Explorer
from ex2.shaping import AUTO, Weight

try:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
    from ray.rllib.algorithms.ppo.ppo_learner import PPOLearner
    from ray.rllib.connectors.connector_v2 import ConnectorV2
    from ray.rllib.core import DEFAULT_MODULE_ID
    from ray.rllib.core.columns import Columns
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
    from ray.rllib.utils.spaces.space_utils import batch as batched
    from ray.rllib.utils.spaces.space_utils import get_base_struct_from_space, unsquash_action
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("ray", "tree", "lz4", "pyarrow"):
        raise
    raise missing_extra("rllib", "ray[rllib]") from None

COMPONENT_BONUS = "bonus"


def with_bonus(
    config: AlgorithmConfig,
    bonus: Bonus | str = "kernel-exemplar",
    weight: float | str | Weight = AUTO,
    *,
    total_steps: int | None = None,
    centre: str = "median",
    scaled: bool = True,
    episode_counts: bool = True,
    gather: int = GATHER,
    **settings: Any,
) -> AlgorithmConfig:
    """The configuration of a PPO that learns from a bonus as well; call it when all else is configured.

    Args:
        config: of PPO, single-agent, on the new API stack; it is changed and returned.
        bonus: a built bonus, or the name of one; the spaces then come from the episodes, the settings from `settings`.
        weight: beta, a number or a schedule; "auto" by default, which needs none (`ex2.shaping`).
        total_steps: environment steps of the whole training, over which the weight falls; RLlib does not say it.
        centre, scaled, episode_counts, gather: as of `ex2.Explorer`.
        settings: of the bonus, `seed` (by default the configuration's) and `device` among them.
    """
    check_bonus(bonus, settings, with_bonus)
    check_training(centre, total_steps)
    beta = check_choices(weight, scaled, gather, episode_counts=episode_counts)
    if not isinstance(config, AlgorithmConfig):
        given = config.__name__ if isinstance(config, type) else type(config).__name__
        raise UsageError(f"with_bonus takes a configuration, PPOConfig(), not {given}.")
    base = config.learner_class
    if isinstance(base, type) and issubclass(base, BonusLearner):
        raise UsageError("The configuration has a bonus already: call with_bonus once, 'kernel-exemplar+rnd' is two in one.")
    check_learners(config.num_learners)
    if not config.enable_rl_module_and_learner or not (isinstance(base, type) and issubclass(base, PPOLearner)):
        raise UsageError(f"{type(config).__name__} does not train a PPO on the new API stack: with_bonus takes a PPOConfig.")
    if config.is_multi_agent:
        raise UsageError("The configuration is a multi-agent one: with_bonus takes one agent.")
    check_length(beta, total_steps)
    options = {"bonus": bonus, "weight": weight, "total_steps": total_steps, "centre": centre, "scaled": scaled}
    options |= {"episode_counts": episode_counts, "gather": gather} | settings
    if isinstance(bonus, str) and config.seed is not None:
        options.setdefault("seed", config.seed)
    kind = type(f"Bonus{base.__name__}", (BonusLearner, base), {"options": options})
    return config.learners(learner_class=kind)


def check_learners(count: int) -> None:
    if count > 1:
        raise UsageError(
            f"num_learners is {count}, and each learner would know only what it saw itself: use 0 or 1 with a bonus; "
            "environment runners can be as many as you like."
        )


class BonusConnector(ConnectorV2):
    """Adds the bonus to the rewards of episodes, which other connectors then make a batch of."""

    def __init__(self, gamma: float, normalize_actions: bool, options: dict[str, Any]) -> None:
        super().__init__()
        self.gamma, self.normalize_actions, self.options = gamma, normalize_actions, options
        self.explorer: Explorer | None = None
        self.restored: dict[str, Any] | None = None  # a state that waits for the bonus, which waits for the first episode

    def __call__(self, *, batch: dict[str, Any], episodes: list[Any], metrics: Any = None, **keywords: Any) -> Any:
        # PPO has put an artificial step behind every episode, to bootstrap from, and masked it.
        extra = int(Columns.LOSS_MASK in batch)
        found = [(index, len(episode) - extra) for index, episode in enumerate(episodes) if len(episode) > extra]
        if not found:
            return batch
        explorer = self.built(episodes[found[0][0]])
        parts = [self.parts(episodes[index], length) for index, length in found]
        obs, action, after, rewards = (joined([part[index] for part in parts]) for index in range(4))
        last = np.cumsum([length for _, length in found]) - 1
        ends, terminated = np.zeros(len(rewards), bool), np.zeros(len(rewards), bool)
        ends[last] = True
        terminated[last] = [episodes[index].is_terminated for index, _ in found]
        shaped = explorer.shape(in_a_row(obs, action, after, terminated, ends), rewards[:, None])
        learned = np.split((shaped.rewards + shaped.bonuses)[:, 0], last[:-1] + 1)
        for (index, length), own in zip(found, learned, strict=True):
            episodes[index] = rewarded(episodes[index], own, length)
        if metrics is not None:
            for name, value in shaped.metrics.items():
                metrics.log_value((DEFAULT_MODULE_ID, name), value, window=1)
        return batch

    def built(self, episode: SingleAgentEpisode) -> Explorer:
        """The explorer, for the spaces of the first episode."""
        if self.explorer is None:
            if episode.observation_space is None or episode.action_space is None:
                raise UsageError("The episodes do not know their spaces: sample them with RLlib's own environment runners.")
            options = {name: value for name, value in self.options.items() if name not in ("bonus", "weight")}
            spaces = episode.observation_space, episode.action_space
            self.explorer = Explorer(*spaces, self.options["bonus"], self.options["weight"], gamma=self.gamma, **options)
            if self.restored is not None:
                self.explorer.load_state_dict(self.restored)
                self.restored = None
        return self.explorer

    def parts(self, episode: SingleAgentEpisode, length: int) -> tuple[Any, Any, Any, Array]:
        """Observations, actions as the environment saw them, next observations and rewards of the steps that happened."""
        seen = stacked(episode.get_observations(slice(0, length + 1)))
        action = stacked(episode.get_actions(slice(0, length)))
        if self.normalize_actions:
            action = unsquash_action(action, get_base_struct_from_space(episode.action_space))
        rewards = np.asarray(episode.get_rewards(slice(0, length)), np.float64)
        return mapped(lambda x: x[:-1], seen), action, mapped(lambda x: x[1:], seen), rewards

    def get_state(self, components: Any = None, *, not_components: Any = None, **keywords: Any) -> dict[str, Any]:
        if self.explorer is None:
            return {"explorer": self.restored}
        return {"explorer": self.explorer.state_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.restored = state["explorer"]
        if self.explorer is not None and self.restored is not None:
            self.explorer.load_state_dict(self.restored)
            self.restored = None


class BonusLearner(PPOLearner):
    """A learner with a bonus in its pipeline, and in its state; `with_bonus` makes one of the configured learner."""

    options: dict[str, Any]

    def build(self) -> None:
        check_learners(self.config.num_learners)  # it may have been changed since
        self.connector = connector = BonusConnector(self.config.gamma, self.config.normalize_actions, self.options)
        config = self.config

        def build_learner_connector(*args: Any, **keywords: Any) -> Any:
            pipeline: Any = config.build_learner_connector(*args, **keywords)
            pipeline.prepend(connector)  # PPO's artificial last step comes before it, all else behind
            return pipeline

        self.config = config.copy(copy_frozen=False)
        self.config.build_learner_connector = build_learner_connector  # type: ignore[method-assign]
        super().build()
        self.config = config

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        components: Any = super().get_checkpointable_components()  # type: ignore[no-untyped-call]
        return [*components, (COMPONENT_BONUS, self.connector)]

    def get_state(self, components: Any = None, *, not_components: Any = None, **keywords: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **keywords)
        asked, spared = ([some] if isinstance(some, str) else some for some in (components, not_components))
        if (asked is None or COMPONENT_BONUS in asked) and COMPONENT_BONUS not in (spared or ()):
            state[COMPONENT_BONUS] = self.connector.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if COMPONENT_BONUS in state:
            self.connector.set_state(state[COMPONENT_BONUS])


def stacked(values: Any) -> Any:
    """Steps as arrays [T, ...], also where an episode has them as a list."""
    return batched(values) if isinstance(values, list) else values


def joined(parts: Sequence[Any]) -> Any:
    """Arrays of several episodes, one behind the other; dicts and tuples part by part."""
    if isinstance(parts[0], Mapping):
        return {key: joined([part[key] for part in parts]) for key in parts[0]}
    if isinstance(parts[0], tuple):
        return tuple(joined([part[index] for part in parts]) for index in range(len(parts[0])))
    return np.concatenate(parts)


def rewarded(episode: SingleAgentEpisode, rewards: Array, length: int) -> SingleAgentEpisode:
    """The episode with other rewards for its first steps. An environment runner in this process may still hold the episode
    itself, and will report its return."""
    held = episode.rewards
    data = np.array(held.data, np.float64)  # they may be whole numbers
    data[held.lookback : held.lookback + length] = rewards
    twin = copy.copy(episode)
    twin.rewards = InfiniteLookbackBuffer(data if held.finalized else list(data), held.lookback, held.space)
    return twin
