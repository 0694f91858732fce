"""The training loop, as the paper's algorithm: collect, observe, shape, advantages, update, record.

One batch passes, in this order: rollout.py (and the task) -> batch.py -> shaping.py (and the bonus) -> returns.py -> trpo.py or
ppo.py -> metrics.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Space

from ex2.bonus import Bonus, make_bonus
from ex2.errors import UsageError
from ex2.networks import seeded
from ex2.shaping import Shaper
from ex2.tasks import find_task, task_map
from ex2.training import workers
from ex2.training.config import Config, Seeds, algorithm_of
from ex2.training.environments import groups_of
from ex2.training.metrics import Row
from ex2.training.policy import Policy
from ex2.training.returns import Stream, advantages, explained_variance, values_of
from ex2.training.rollout import Collector
from ex2.training.snapshots import Visits
from ex2.training.spaces import pack_space

LEARNED = ("policy", "algorithm", "bonus", "shaper", "stream")  # parts of a state


class Diverged(UsageError):
    """Numbers of an agent are no longer finite."""


class Trainer:
    """One run in memory: environments, agent and bonus. Workers, if it has any, are of the Ray cluster at an address."""

    def __init__(self, config: Config, address: str | None = None) -> None:
        self.config, self.steps = config, 0
        self.seconds = self.bonus_seconds = 0.0
        seeds, arena = Seeds.of(config.seed), task_map(config.task) if config.snapshots else None
        self.visits = None if arena is None else Visits(arena)
        self.generator = torch.Generator().manual_seed(seeds.algorithm)
        envs: Any = workers.start(config, address) if config.workers else groups_of(config)
        kind = workers.Workers if config.workers else Collector
        try:
            self.spaces = envs[0].single_observation_space, envs[0].single_action_space
            self.policy = build_policy(config, *self.spaces)
            self.algorithm = algorithm_of(config.algo)(self.policy, config.algo_settings, self.generator)
            self.bonus = build_bonus(config, *self.spaces)
            self.collector = kind(
                envs,
                self.policy,
                seed=seeds.environment,
                generator=self.generator,
                apart=limit if (limit := episode_steps(config)) >= 2 * config.rollout_steps else 0,
                clip_reward=config.clip_reward,
                stack=config.stack,
                places=None if arena is None else arena.places,
            )
        except BaseException:
            for env in envs:
                env.close()
            raise
        gamma, gae_lambda = config.algo_settings.gamma, config.algo_settings.gae_lambda
        how = config.centre, config.scaled, config.episodic, config.episode_counts
        self.shaper = Shaper(self.bonus, config.weight, gamma, *how)
        critic = self.policy.bonus_critic
        self.stream = None if critic is None else Stream(critic, gamma, gae_lambda, seeds.bonus)

    def iterate(self) -> Row:
        """One iteration; returns what there is to report."""
        config, algo, started = self.config, self.config.algo_settings, time.perf_counter()

        left = -(-(config.steps - self.steps) // config.num_envs)  # of each environment; the last rollout may be shorter
        torch.set_num_threads(1)  # the other cores are the environments'
        rollout = self.collector.collect(max(min(config.rollout_steps, left), 1))
        torch.set_num_threads(config.threads)
        if self.collector.anew:
            self.shaper.restart()
        progress = self.steps / config.steps  # before the batch: a training of one iteration has a bonus, too
        self.steps += rollout.rewards.size

        shaped = self.shaper(rollout.batch, rollout.rewards, progress)
        if self.visits is not None and rollout.places is not None:
            self.visits.add(rollout.places, self.shaper.scores_of(shaped))
        rewards = shaped.rewards - config.entropy * rollout.log_probs
        if self.stream is None:
            rewards = rewards + shaped.bonuses

        fitted = self.algorithm.finish()  # the critic's fit to the rollout before, which may have gone on meanwhile
        values, final_values = values_of(self.policy.critic, rollout)
        found = advantages(rewards, values, algo.gamma, algo.gae_lambda, rollout.ends, final_values)
        returns = found + values[:-1]
        if self.stream is not None:
            found = found + self.stream.advantages(shaped.bonuses, rollout.observations, rollout.last)

        self._check(not_finite(found, "an advantage"))
        trained = self.algorithm.update(rollout, found, returns, progress)
        if self.policy.moments is not None:
            trained |= self.algorithm.finish()
            self.policy.take_in(rollout.observations.held)
        self._check(not_finite(shaped.metrics | fitted | trained))

        elapsed = time.perf_counter() - started
        self.seconds += elapsed
        self.bonus_seconds += shaped.metrics["bonus/seconds"]
        row = {"step": self.steps, "score": self.collector.score, "seconds": self.seconds}
        row |= {"steps_per_second": rollout.rewards.size / elapsed, "entropy": -float(rollout.log_probs.mean())}
        row["train/explained_variance"] = explained_variance(values[:-1], returns)
        return row | shaped.metrics | fitted | trained

    def close(self) -> None:
        try:
            self.algorithm.finish()
        finally:
            self.collector.close()

    def state(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on."""
        state = {
            "spaces": {name: pack_space(space) for name, space in zip(("observation", "action"), self.spaces, strict=True)},
            "algorithm": self.algorithm.state_dict(),  # first: it waits for what goes on of an update
            "policy": self.policy.state_dict(),
            "bonus": self.bonus.state_dict(),
            "shaper": self.shaper.state_dict(),
            "stream": self.stream.state_dict() if self.stream else None,
            "collector": self.collector.state(find_task(self.config.task).exact),
            "generator": self.generator.get_state(),
            "visits": None if self.visits is None else self.visits.state_dict(),
            "steps": self.steps,
            "seconds": self.seconds,
            "bonus_seconds": self.bonus_seconds,
        }
        self._check(not_finite({name: state[name] for name in LEARNED}))
        return state

    def _check(self, bad: Iterable[str]) -> None:
        """Ends the training where there are numbers that are none: no update mends them, and no checkpoint should hold them."""
        for name in bad:
            raise Diverged(f"The training has diverged at step {self.steps:,}: {name} is no longer finite.")

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from where `state` was called; games, which cannot be saved, begin fresh episodes."""
        self.policy.load_state_dict(state["policy"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.bonus.load_state_dict(state["bonus"])
        self.shaper.load_state_dict(state["shaper"])
        if self.stream:
            self.stream.load_state_dict(state["stream"])
        self.collector.load_state(state["collector"])
        if self.visits is not None and state.get("visits") is not None:
            self.visits.load_state_dict(state["visits"])
        self.generator.set_state(state["generator"])
        self.steps, self.seconds, self.bonus_seconds = state["steps"], state["seconds"], state["bonus_seconds"]
        if not find_task(self.config.task).exact:
            seeds = np.random.SeedSequence([Seeds.of(self.config.seed).environment, self.steps])
            self.collector.begin(int(seeds.generate_state(1)[0] >> 1))
            self.shaper.restart()


def not_finite(value: Any, name: str = "") -> Iterator[str]:
    """The names of all numbers in a nested state that are not finite.

    >>> list(not_finite({"policy": {"weight": torch.tensor([1.0, torch.nan])}, "steps": 3}))
    ['policy/weight']
    """
    if isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from not_finite(item, f"{name}/{key}" if name else str(key))
    elif isinstance(value, torch.Tensor | np.ndarray):
        tensor = torch.as_tensor(value)
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            yield name
    elif isinstance(value, float) and not math.isfinite(value):
        yield name


def episode_steps(config: Config) -> int:
    """The time limit of a run's episodes: its task's, unless its settings have another."""
    own = config.task_settings
    return int(own.get("max_episode_steps") or own.get("episode_steps") or find_task(config.task).episode_steps)


def build_policy(config: Config, observation_space: Space[Any], action_space: Space[Any]) -> Policy:
    """A run's policy, from its spaces."""
    seen = observation_space.shape or ()
    if config.stack > 1 and (len(seen) != 3 or seen[0] != config.stack):
        raise UsageError(f"stack={config.stack} does not fit observations of shape {seen}: it must be their first number.")

    def build() -> Policy:
        return Policy(observation_space, action_space, config.policy, config.episodic)

    policy = seeded(build, Seeds.of(config.seed).algorithm).to(config.device)
    assert isinstance(policy, Policy)
    return policy


def build_bonus(config: Config, observation_space: Space[Any], action_space: Space[Any]) -> Bonus:
    """A run's bonus, from its spaces; of a stack of frames it sees the last one."""
    if config.stack > 1:
        assert isinstance(observation_space, Box)
        low, high = observation_space.low[-1:], observation_space.high[-1:]
        observation_space = Box(low, high, dtype=low.dtype.type)
    seed = Seeds.of(config.seed).bonus
    return make_bonus(config.bonus, observation_space, action_space, config.bonus_settings, seed=seed, device=config.device)
