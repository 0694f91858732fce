"""The rows of numbers that a bonus looks at: observations of any space, and actions beside them, as flat rows and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ex2.batch import Batch, Observations
from ex2.errors import UsageError, unknown

LARGEST_BOUND = 1e6  # a space with larger ones counts as unbounded
SMALLEST_PICTURE = 10  # pixels a side that convolutions need; what is smaller is a vector of its pixels
MOST_PLACES = 1_024  # of a Discrete that is one-hot; of a larger one, the bits of its values are taken
LARGEST_NUMBER = float(torch.finfo(torch.float32).max)
TAIL = 5.0  # beyond which numbers grow like logarithms
INPUTS = ("state", "next-state", "state-action")


@dataclass(frozen=True)
class Part:
    """A part of an observation: where it lies in dicts and tuples, its space, and how much of a row it takes."""

    path: tuple[Any, ...]
    space: spaces.Space[Any]
    shape: tuple[int, int, int] | None
    """Of a picture: channels, height, width."""
    channels_last: bool
    width: int
    """Bytes of a picture, or how many numbers a vector is."""

    def of(self, observations: Observations) -> Tensor:
        for step in self.path:
            observations = observations[step]
        part: Tensor = observations
        return part

    def picture(self, pixels: Tensor) -> Tensor:
        """Pixels [M, width] as they are stored -> [M, channels, height, width]."""
        assert self.shape is not None
        channels, height, wide = self.shape
        if self.channels_last:
            return pixels.reshape(-1, height, wide, channels).permute(0, 3, 1, 2)
        return pixels.reshape(-1, *self.shape)

    @property
    def name(self) -> str:
        return "".join(f"[{step!r}]" for step in self.path)


class Inputs:
    """What a bonus looks at, as flat rows of one dtype: `state`, `next-state` or `state-action`.

    Vectors become float32, bounded ones in units of their bounds, from -1 to 1; what scale they are seen on is for each bonus
    to decide by what it has seen. Pictures (bytes, or numbers within bounds, of at least 10x10) stay or become bytes; smaller
    ones are vectors of their pixels. Of Dict and Tuple spaces all parts count. Beside pictures, numbers are stored as the
    four bytes that they are; `split` takes a row apart. Actions are clipped to their space first, so an agent earns nothing by
    asking for the impossible; `action_scale` says how much they count beside a vector state. With `entries` a state is these
    numbers of a vector, or these parts of a Dict or Tuple, and no others.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        of: str = "state",
        action_scale: float = 1.0,
        entries: Sequence[int | str] | None = None,
    ) -> None:
        if of not in INPUTS:
            raise unknown("kind of inputs", of, INPUTS)
        if entries is not None and (isinstance(entries, str) or not isinstance(entries, Sequence)):
            raise UsageError(f"entries={entries} must be a list of whole numbers, or of a Dict's keys.")
        self.of = of
        self.action_scale = action_scale
        self.observation_space = observation_space
        self.action_space = _plain(action_space, "action") if of == "state-action" else action_space
        self.entries: list[int] | None = None
        if isinstance(observation_space, spaces.Dict | spaces.Tuple):
            parts = list(_parts(observation_space, (), entries))
        else:
            parts = [_part((), observation_space)]
            if entries is not None:
                parts = [self._chosen(parts[0], entries)]
        self.pictures = [part for part in parts if part.shape]
        self.vectors = [part for part in parts if not part.shape]
        self.numbers = sum(part.width for part in self.vectors)
        self.action_width = _width(action_space) if of == "state-action" else 0
        self.dtype = torch.uint8 if self.pictures else torch.float32
        self.pixels = sum(part.width for part in self.pictures)
        self.width = self.pixels + (self.numbers + self.action_width) * (4 if self.pictures else 1)

    def _chosen(self, part: Part, entries: Sequence[Any]) -> Part:
        """Some of the numbers of a vector."""
        space = part.space
        if part.shape or not isinstance(space, spaces.Box):
            raise UsageError(f"entries are of vectors, Dict and Tuple; the observation space is {space}: leave them out.")
        if not entries or not all(type(i) is int and 0 <= i < part.width for i in entries):
            raise UsageError(f"entries={list(entries)} must be whole numbers from 0 to {part.width - 1}, and at least one.")
        self.entries = list(entries)
        low, high = (bound.reshape(-1)[self.entries] for bound in (space.low, space.high))
        return Part((), spaces.Box(low, high, dtype=space.low.dtype.type), None, False, len(self.entries))

    @property
    def bounded(self) -> bool:
        """Whether every number of a state has finite bounds, so that rows are from -1 to 1."""
        return all(is_bounded(part.space) for part in self.vectors)

    @property
    def actions(self) -> int:
        """How many numbers an action is."""
        return _width(_plain(self.action_space, "action"))

    def check(self, batch: Batch, transitions: bool = False) -> None:
        """Refuses a batch that does not fit the spaces: wrong shapes, dtypes and non-finite numbers are named.

        Actions are looked at where they count, or with `transitions`.
        """
        for values, name in ((batch.obs, "obs"), (batch.next_obs, "next_obs")):
            if isinstance(self.observation_space, spaces.Dict | spaces.Tuple):
                for part in [*self.pictures, *self.vectors]:
                    _check(_found(values, part, name), part.space, name + part.name)
            elif not isinstance(values, Tensor):
                raise UsageError(f"{name} is a {type(values).__name__}, expected one array as in {self.observation_space}.")
            else:
                _check(values, self.observation_space, name)
        if transitions or self.of == "state-action":
            _check(batch.action, _plain(self.action_space, "action"), "action")

    def rows(self, batch: Batch) -> Tensor:
        """[T, N, width], checked against the spaces."""
        self.check(batch)
        actions = None
        if self.of == "state-action":
            actions = _encode(batch.action, self.action_space, 2, clip=True) * self.action_scale
        return self.encode(batch.next_obs if self.of == "next-state" else batch.obs, actions, 2)

    def transitions(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """States [M, width], actions [M, actions] as float32, and the states they led to [M, width], of what happened."""
        self.check(batch, transitions=True)
        before, after = (self.encode(values, leading=2)[batch.mask] for values in (batch.obs, batch.next_obs))
        return before, _encode(batch.action, self.action_space, 2, clip=True)[batch.mask], after

    def encode(self, observations: Observations, actions: Tensor | None = None, leading: int | None = None) -> Tensor:
        """Observations as rows [..., width], with the numbers of actions behind them; `leading` is how many dimensions lead."""
        numbers = []
        for part in self.vectors:
            values = part.of(observations)
            lead = values.ndim - len((self.observation_space if self.entries else part.space).shape or ())
            lead = lead if leading is None else leading  # a number may come as [1]
            if self.entries is not None:
                values = values.reshape(*values.shape[:lead], -1)[..., self.entries]
            numbers.append(_encode(values, part.space, lead))
        if actions is not None:
            numbers.append(actions)
        if not self.pictures:
            return numbers[0] if len(numbers) == 1 else torch.cat(numbers, -1)
        pieces = [_bytes(part.of(observations), part.space) for part in self.pictures]
        if numbers:
            pieces.append(torch.cat(numbers, -1).contiguous().view(torch.uint8))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)

    def split(self, rows: Tensor) -> tuple[list[Tensor], Tensor]:
        """Rows [M, width] as pictures [M, channels, height, width] of bytes, and numbers [M, numbers + actions]."""
        if not self.pictures:
            return [], rows
        pictures, begin = [], 0
        for part in self.pictures:
            pictures.append(part.picture(rows[:, begin : begin + part.width]))
            begin += part.width
        if begin == rows.shape[1]:
            return pictures, torch.zeros(len(rows), 0, device=rows.device)
        numbers = rows[:, begin:].clone(memory_format=torch.contiguous_format)  # one row is contiguous, and may lie anywhere
        return pictures, numbers.view(torch.float32)


def _parts(space: spaces.Space[Any], path: tuple[Any, ...], chosen: Sequence[Any] | None = None) -> Iterator[Part]:
    """The parts of a space, dicts by their keys in order; of the outermost one, those that are chosen."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield _part(path, space)
        return
    known = sorted(space.spaces, key=str) if isinstance(space, spaces.Dict) else list(range(len(space.spaces)))
    wanted = known if chosen is None else list(chosen)
    if not wanted or any(key not in known for key in wanted):
        raise UsageError(f"entries={wanted} must be some of the observation's parts: {known}.")
    for key in wanted:
        yield from _parts(space.spaces[key], (*path, key))  # type: ignore[index]


def _part(path: tuple[Any, ...], space: spaces.Space[Any]) -> Part:
    name = "observation" + "".join(f"[{step!r}]" for step in path)
    _plain(space, name, "choose other parts by entries=[...], or leave it out of the observation")
    shape = space.shape or ()
    if isinstance(space, spaces.Box) and (
        (len(shape) == 3 and (space.dtype == np.uint8 or is_bounded(space))) or (len(shape) == 2 and space.dtype == np.uint8)
    ):
        last = len(shape) == 3 and shape[2] < shape[0]
        channels, height, wide = (1, *shape) if len(shape) == 2 else (shape[2], *shape[:2]) if last else shape
        if min(height, wide) >= SMALLEST_PICTURE:
            return Part(path, space, (channels, height, wide), last, math.prod(shape))
    return Part(path, space, None, False, _width(space))


def _plain(
    space: spaces.Space[Any], role: str, remedy: str = "flatten it with gymnasium.wrappers.FlattenObservation"
) -> spaces.Space[Any]:
    """The space itself, if its values are numbers of one shape."""
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise UsageError(
            f"The {role} space is {type(space).__name__}: bonuses take Box, Discrete, MultiDiscrete, MultiBinary, and Dict or "
            f"Tuple of them as observations; {remedy}."
        )
    if _width(space) < 1:
        raise UsageError(f"The {role} space {space} holds no numbers at all: leave it out.")
    return space


def _found(values: Observations, part: Part, name: str) -> Tensor:
    """The part of an observation."""
    try:
        found = part.of(values)
    except (KeyError, IndexError, TypeError):
        found = None
    if not isinstance(found, Tensor):
        raise UsageError(f"{name} has no array at {part.name}, as {part.space} needs it.")
    return found


def is_bounded(space: spaces.Space[Any]) -> bool:
    """Whether a space has bounds to scale by; those of many environments are the largest numbers there are."""
    return not isinstance(space, spaces.Box) or bool(np.abs([space.low, space.high], dtype=np.float64).max() < LARGEST_BOUND)


def _width(space: spaces.Space[Any]) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n) if int(space.n) <= MOST_PLACES else max(int(space.n) - 1, 1).bit_length()
    return int(np.prod(space.shape))  # type: ignore[arg-type]


def _bounds(space: spaces.Space[Any], like: Tensor) -> tuple[Tensor, Tensor] | None:
    """The lowest value of each number, and how many units its reach is; None without bounds."""
    if isinstance(space, spaces.MultiDiscrete):
        low, reach = space.start.reshape(-1), np.maximum(space.nvec.reshape(-1) - 1, 1)
    elif isinstance(space, spaces.MultiBinary):
        low, reach = np.zeros(1), np.ones(1)
    elif isinstance(space, spaces.Box) and is_bounded(space):
        low, reach = space.low.reshape(-1).astype(np.float64), (space.high.astype(np.float64) - space.low).reshape(-1)
        reach = np.where(reach > 0, reach, 1.0)
    else:
        return None
    bottom, wide = (torch.as_tensor(np.asarray(x, np.float64), device=like.device) for x in (low, reach))
    return bottom, wide


def _encode(values: Tensor, space: spaces.Space[Any], leading: int, clip: bool = False) -> Tensor:
    """Values of a space as rows of float32: one-hot if discrete, from -1 to 1 if bounded.

    With `clip` nothing counts that lies outside of the bounds, and without bounds numbers beyond 5 count like logarithms.
    """
    lead = values.shape[:leading]
    if isinstance(space, spaces.Discrete):
        index = values.reshape(lead).long() - int(space.start)
        if int(space.n) <= MOST_PLACES:
            return torch.nn.functional.one_hot(index, int(space.n)).float()
        return (index[..., None] >> torch.arange(_width(space)) & 1).float()
    flat = values.reshape(*lead, -1)
    bounds = _bounds(space, flat)
    if bounds is None:
        return compressed(flat.float()) if clip else flat.float()
    most = 1.0 if clip else LARGEST_NUMBER
    return ((flat.double() - bounds[0]) / bounds[1] * 2 - 1).clamp(-most, most).float()


def compressed(values: Tensor) -> Tensor:
    """Numbers, beyond 5 like logarithms; monotone, with a continuous slope. What lies farther out stays farther out.

    >>> [round(x, 1) for x in compressed(torch.tensor([-2.0, 5.0, 5.0 * math.e, 1e30])).tolist()]
    [-2.0, 5.0, 10.0, 342.3]
    """
    far = values.abs() > TAIL
    if far.any():
        wild = values[far]
        values = values.masked_scatter(far, wild.sign() * TAIL * (1.0 + (wild.abs() / TAIL).log()))
    return values


def _bytes(values: Tensor, space: spaces.Space[Any]) -> Tensor:
    """A picture [..., a, b, c] as bytes [..., a * b * c]: its own, or its numbers from the lowest to the highest."""
    flat = values.flatten(values.ndim - len(space.shape or ()))
    if values.dtype == torch.uint8:
        return flat
    bounds = _bounds(space, flat)
    assert bounds is not None
    return ((flat.double() - bounds[0]) / bounds[1] * 255.0).clamp(0.0, 255.0).round().to(torch.uint8)


def _check(values: Tensor, space: spaces.Space[Any], name: str) -> None:
    shape = tuple(space.shape or ())
    if tuple(values.shape[2:]) != shape and not (shape == () and tuple(values.shape[2:]) == (1,)):
        raise UsageError(f"{name} has shape {tuple(values.shape)}, expected [T, N, *{shape}] as in {space}.")
    whole = not values.is_floating_point()
    if isinstance(space, spaces.Box) and space.dtype == np.uint8 and values.dtype != torch.uint8:
        raise UsageError(f"{name} is {values.dtype}, expected torch.uint8 as in {space}.")
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) and whole:
        raise UsageError(f"{name} is {values.dtype}, expected floating point numbers as in {space}.")
    if not whole:
        _check_finite(values, name)
    if isinstance(space, spaces.Box):
        return
    if not whole and bool((values != values.round()).any()):
        raise UsageError(f"{name} holds fractions, expected whole numbers as in {space}.")
    if isinstance(space, spaces.Discrete):
        index, count = values.double() - int(space.start), torch.tensor(float(space.n))
    elif isinstance(space, spaces.MultiDiscrete):
        index, count = values.double() - torch.as_tensor(space.start), torch.as_tensor(space.nvec)
    else:
        index, count = values.double(), torch.tensor(2.0)
    if bool(((index < 0) | (index >= count)).any()):
        raise UsageError(f"{name} holds values outside {space}: they must be from 0 to n - 1, after the start.")


def _check_finite(values: Tensor, name: str) -> None:
    if values.numel() == 0:
        return
    low, high = values.aminmax()  # what is no number makes both so
    if float(low) >= -LARGEST_NUMBER and float(high) <= LARGEST_NUMBER:
        return
    good = values.isfinite()
    if values.dtype == torch.float64:  # which can hold more
        good &= values.abs() <= LARGEST_NUMBER
    step, env, *_ = torch.nonzero(~good)[0].tolist()
    bad = values[step, env][~good[step, env]].flatten()[0].item()
    raise UsageError(
        f"{name} of environment {env} at step {step} of the batch holds {bad}: "
        "observations and actions must be finite, within what float32 can hold; the batch was not used."
    )
