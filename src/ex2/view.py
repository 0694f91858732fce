"""What of an observation a bonus sees: all of it, parts of a Dict, the last frame of a stack, or what a function makes of it.

The policy's input stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import create_empty_array
from torch import Tensor

from ex2.batch import mapped
from ex2.errors import UsageError, unknown

See = str | Sequence[str] | Callable[[Any], Any] | None
COLOURS = 3  # channels of a picture in colours: a stack of so many is not told from one


class View:
    """Observations of a space, as a bonus sees them. `space` is the space of what it sees.

    Args:
        space: of the observations.
        see: a key of a Dict, several keys, or a function of observations [N, ...] that gives what counts, [N, ...]. Of what
            a function gives no bounds are known; bonuses scale by what they see.
        last_frame: observations are stacks of frames, [channels, height, width] or [height, width, channels], and the last
            frame counts. It has 1 channel, or so many as are given here as a number.

    >>> view = View(spaces.Dict({"place": spaces.Box(0, 1, (2,)), "clock": spaces.Discrete(9)}), see="place")
    >>> view({"place": np.zeros((4, 2)), "clock": np.zeros(4)}).shape
    (4, 2)
    """

    def __init__(self, space: spaces.Space[Any], see: See = None, last_frame: bool | int = False) -> None:
        self.space: spaces.Space[Any] = space
        self._steps: list[Callable[[Any], Any]] = []
        if callable(see):
            self._function(see)
        elif see is not None:
            self._keys(see)
        if last_frame is not False:
            self._last_frame(last_frame)

    def __call__(self, observations: Any) -> Any:
        """Observations [N, ...], as the bonus sees them."""
        for step in self._steps:
            observations = step(observations)
        return observations

    def _keys(self, see: Any) -> None:
        if not isinstance(self.space, spaces.Dict):
            raise UsageError(f"see={see!r} is for Dict observations, not for {self.space}: leave it out, or pass a function.")
        if not isinstance(see, str | Sequence):
            raise UsageError(f"see={see!r} must be a key of {', '.join(self.space.spaces)}, a list of some, or a function.")
        keys = [see] if isinstance(see, str) else list(see)
        for key in keys:
            if key not in self.space.spaces:
                raise unknown("part of the observations", key, self.space.spaces)
        if not keys:
            raise UsageError(f"see={see!r} leaves nothing to see: name some of {', '.join(self.space.spaces)}.")
        if isinstance(see, str):
            self.space = self.space.spaces[see]
            self._steps.append(lambda values: values[see])
        else:
            self.space = spaces.Dict({key: self.space.spaces[key] for key in keys})
            self._steps.append(lambda values: {key: values[key] for key in keys})

    def _function(self, see: Callable[[Any], Any]) -> None:
        empty = create_empty_array(self.space, n=2, fn=np.zeros)

        def arrays(observations: Any) -> Any:
            return mapped(_array, see(observations))

        try:
            made = arrays(empty)
        except Exception as error:  # whatever a function of somebody else's raises
            raise UsageError(
                f"see failed on two observations of {self.space} ({type(error).__name__}: {error}): it must take observations "
                "[N, ...] and give an array [N, ...]."
            ) from None
        self.space = _space_of(made)
        self._steps.append(arrays)

    def _last_frame(self, asked: bool | int) -> None:
        space = self.space
        if not isinstance(asked, int | np.integer):
            raise UsageError(f"last_frame={asked!r} must be True, or how many channels a frame has.")
        if not isinstance(space, spaces.Box) or len(space.shape) != 3:
            raise UsageError(
                f"last_frame is for stacks of frames [frames, height, width], not for {space}: leave it out, or choose the "
                "pictures of a Dict by see=."
            )
        axis = 2 if space.shape[2] < space.shape[0] else 0
        stacked, channels = space.shape[axis], int(asked)
        if asked is True and stacked % COLOURS == 0:
            raise UsageError(
                f"last_frame=True would keep one channel of {stacked}, which may be a colour: say how many a frame has, "
                f"last_frame={COLOURS} in colours and last_frame=1 in grey."
            )
        if not 1 <= channels <= stacked or stacked % channels:
            raise UsageError(f"last_frame={asked} does not fit frames of {stacked} channels: it must divide them.")
        last = (..., slice(-channels, None)) if axis == 2 else (slice(-channels, None),)
        self.space = spaces.Box(space.low[last], space.high[last], dtype=space.low.dtype.type)
        self._steps.append(lambda values: values[:, *last])


def _array(made: Any) -> Any:
    return made.numpy(force=True) if isinstance(made, Tensor) else np.asarray(made)


def _space_of(made: Any) -> spaces.Space[Any]:
    """The space of what a function made of two observations."""
    if isinstance(made, dict):
        return spaces.Dict({key: _space_of(value) for key, value in made.items()})
    array = np.asarray(made)
    if array.dtype.kind not in "biuf" or array.ndim < 1 or len(array) != 2:
        raise UsageError(
            f"see made {array.dtype} of shape {array.shape} of 2 observations: it must keep the first dimension, [N, ...], and "
            "give numbers."
        )
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, array.shape[1:], np.uint8)
    if array.dtype.kind != "f":
        raise UsageError(
            f"see made {array.dtype}: it must give floating point numbers, .astype(np.float32), or pictures as uint8."
        )
    return spaces.Box(-np.inf, np.inf, array.shape[1:], array.dtype.type)


def copied(observations: Any) -> Any:
    """Observations as arrays of their own: environments may write the next ones into the same memory."""
    if type(observations) is np.ndarray:
        return observations.copy()
    return mapped(lambda values: np.array(values.numpy(force=True) if isinstance(values, Tensor) else values), observations)
