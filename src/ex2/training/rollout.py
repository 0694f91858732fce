"""Collecting a rollout: an actor and its environments, in one or two groups that take turns.

With two groups, the actor acts for one while the environments of the other are stepped in a thread (games and physics leave
Python alone meanwhile). Who acts when is fixed and every draw is made beforehand, so a run repeats to the bit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from ex2.arrays import Array
from ex2.batch import Batch
from ex2.errors import UsageError
from ex2.tasks.rules import last_observations
from ex2.training.acting import Acting
from ex2.training.policy import Policy
from ex2.training.seen import Observations, Seen, SeenFrames

SCORE_EPISODES = 20
"""A score is the mean return, without any bonus, of this many last episodes."""


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments, and what the actor made of them. Rows of the first three are [T * N]."""

    observations: Observations
    actions: Tensor
    parameters: Tensor
    """Of the distributions that the actions were drawn from."""
    batch: Batch
    """What a bonus sees, in main memory."""
    rewards: Array
    """[T, N], clipped if the agent learns from clipped ones."""
    log_probs: Array
    """[T, N]."""
    ends: Array
    """[T, N]."""
    last: Tensor
    """[N, ...]: the observations that the rollout ended with, as a network sees them."""
    cut: Tensor | None
    """[M, ...]: the last observations of episodes that a time limit cut short, in the order of `batch.truncated`."""
    places: Array | None = None
    """[T, N, axes]: where on the task's map each step led to, if the collector was told how to see it."""


class Steps:
    """T steps of N environments, as they come in: all that a rollout is made of."""

    def __init__(self, seen: Seen) -> None:
        shape = seen.steps, seen.host.shape[1]
        self.seen, self.rewards = seen, np.zeros(shape, np.float32)
        self.terminated, self.truncated = np.zeros(shape, bool), np.zeros(shape, bool)
        self.episodes: list[tuple[int, int, float]] = []  # step, environment and return of those that ended and count
        self.actions = self.parameters = torch.zeros(0)  # [T * N, ...], when all steps are taken
        self.places: Array | None = None  # [T, N, axes], of a collector that sees them

    def put_places(self, steps: int | slice, where: slice, places: Array) -> None:
        """Where on a map steps of some environments led to, [..., axes]."""
        if self.places is None:
            self.places = np.zeros((*self.rewards.shape, places.shape[-1]), np.float32)
        self.places[steps, where] = places

    @torch.no_grad()
    def rollout(self, policy: Policy) -> Rollout:
        """With what the actor says of them; their observations are as `policy` sees them."""
        seen, shape = self.seen, self.rewards.shape
        drawn, old = self.actions, self.parameters
        cut, taken = seen.cut(self.truncated), policy.actions.to_env(drawn.cpu().numpy())
        before, after = seen.states()
        return Rollout(
            observations=seen.observations(policy.see),
            actions=drawn,
            parameters=old,
            batch=Batch.of(before, taken.reshape(*shape, *drawn.shape[1:]), after, self.terminated, self.truncated),
            rewards=self.rewards,
            log_probs=policy.actions.log_prob(old, drawn).cpu().numpy().reshape(shape),
            ends=self.terminated | self.truncated,
            last=policy.see(seen.now(seen.steps, slice(0, shape[1]))),
            cut=None if cut is None else policy.see(torch.as_tensor(cut, device=policy.device)),
            places=self.places,
        )


class Group:
    """Environments that are stepped together: some of all, `where` says which."""

    def __init__(self, env: VectorEnv[Any, Any, Any], where: slice, pool: ThreadPoolExecutor | None) -> None:
        self.env, self.where, self._pool = env, where, pool
        self.observation: Array = np.zeros(0)
        self._arriving: Future[tuple[Any, ...]] | None = None
        self._arrived: tuple[Any, ...] = ()

    def send(self, actions: Array) -> None:
        if self._pool is None:
            self._arrived = self.env.step(actions)
        else:
            self._arriving = self._pool.submit(self.env.step, actions)

    def receive(self) -> tuple[Any, ...]:
        if self._arriving is None:
            return self._arrived
        arrived, self._arriving = self._arriving.result(), None
        return arrived


class Collector:
    """Steps environments with a policy, and knows how their episodes stand.

    Args:
        envs: one or two vector environments with AutoresetMode.SAME_STEP: only then is every step a real transition.
        apart: steps over which the first episodes are cut short, one after the other, so that environments with a time limit
            are not all at the same point of an episode for ever: a rollout would then show nothing but beginnings, or ends.
        clip_reward: whether the agent learns from rewards clipped to [-1, 1]; episodes' returns are of the rewards as they are.
        stack: frames in an observation, [frames, height, width], the newest last; the bonus sees that one.
        first, total: the number of the first of these environments and of all there are, where others are elsewhere.
        places: (observations, infos) -> where on a map the environments are, [N, axes]; as a `Map` has it.
    """

    anew = False  # whether episodes were lost, so that a rollout does not go on where the one before ended

    def __init__(
        self,
        envs: Sequence[VectorEnv[Any, Any, Any]],
        policy: Policy,
        *,
        seed: int,
        generator: torch.Generator,
        apart: int = 0,
        clip_reward: bool = False,
        stack: int = 1,
        first: int = 0,
        total: int | None = None,
        places: Callable[[Array, dict[str, Any]], Array] | None = None,
    ) -> None:
        for env in envs:
            mode = env.metadata.get("autoreset_mode")
            if mode is not AutoresetMode.SAME_STEP:
                raise UsageError(f"{env} has the autoreset mode {mode}: training needs AutoresetMode.SAME_STEP.")
        self.policy, self.clip_reward, self.stack, self.places = policy, clip_reward, stack, places
        self.acting = Acting(policy)
        self.generator = generator
        self.episodes: deque[float] = deque(maxlen=SCORE_EPISODES)
        self.count = sum(env.num_envs for env in envs)
        self.first, self.total = first, total or self.count
        self._pool = ThreadPoolExecutor(len(envs), thread_name_prefix="group") if len(envs) > 1 else None
        self.groups: list[Group] = []
        for env in envs:
            begin = sum(group.env.num_envs for group in self.groups)
            self.groups.append(Group(env, slice(begin, begin + env.num_envs), self._pool))
        self.returns = np.zeros(self.count)
        self.apart = apart
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """Begins all episodes: environment i has the seed + i."""
        for group in self.groups:
            group.observation, _ = group.env.reset(seed=seed + self.first + group.where.start)
            if group.observation.dtype.kind == "f":
                self._refuse(group.observation, "first observation", np.arange(group.where.start, group.where.stop), 0)
        self.returns[:] = 0.0
        # Steps until an environment's first episode is cut short; 0 or less where none is to be any more.
        self.cut_in = self.apart * (self.first + np.arange(self.count)) // self.total

    @property
    def score(self) -> float:
        return float(np.mean(self.episodes)) if self.episodes else float("nan")

    def collect(self, steps: int) -> Rollout:
        """A rollout of so many steps of each environment, with the policy as it is."""
        taken = self.take(self.policy.actions.noise(steps, self.count, self.generator))
        self.episodes.extend(value for _, _, value in taken.episodes)
        return taken.rollout(self.policy)

    @torch.no_grad()
    def take(self, noise: Tensor) -> Steps:
        """As many steps as there is noise for, [T, N, ...], with the policy as it is."""
        policy, count, steps = self.policy, self.count, len(noise)
        seen = (Seen if self.stack == 1 else SeenFrames)(steps, count, self.groups[0].observation, policy.device)
        taken, draws = Steps(seen), noise.to(policy.device).unbind(0)
        actions, parameters = list[Tensor](), list[Tensor]()
        self.acting.begin()
        for group in self.groups:
            seen.put(0, group.where, group.observation, np.ones(group.env.num_envs, bool))
        for step in range(steps):
            for group in self.groups:
                where = group.where
                if step:
                    self._arrive(group, step - 1, taken)
                chosen, outputs = self.acting(seen.now(step, where), draws[step][where])
                group.send(policy.actions.to_env(chosen.cpu().numpy()))
                parameters.append(outputs)
                actions.append(chosen)
        for group in self.groups:
            self._arrive(group, steps - 1, taken)
        taken.actions, taken.parameters = torch.cat(actions), torch.cat(parameters)
        return taken

    def _arrive(self, group: Group, step: int, taken: Steps) -> None:
        """Takes in what the environments of a group answered to their actions."""
        observation, reward, ended, cut, infos = group.receive()
        where = group.where
        if not math.isfinite(reward.sum()):
            self._refuse(reward, "reward", np.arange(where.start, where.stop), step)
        if observation.dtype.kind == "f" and not math.isfinite(observation.sum()):
            self._refuse(observation, "observation", np.arange(where.start, where.stop), step)
        taken.rewards[step, where] = np.clip(reward, -1.0, 1.0) if self.clip_reward else reward
        taken.terminated[step, where], taken.truncated[step, where] = ended, cut & ~ended
        done = ended | cut
        observation, infos, due = self._cut_short(group, observation, done, infos)
        taken.truncated[step, where] |= due
        done = done | due
        self.returns[where] += reward
        reached = observation
        if done.any():
            indices = np.flatnonzero(done)
            final = np.stack([infos["final_obs"][index] for index in indices])
            if final.dtype.kind == "f" and not np.isfinite(final).all():
                self._refuse(final, "last observation of an episode", where.start + indices, step)
            taken.seen.end(step, where.start + indices, final)
            if self.places is not None:
                reached = observation.copy()
                reached[indices] = final
            died = infos.get("died")  # an episode that a crash has cut short is no score
            whole = indices if died is None else indices[~np.asarray(died)[indices]]
            whole = whole[~due[whole]]
            taken.episodes.extend((step, index, float(self.returns[index])) for index in (where.start + whole).tolist())
            self.returns[where.start + indices] = 0.0
        taken.seen.put(step + 1, where, observation, done)
        group.observation = observation
        if self.places is not None:
            taken.put_places(step, where, self.places(reached, infos))

    def _cut_short(self, group: Group, observation: Array, done: Array, infos: dict[str, Any]) -> tuple[Array, Any, Array]:
        """Ends first episodes whose time has come; returns what the environments show then, and which ones it was."""
        left = self.cut_in[group.where]
        due = (left == 1) & ~done
        left -= 1
        left[done] = 0
        if due.any():
            final = last_observations(observation, due)["final_obs"]
            for index in np.flatnonzero(done):  # those that ended by themselves in the same step
                final[index] = infos["final_obs"][index]
            observation, _ = group.env.reset(options={"reset_mask": due})
            infos = infos | {"final_obs": final}
        return observation, infos, due

    def _refuse(self, values: Array, name: str, envs: Array, step: int) -> None:
        """Names the environment, of those the values are of, that gave a number no agent can learn from."""
        bad = ~np.isfinite(values)
        if bad.any():  # else only their sum was too large
            index = int(np.argwhere(bad)[0][0])
            raise UsageError(
                f"The {name} of environment {self.first + envs[index]} at step {step} of the rollout is {values[index]}: "
                "environments must give finite numbers."
            )

    def state(self, exact: bool) -> dict[str, Any]:
        """How the episodes stand; of environments that can be saved in the middle of one, all that the next step depends on."""
        envs = [{"env": group.env.unwrapped.get_state(), "obs": group.observation} for group in self.groups] if exact else None
        return {"episodes": list(self.episodes), "returns": self.returns.copy(), "cut_in": self.cut_in.copy(), "envs": envs}

    def load_state(self, state: dict[str, Any]) -> None:
        self.episodes = deque(state["episodes"], maxlen=SCORE_EPISODES)
        if state["envs"] is not None:
            self.returns, self.cut_in = np.array(state["returns"]), np.array(state["cut_in"])
            for group, saved in zip(self.groups, state["envs"], strict=True):
                group.env.unwrapped.set_state(saved["env"])
                group.observation = np.array(saved["obs"])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for group in self.groups:
            group.env.close()
