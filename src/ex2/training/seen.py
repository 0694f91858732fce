"""What environments show: the observations of a rollout, as they come in and as networks and bonuses see them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ex2.arrays import Array

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

    def parts(self) -> dict[str, Any]:
        """All of it as plain arrays, for `join` in another process."""
        return {"host": self.host, "finals": self.finals, "last": self.host[-1]}

    def join(self, where: slice, parts: dict[str, Any]) -> None:
        """Takes in what some of the environments showed in another process."""
        self.host[:, where] = parts["host"]
        if self.held.device.type != "cpu":
            self.held[:, where] = torch.from_numpy(self.host[:, where]).to(self.held.device)
        self.finals = _in_order(self.finals, where, parts["finals"])


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

    def parts(self) -> dict[str, Any]:
        last = self.now(self.steps, slice(0, self.host.shape[1])).cpu().numpy()
        return super().parts() | {"older": self.older, "begun": self.begun, "last": last}

    def join(self, where: slice, parts: dict[str, Any]) -> None:
        super().join(where, parts)
        self.older[:, where] = parts["older"]
        self.begun = _in_order(self.begun, where, parts["begun"])
        self.newest[where.start] = torch.tensor(parts["last"], device=self.device)


Events = list[tuple[int, Array, Array]]
"""Steps, environments that something happened to, and what they showed then, an entry for each of those."""


def _in_order(known: Events, where: slice, more: Events) -> Events:
    """Events and those of some environments that count from 0, by step and environment."""
    moved = [(step, where.start + indices, shown) for step, indices, shown in more]
    return sorted([*known, *moved], key=lambda event: (event[0], event[1][0]))
