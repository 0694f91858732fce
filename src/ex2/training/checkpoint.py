"""Checkpoints: nested states as one safetensors file, with their structure as JSON in its header. Loading runs no code.

A checkpoint is written beside the old one and then put in its place, so a full disk or a killed process leaves the last good
one as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ex2.errors import UsageError

FORMAT = "ex2-checkpoint-1"


class CheckpointError(UsageError):
    """A checkpoint could not be written or read."""


def save(path: Path, state: Any) -> None:
    """Writes a nested state of dicts, lists, tensors, arrays and plain values, all or nothing."""
    arrays: dict[str, np.ndarray] = {}
    structure = _encode(state, arrays)
    draft = path.with_name(path.name + ".draft")
    try:
        save_file(arrays or {"empty": np.zeros(0)}, draft, metadata={"format": FORMAT, "structure": json.dumps(structure)})
        with open(draft, "rb") as written:
            os.fsync(written.fileno())
        os.replace(draft, path)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        kept = "the last good checkpoint is still there" if path.exists() else "there is no checkpoint yet"
        raise CheckpointError(f"The checkpoint {path} could not be written ({error}): {kept}.") from None


def load(path: Path) -> Any:
    """Reads back what `save` wrote."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(f"{path} is no checkpoint of this version: its format is {metadata.get('format')!r}.")
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        return _decode(json.loads(metadata["structure"]), arrays)
    except FileNotFoundError:
        raise CheckpointError(f"There is no checkpoint {path}.") from None
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(f"The checkpoint {path} is damaged or no checkpoint at all ({error}).") from None


def _encode(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray):
        key = str(len(arrays))
        plain = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        arrays[key] = np.ascontiguousarray(plain).reshape(plain.shape)
        return {"tensor" if isinstance(value, torch.Tensor) else "array": key}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_encode(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"A checkpoint cannot hold {type(value).__name__}.")


def _decode(node: Any, arrays: dict[str, np.ndarray]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "tensor":
        return torch.from_numpy(arrays[content].copy())
    if kind == "array":
        return arrays[content].copy()
    if kind == "dict":
        return {key: _decode(item, arrays) for key, item in content}
    items = [_decode(item, arrays) for item in content]
    return tuple(items) if kind == "tuple" else items
