"""What flows from a rollout to a bonus: transitions as [T, N, ...]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ex2.errors import UsageError

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # of which PyTorch can do little

Observations = Any
"""A tensor [T, N, ...], or, of Dict and Tuple spaces, dicts and tuples of them."""


@dataclass(frozen=True)
class Batch:
    """T steps of N environments. Every field is a tensor whose first two dimensions are [T, N], or a dict or tuple of such.

    `next_obs` is the observation the action led to, also where the episode ended there: never the first observation of the
    next episode. `mask` is False for transitions that did not happen (a vector environment's reset steps); they are neither
    fitted, nor scored, nor remembered.
    """

    obs: Observations
    action: Tensor
    next_obs: Observations
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
        obs, action, next_obs = (_tensors(x, name) for x, name in ((obs, "obs"), (action, "action"), (next_obs, "next_obs")))
        if not isinstance(action, Tensor):
            raise UsageError("action is a dict or a tuple: bonuses take actions of Box and discrete spaces, as one array.")
        before, after = list(leaves(obs)), list(leaves(next_obs))
        if not before or [x.shape for x in before] != [x.shape for x in after]:
            shapes = [[tuple(x.shape) for x in some] for some in (before, after)]
            raise UsageError(f"A batch needs obs and next_obs of the same shapes, got {shapes[0]} and {shapes[1]}.")
        lead = before[0].shape[:2]
        if any(x.ndim < 2 or x.shape[:2] != lead for x in [*before, action]):
            raise UsageError(
                f"A batch needs obs, action and next_obs as [T, N, ...], got shapes "
                f"{', '.join(str(tuple(x.shape)) for x in before)}, {tuple(action.shape)} and "
                f"{', '.join(str(tuple(x.shape)) for x in after)}."
            )
        if 0 in lead:
            raise UsageError(f"The batch is empty, [T, N] = {tuple(lead)}: it must hold at least one step of one environment.")
        flags = {"terminated": (terminated, False), "truncated": (truncated, False), "mask": (mask, True)}
        tensors = {}
        for name, (value, default) in flags.items():
            flag = torch.full(lead, default) if value is None else _tensor(value, name).bool()
            if flag.shape != lead:
                raise UsageError(f"{name} has shape {tuple(flag.shape)}, expected [T, N] = {tuple(lead)}.")
            tensors[name] = flag
        return cls(obs, action, next_obs, **tensors)

    @property
    def shape(self) -> tuple[int, int]:
        return self.mask.shape[0], self.mask.shape[1]

    def environments(self, which: slice) -> Batch:
        """The transitions of some of the environments.

        >>> Batch.of(np.zeros((5, 4, 3)), np.zeros((5, 4)), np.zeros((5, 4, 3))).environments(slice(0, 2)).shape
        (5, 2)
        """
        return Batch(**{field.name: mapped(lambda x: x[:, which], getattr(self, field.name)) for field in fields(self)})

    def neighbours(self) -> Tensor:
        """States adjacent in time within an episode: indices into the flattened [T * N], as [P, 2].

        >>> Batch.of(torch.zeros(3, 2, 1), torch.zeros(3, 2, 1), torch.zeros(3, 2, 1)).neighbours().tolist()
        [[0, 2], [1, 3], [2, 4], [3, 5]]
        """
        ends = self.terminated | self.truncated
        first = torch.nonzero((~ends[:-1] & self.mask[:-1] & self.mask[1:]).flatten()).flatten()
        return torch.stack([first, first + self.shape[1]], 1)

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


def _tensors(values: Any, name: str) -> Observations:
    """Arrays, tensors, and dicts and tuples of them, as tensors in main memory."""
    if isinstance(values, Mapping):
        return {key: _tensors(value, f"{name}[{key!r}]") for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_tensors(value, f"{name}[{index}]") for index, value in enumerate(values))
    return _tensor(values, name)


def _tensor(values: Any, name: str) -> Tensor:
    if isinstance(values, Tensor):
        if values.layout != torch.strided or values.is_nested or values.is_quantized or values.is_meta or values.is_complex():
            raise UsageError(f"{name} is a {values.layout} tensor of {values.dtype}: it must be a plain one of real numbers.")
        if values.dtype == torch.bfloat16 or (values.is_floating_point() and values.dtype.itemsize < 2):
            values = values.float()
        plain: Tensor = values.long() if values.dtype in UNSIGNED else values
        return plain.detach().cpu()
    try:
        array = np.asarray(values)
    except Exception:  # lists of unequal lengths, and what else is no array
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"{name} is an array of {array.dtype}: it must hold numbers, one array of one shape.")
    if array.dtype.kind == "u" and array.dtype != np.uint8:
        array = array.astype(np.int64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # longer than float64, in any order of bytes
        array = array.astype(np.float64)
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)).reshape(array.shape)
    if not array.flags.writeable or min(array.strides, default=0) < 0:  # a reversed axis of one entry counts as contiguous
        array = array.copy()
    return torch.as_tensor(array)


def leaves(values: Observations) -> Iterator[Tensor]:
    """The tensors of an observation, dicts by their keys in order."""
    if isinstance(values, Mapping):
        for key in sorted(values, key=str):
            yield from leaves(values[key])
    elif isinstance(values, tuple):
        for value in values:
            yield from leaves(value)
    else:
        yield values


def mapped(change: Callable[[Any], Any], values: Observations) -> Observations:
    """The same dicts and tuples, with every tensor or array changed."""
    if isinstance(values, Mapping):
        return {key: mapped(change, value) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(mapped(change, value) for value in values)
    return change(values)
