"""Collecting a rollout: an actor and its environments, in one or two groups that take turns.

With two groups, the actor acts for one while the environments of the other are stepped in a thread (games and physics leave
Python alone meanwhile). Who acts when is fixed and every draw is made beforehand, so a run repeats to the bit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor, nn

from ex2.arrays import Array
from ex2.batch import Batch
from ex2.errors import UsageError
from ex2.tasks.rules import last_observations
from ex2.training.acting import Acting
from ex2.training.policy import Policy

SCORE_EPISODES = 20
"""A score is the mean return, without any bonus, of this many last episodes."""
AT_ONCE = {"cpu": 1_500_000, "cuda": 200_000_000}
"""Numbers in the observations that go through a network at once, by device: a processor does more in its caches."""


class Observations:
    """The observations of a rollout by their rows in [T * N], on the device, as a network sees them when asked for.

    Stacks of frames are held as a pool [P, height, width] with each frame once, and where a stack's frames lie in it.
    """

    def __init__(self, held: Tensor, see: Callable[[Tensor], Tensor], frames: Tensor | None = None) -> None:
        self.held, self.frames, self._see = held, frames, see
        numbers = math.prod(held.shape[1:]) * (1 if frames is None else math.prod(frames.shape[1:]))
        self._at_once = max(AT_ONCE.get(held.device.type, AT_ONCE["cpu"]) // max(numbers, 1), 1)

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """As a network sees them."""
        some = self.held[rows]
        return self._see(some if self.frames is None else self.frames[some])

    def chunks(self, rows: Tensor | None = None) -> Iterator[tuple[Tensor | slice, Tensor]]:
        """As many rows at once as a network should see, and their observations; all of them by default."""
        if rows is None:
            for start in range(0, len(self), self._at_once):
                part = slice(start, min(start + self._at_once, len(self)))
                yield part, self[part]
        else:
            for some in rows.split(self._at_once):
                yield some, self[some]

    @torch.no_grad()
    def through(self, network: nn.Module) -> Tensor:
        """What a network makes of all of them."""
        return torch.cat([network(seen) for _, seen in self.chunks()])


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


class Seen:
    """What T steps of N environments show, as it comes in: in main memory, and on the device that networks run on."""

    def __init__(self, steps: int, count: int, like: Array, device: torch.device) -> None:
        self.steps, self.device = steps, device
        self.host = np.zeros((steps + 1, count, *like.shape[1:]), like.dtype)
        self.held = torch.from_numpy(self.host)
        if device.type != "cpu":
            self.held = torch.zeros_like(self.held, device=device)
        self._steps = self.held.unbind(0)
        self.finals: list[tuple[int, Array, Array]] = []

    def put(self, step: int, where: slice, observation: Array, begun: Array) -> None:
        """The observations that a step begins with, and which of them are the first of an episode."""
        self.host[step, where] = observation
        if self.device.type != "cpu":
            self.held[step, where] = torch.from_numpy(self.host[step, where]).to(self.device, non_blocking=True)

    def now(self, step: int, where: slice) -> Tensor:
        """Observations [n, ...] on the device, the newest of these environments."""
        return self._steps[step][where]

    def end(self, step: int, indices: Array, final: Array) -> None:
        """The last observations of episodes that ended with a step, [M, ...]."""
        self.finals.append((step, indices, final))

    def cut(self, truncated: Array) -> Array | None:
        """The last observations of episodes that a time limit cut short, in the order of `truncated` [T, N]."""
        found = [final[truncated[step, indices]] for step, indices, final in self.finals]
        return np.concatenate(found) if found and truncated.any() else None

    def observations(self, see: Callable[[Tensor], Tensor]) -> Observations:
        return Observations(self.held[:-1].flatten(0, 1), see)

    def states(self) -> tuple[Array, Array]:
        """What each step began with and what it led to, [T, N, ...], as a bonus sees them."""
        states = self.host
        if not self.finals:
            return states[:-1], states[1:]
        after = states[1:].copy()
        for step, indices, final in self.finals:
            after[step, indices] = final if final.shape[1:] == after.shape[2:] else final[:, -1:]
        return states[:-1], after


class SeenFrames(Seen):
    """The same for stacks of frames [frames, height, width] of which each step adds one, the newest last: each is held once."""

    def __init__(self, steps: int, count: int, like: Array, device: torch.device) -> None:
        super().__init__(steps, count, like[:, -1:], torch.device("cpu"))  # the pool of frames goes to the device as a whole
        self.device, self.stack, self.like = device, like.shape[1], like
        self.older = np.zeros((self.stack - 1, count, *like.shape[2:]), like.dtype)  # frames before the first step's newest
        self.begun: list[tuple[int, Array, Array]] = []  # step, environments, and their frames before the newest
        self.newest: dict[int, Tensor] = {}

    def put(self, step: int, where: slice, observation: Array, begun: Array) -> None:
        self.host[step, where] = observation[:, -1:]
        if step == 0:
            self.older[:, where] = observation[:, :-1].swapaxes(0, 1)
        elif begun.any():
            indices = np.flatnonzero(begun)
            self.begun.append((step, where.start + indices, observation[indices, :-1]))
        self.newest[where.start] = torch.as_tensor(observation, device=self.device)

    def now(self, step: int, where: slice) -> Tensor:
        if where.stop - where.start == self.host.shape[1]:
            return torch.cat([self.newest[start] for start in sorted(self.newest)])
        return self.newest[where.start]

    def observations(self, see: Callable[[Tensor], Tensor]) -> Observations:
        steps, count, stack = self.steps, self.host.shape[1], self.stack
        timeline = (stack - 1 + steps) * count  # older frames, then the newest of each step
        at = np.arange(steps)[:, None, None] + np.arange(stack)
        places = at * count + np.arange(count)[None, :, None]  # [T, N, frames]
        begun = [(step, indices, frames) for step, indices, frames in self.begun if step < steps]
        extra = (
            np.concatenate([frames for _, _, frames in begun]) if begun else self.older[:0, :0].reshape(0, *self.like.shape[2:])
        )
        if begun:
            step = np.concatenate([np.full(len(indices), step) for step, indices, _ in begun])
            env = np.concatenate([indices for _, indices, _ in begun])
            first = timeline + np.arange(len(step)) * (stack - 1)
            for since in reversed(range(stack - 1)):  # steps since it began; a later beginning overrides an earlier one
                there = step + since < steps
                own = stack - 1 - since  # frames that are still of its first stack
                places[step[there] + since, env[there], :own] = first[there, None] + since + np.arange(own)
        frames = [self.older, self.host[:-1, :, 0]]
        pool = np.concatenate([part.reshape(-1, *self.like.shape[2:]) for part in (*frames, extra)])
        held = torch.as_tensor(places.reshape(-1, stack), device=self.device)
        return Observations(held, see, torch.as_tensor(pool, device=self.device))


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
    """

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
    ) -> None:
        for env in envs:
            mode = env.metadata.get("autoreset_mode")
            if mode is not AutoresetMode.SAME_STEP:
                raise UsageError(f"{env} has the autoreset mode {mode}: training needs AutoresetMode.SAME_STEP.")
        self.policy, self.clip_reward, self.stack = policy, clip_reward, stack
        self.acting = Acting(policy)
        self.generator = generator
        self.episodes: deque[float] = deque(maxlen=SCORE_EPISODES)
        self.count = sum(env.num_envs for env in envs)
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
            group.observation, _ = group.env.reset(seed=seed + group.where.start)
            if group.observation.dtype.kind == "f":
                self._refuse(group.observation, "first observation", np.arange(group.where.start, group.where.stop), 0)
        self.returns[:] = 0.0
        # Steps until an environment's first episode is cut short; 0 or less where none is to be any more.
        self.cut_in = self.apart * np.arange(self.count) // self.count

    @property
    def score(self) -> float:
        return float(np.mean(self.episodes)) if self.episodes else float("nan")

    @torch.no_grad()
    def collect(self, steps: int) -> Rollout:
        """A rollout of so many steps of each environment, with the policy as it is."""
        policy, count = self.policy, self.count
        seen = (Seen if self.stack == 1 else SeenFrames)(steps, count, self.groups[0].observation, policy.device)
        noise = policy.actions.noise(steps, count, self.generator).to(policy.device).unbind(0)
        actions, parameters = list[Tensor](), list[Tensor]()
        self.acting.begin()
        rewards = np.zeros((steps, count), np.float32)
        terminated, truncated = np.zeros((steps, count), bool), np.zeros((steps, count), bool)
        for group in self.groups:
            seen.put(0, group.where, group.observation, np.ones(group.env.num_envs, bool))
        for step in range(steps):
            for group in self.groups:
                where = group.where
                if step:
                    self._arrive(group, step - 1, seen, rewards, terminated, truncated)
                chosen, outputs = self.acting(seen.now(step, where), noise[step][where])
                group.send(policy.actions.to_env(chosen.cpu().numpy()))
                parameters.append(outputs)
                actions.append(chosen)
        for group in self.groups:
            self._arrive(group, steps - 1, seen, rewards, terminated, truncated)
        shape, drawn, old = rewards.shape, torch.cat(actions), torch.cat(parameters)
        cut, taken = seen.cut(truncated), policy.actions.to_env(drawn.cpu().numpy())
        before, after = seen.states()
        return Rollout(
            observations=seen.observations(policy.see),
            actions=drawn,
            parameters=old,
            batch=Batch.of(before, taken.reshape(*shape, *drawn.shape[1:]), after, terminated, truncated),
            rewards=rewards,
            log_probs=policy.actions.log_prob(old, drawn).cpu().numpy().reshape(shape),
            ends=terminated | truncated,
            last=policy.see(seen.now(steps, slice(0, count))),
            cut=None if cut is None else policy.see(torch.as_tensor(cut, device=policy.device)),
        )

    def _arrive(self, group: Group, step: int, seen: Seen, rewards: Array, terminated: Array, truncated: Array) -> None:
        """Takes in what the environments of a group answered to their actions."""
        observation, reward, ended, cut, infos = group.receive()
        where = group.where
        if not math.isfinite(reward.sum()):
            self._refuse(reward, "reward", np.arange(where.start, where.stop), step)
        if observation.dtype.kind == "f" and not math.isfinite(observation.sum()):
            self._refuse(observation, "observation", np.arange(where.start, where.stop), step)
        rewards[step, where] = np.clip(reward, -1.0, 1.0) if self.clip_reward else reward
        terminated[step, where], truncated[step, where] = ended, cut & ~ended
        done = ended | cut
        observation, infos, due = self._cut_short(group, observation, done, infos)
        truncated[step, where] |= due
        done = done | due
        self.returns[where] += reward
        if done.any():
            indices = np.flatnonzero(done)
            final = np.stack([infos["final_obs"][index] for index in indices])
            if final.dtype.kind == "f" and not np.isfinite(final).all():
                self._refuse(final, "last observation of an episode", where.start + indices, step)
            seen.end(step, where.start + indices, final)
            died = infos.get("died")  # an episode that a crash has cut short is no score
            whole = indices if died is None else indices[~np.asarray(died)[indices]]
            whole = whole[~due[whole]]
            self.episodes.extend(self.returns[where.start + whole].tolist())
            self.returns[where.start + indices] = 0.0
        seen.put(step + 1, where, observation, done)
        group.observation = observation

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
                f"The {name} of environment {envs[index]} at step {step} of the rollout is {values[index]}: "
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
