"""Gymnasium's spaces as plain data, so that a run's networks can be built again without its environments."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ex2.errors import UsageError


def pack_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Dicts, arrays and plain values, as a checkpoint holds them.

    >>> unpack_space(pack_space(spaces.Discrete(3, start=1)))
    Discrete(3, start=1)
    """
    if isinstance(space, spaces.Box):
        return {"kind": "Box", "low": space.low, "high": space.high, "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec, "start": space.start, "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": {key: pack_space(part) for key, part in space.spaces.items()}}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [pack_space(part) for part in space.spaces]}
    raise UsageError(f"The space {space} cannot be saved: use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple.")


def unpack_space(packed: dict[str, Any]) -> spaces.Space[Any]:
    """The space that `pack_space` was given."""
    kind = packed["kind"]
    if kind == "Box":
        return spaces.Box(packed["low"], packed["high"], dtype=np.dtype(packed["dtype"]).type)
    if kind == "Discrete":
        return spaces.Discrete(packed["n"], start=packed["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(packed["nvec"], dtype=np.dtype(packed["dtype"]).type, start=packed["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(packed["n"])
    if kind == "Dict":
        return spaces.Dict({key: unpack_space(part) for key, part in packed["spaces"].items()})
    return spaces.Tuple([unpack_space(part) for part in packed["spaces"]])
