"""What flows from a rollout to a bonus: transitions as [T, N, ...], and the rows of numbers that a bonus looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ex2.errors import UsageError, unknown

LARGEST_BOUND = 1e6  # a space with larger ones counts as unbounded
INPUTS = ("state", "next-state", "state-action")


@dataclass(frozen=True)
class Batch:
    """T steps of N environments. Every field is a tensor whose first two dimensions are [T, N].

    `next_obs` is the observation the action led to, also where the episode ended there: never the first observation of the
    next episode. `mask` is False for transitions that did not happen (a vector environment's reset steps); they are neither
    fitted, nor scored, nor remembered.
    """

    obs: Tensor
    action: Tensor
    next_obs: Tensor
    terminated: Tensor
    truncated: Tensor
    mask: Tensor

    @classmethod
    def of(cls, obs: Any, action: Any, next_obs: Any, terminated: Any = None, truncated: Any = None, mask: Any = None) -> Batch:
        """Builds a batch from arrays or tensors; no episode ends and nothing is masked unless it is said.

        >>> batch = Batch.of(obs=np.zeros((5, 2, 3)), action=np.zeros((5, 2, 1)), next_obs=np.zeros((5, 2, 3)))
        >>> batch.shape
        (5, 2)
        """
        obs, action, next_obs = (torch.as_tensor(x).cpu() for x in (obs, action, next_obs))
        if obs.ndim < 2 or action.shape[:2] != obs.shape[:2] or next_obs.shape != obs.shape:
            raise UsageError(
                f"A batch needs obs, action and next_obs as [T, N, ...], got shapes {tuple(obs.shape)}, "
                f"{tuple(action.shape)} and {tuple(next_obs.shape)}."
            )
        flags = {"terminated": (terminated, False), "truncated": (truncated, False), "mask": (mask, True)}
        tensors = {}
        for name, (value, default) in flags.items():
            flag = torch.full(obs.shape[:2], default) if value is None else torch.as_tensor(value).cpu().bool()
            if flag.shape != obs.shape[:2]:
                raise UsageError(f"{name} has shape {tuple(flag.shape)}, expected [T, N] = {tuple(obs.shape[:2])}.")
            tensors[name] = flag
        return cls(obs, action, next_obs, **tensors)

    @property
    def shape(self) -> tuple[int, int]:
        return self.obs.shape[0], self.obs.shape[1]

    def environments(self, which: slice) -> Batch:
        """The transitions of some of the environments.

        >>> Batch.of(np.zeros((5, 4, 3)), np.zeros((5, 4)), np.zeros((5, 4, 3))).environments(slice(0, 2)).shape
        (5, 2)
        """
        return Batch(**{field.name: getattr(self, field.name)[:, which] for field in fields(self)})

    def groups(self, size: int) -> Tensor:
        """Groups of `size` states adjacent in time: indices into the flattened [T * N], as [G, size].

        A group lies within one episode of one environment. A stretch whose length is no multiple of `size` ends in a group
        that repeats its last state, so that every state is in a group and none is in two.

        >>> Batch.of(torch.zeros(5, 1, 1), torch.zeros(5, 1, 1), torch.zeros(5, 1, 1)).groups(2).tolist()
        [[0, 1], [2, 3], [4, 4]]
        """
        steps, envs = self.shape
        ends = (self.terminated | self.truncated | ~self.mask).T.reshape(-1)  # environment by environment
        ends = ends | (torch.arange(steps * envs) % steps == steps - 1)
        episode = torch.cumsum(ends, 0) - ends.long()
        order = torch.arange(steps * envs).reshape(steps, envs).T.reshape(-1)
        real = self.mask.T.reshape(-1)
        episode, order = episode[real], order[real]
        if len(order) == 0:
            return torch.zeros(0, size, dtype=torch.long)
        _, episode, lengths = torch.unique_consecutive(episode, return_inverse=True, return_counts=True)
        first = torch.cumsum(lengths, 0) - lengths
        within = torch.arange(len(order)) - first[episode]
        starts = torch.nonzero(within % size == 0).flatten()
        last = (first + lengths - 1)[episode[starts]]
        return order[torch.minimum(starts[:, None] + torch.arange(size), last[:, None])]


class Inputs:
    """What a bonus looks at, as flat rows of one dtype: `state`, `next-state` or `state-action`.

    Vectors become float32, scaled to [-1, 1] where the space is bounded. Images stay uint8, actions beside them are one-hot
    bytes. Actions are clipped to their space first, so an agent earns nothing by asking for the impossible; `action_scale`
    says how much they count beside a vector state. With `entries` a state is these numbers of an observation and no others.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        of: str = "state",
        action_scale: float = 1.0,
        entries: Sequence[int] | None = None,
    ) -> None:
        if of not in INPUTS:
            raise unknown("kind of inputs", of, INPUTS)
        self.of = of
        self.action_scale = action_scale
        self.observation_space = _supported(observation_space, "observation")
        self.action_space = _supported(action_space, "action") if of == "state-action" else action_space
        self.image_shape = _image_shape(observation_space)
        if self.image_shape and of == "state-action" and not isinstance(action_space, spaces.Discrete):
            raise UsageError(
                f"inputs='state-action' with images needs a Discrete action space, got {action_space}: use inputs='state'."
            )
        self.dtype = torch.uint8 if self.image_shape else torch.float32
        self.action_width = _width(action_space) if of == "state-action" else 0
        if entries is not None and (isinstance(entries, str) or not isinstance(entries, Sequence)):
            raise UsageError(f"entries={entries} must be a list of whole numbers.")
        self.entries = None if entries is None else list(entries)
        self.states = self.observation_space
        """The space of what counts of an observation."""
        states = _width(observation_space)
        if self.entries is not None:
            if self.image_shape or not isinstance(observation_space, spaces.Box):
                raise UsageError(f"entries are of vectors, the observation space is {observation_space}: leave them out.")
            if not self.entries or not all(type(i) is int and 0 <= i < states for i in self.entries):
                raise UsageError(f"entries={self.entries} must be whole numbers from 0 to {states - 1}, and at least one.")
            low, high = (bound.reshape(-1)[self.entries] for bound in (observation_space.low, observation_space.high))
            self.states = spaces.Box(low, high, dtype=observation_space.low.dtype.type)
            states = len(self.entries)
        self.width = states + self.action_width

    @property
    def bounded(self) -> bool:
        """Whether every vector entry has finite bounds, so that rows are already in [-1, 1]."""
        return is_bounded(self.states)

    @property
    def actions(self) -> int:
        """How many numbers an action is."""
        return _width(_supported(self.action_space, "action"))

    def rows(self, batch: Batch) -> Tensor:
        """[T, N, width], checked against the spaces: wrong shapes, dtypes and non-finite numbers are named."""
        _check(batch.obs, self.observation_space, "obs")
        _check(batch.next_obs, self.observation_space, "next_obs")
        states = self.encode(batch.next_obs if self.of == "next-state" else batch.obs)
        if self.of != "state-action":
            return states
        _check(batch.action, self.action_space, "action")
        actions = _encode(batch.action, self.action_space, self.dtype, len(batch.shape))
        return torch.cat([states, actions if self.image_shape else actions * self.action_scale], dim=-1)

    def transitions(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """States [M, width], actions [M, actions] as float32, and the states they led to [M, width], of what happened."""
        rows = self.rows(batch)[batch.mask]
        _check(batch.action, _supported(self.action_space, "action"), "action")
        actions = _encode(batch.action, self.action_space, torch.float32, len(batch.shape))
        return rows, actions[batch.mask], self.encode(batch.next_obs)[batch.mask]

    def encode(self, observations: Tensor) -> Tensor:
        """Observations [..., *shape] as rows [..., width], without actions."""
        space = self.observation_space
        if self.image_shape:
            return observations.reshape(*observations.shape[: observations.ndim - 3], -1)
        leading = observations.ndim - len(space.shape or ())
        if self.entries is not None:
            observations = observations.flatten(leading)[..., self.entries]
        return _encode(observations, self.states, self.dtype, leading)


def _supported(space: spaces.Space, role: str) -> spaces.Space:
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return space
    raise UsageError(
        f"The {role} space is {type(space).__name__}: bonuses take Box, Discrete, MultiDiscrete or MultiBinary; "
        "flatten it with gymnasium.wrappers.FlattenObservation."
    )


def is_bounded(space: spaces.Space) -> bool:
    """Whether a space has bounds to scale by; those of many environments are the largest numbers there are."""
    return not isinstance(space, spaces.Box) or bool(np.abs([space.low, space.high]).max() < LARGEST_BOUND)


def _image_shape(space: spaces.Space) -> tuple[int, ...] | None:
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3:
        return space.shape
    return None


def _width(space: spaces.Space) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return int(np.prod(space.shape))  # type: ignore[arg-type]


def _encode(values: Tensor, space: spaces.Space, dtype: torch.dtype, leading: int) -> Tensor:
    """Values of a space as rows: one-hot if discrete, scaled to [-1, 1] if bounded."""
    lead = values.shape[:leading]
    if isinstance(space, spaces.Discrete):
        index = values.reshape(lead).long() - int(space.start)
        return torch.nn.functional.one_hot(index, int(space.n)).to(dtype)
    flat = values.reshape(*lead, -1).float()
    if isinstance(space, spaces.MultiDiscrete):
        low = space.start.reshape(-1)
        high = low + np.maximum(space.nvec.reshape(-1) - 1, 1)
    elif isinstance(space, spaces.Box) and is_bounded(space):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(flat.shape[-1]), np.ones(flat.shape[-1])
    else:
        return flat
    bottom, top = (torch.as_tensor(x, dtype=torch.float32, device=flat.device) for x in (low, high))
    return ((torch.minimum(torch.maximum(flat, bottom), top) - bottom) / (top - bottom).clamp_min(1e-8)) * 2 - 1


def _check(values: Tensor, space: spaces.Space, name: str) -> None:
    shape = tuple(space.shape or ())
    if tuple(values.shape[2:]) != shape and not (shape == () and tuple(values.shape[2:]) == (1,)):
        raise UsageError(f"{name} has shape {tuple(values.shape)}, expected [T, N, *{shape}] as in {space}.")
    whole = not values.is_floating_point()
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and values.dtype != torch.uint8:
        raise UsageError(f"{name} is {values.dtype}, expected torch.uint8 as in {space}.")
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and whole:
        raise UsageError(f"{name} is {values.dtype}, expected floating point numbers as in {space}.")
    if isinstance(space, spaces.Discrete):
        index = values.long() - int(space.start)
        if bool(((index < 0) | (index >= int(space.n))).any()):
            raise UsageError(f"{name} holds values outside {space}: they must be from 0 to n - 1, after the start.")
    if not whole and not bool(torch.isfinite(values).all()):
        step, env = torch.nonzero(~torch.isfinite(values).flatten(2).all(-1))[0].tolist()
        raise UsageError(
            f"{name} of environment {env} at step {step} of the batch is {values[step, env].tolist()}: "
            "observations and actions must be finite; the batch was not used."
        )
