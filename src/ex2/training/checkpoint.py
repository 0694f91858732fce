"""Checkpoints: nested states as one safetensors file, with their structure as JSON in its header. Loading runs no code.

A checkpoint is written beside the old one and then put in its place, so a full disk or a killed process leaves the last good
one as it was. A digest in the header covers all of it: a changed bit is found. The one before it is kept, for that case.

Large arrays are packed, if that makes them smaller by a tenth (docs/results.md). Rows that recur are written once; of
the others each byte is taken less the one some places before it (the pixel above, the colour before), where that helps; zstd
does the rest. What comes back is exact to the bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zstandard
from safetensors import SafetensorError, safe_open

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.replay import Snapshot, snapshots
from ex2.training.files import draft_of, replacing

FORMAT = "ex2-checkpoint-3"
SMALLEST = 2**16  # bytes of an array that is packed
CHUNK = 2**23  # bytes that are worked on at a time
SAMPLE = 2**20  # bytes that the distances are chosen on
NARROW = 32  # bytes of a row below which rows are not looked at one by one
LEVEL = 1  # of zstd; higher ones are slower and pack filtered pictures no better
KINDS = {"b1": "BOOL", "f2": "F16", "f4": "F32", "f8": "F64"} | {
    f"{kind}{size}": f"{kind.upper()}{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)
}
"""safetensors' names of NumPy's types."""
_writing = threading.Lock()


class CheckpointError(UsageError):
    """A checkpoint could not be written or read."""


def save(path: Path, state: Any) -> None:
    """Writes a nested state of dicts, lists, tensors, arrays and plain values, all or nothing."""
    leaves: list[Leaf] = []
    _write(path, _encode(state, leaves, copied=False), leaves)


class Writer:
    """Writes checkpoints in a thread, one at a time, while the training goes on.

    What goes wrong in the thread is raised by the next `save` or `wait`. The interpreter waits for the thread when it ends.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def save(self, path: Path, state: Callable[[], Any]) -> None:
        """Calls `state`, copies what it returns and starts to write it. FIFOs are not copied; they take care of themselves."""
        self.wait()
        leaves: list[Leaf] = []
        with snapshots():
            structure = _encode(state(), leaves, copied=True)
        self._thread = threading.Thread(target=self._work, args=(path, structure, leaves), name="ex2-checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Returns when the last checkpoint is written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self, path: Path, structure: Any, leaves: list[Leaf]) -> None:
        try:
            _write(path, structure, leaves)
        except Exception as error:
            self._error = error


def load(path: Path) -> Any:
    """Reads back what `save` or a `Writer` wrote."""
    try:
        path.open("rb").close()  # to safetensors, a file that may not be read is not there
    except FileNotFoundError:
        raise CheckpointError(f"There is no checkpoint {path}.") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"The checkpoint {path} cannot be read ({getattr(error, 'strerror', error)}).") from None
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise CheckpointError(
                    f"{path} is no checkpoint of this version ({FORMAT}): its format is {metadata.get('format')!r}."
                )
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        if metadata["digest"] != _digest(metadata, arrays):
            raise ValueError("its digest is another")
        for key, packing in json.loads(metadata["packed"]).items():
            arrays[key] = _unpack(arrays[key], **packing)
        return _decode(json.loads(metadata["structure"]), arrays)
    except (OSError, SafetensorError, LookupError, TypeError, AttributeError, ValueError, zstandard.ZstdError) as error:
        raise CheckpointError(f"The checkpoint {path} is damaged or no checkpoint at all ({error}).") from None


Leaf = Array | Snapshot


def _write(path: Path, structure: Any, leaves: list[Leaf]) -> None:
    with _writing:
        try:
            arrays: dict[str, Array] = {}
            packings: dict[str, Any] = {}
            for index, leaf in enumerate(leaves):
                packed = _pack(leaf)
                if packed:
                    arrays[str(index)], packings[str(index)] = packed
                else:
                    arrays[str(index)] = leaf if isinstance(leaf, np.ndarray) else _whole(leaf)
            arrays = arrays or {"empty": np.zeros(0)}
            metadata = {"format": FORMAT, "structure": json.dumps(structure), "packed": json.dumps(packings)}
            with replacing(path) as draft:
                _put(draft, arrays, metadata | {"digest": _digest(metadata, arrays)})
                _keep(path)
        except (OSError, SafetensorError) as error:
            kept = "the last good checkpoint is still there" if path.exists() else "there is no checkpoint yet"
            raise CheckpointError(f"The checkpoint {path} could not be written ({error}): {kept}.") from None


def _put(draft: Path, arrays: dict[str, Array], metadata: dict[str, str]) -> None:
    """Writes a safetensors file. The library's own writer leaves a file of a random name beside it when it is killed."""
    # Wide numbers first: each array begins at a multiple of its numbers' width.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name in names:
        array, begin = arrays[name], end
        end += array.nbytes
        kind = array.dtype.str[1:]
        if kind not in KINDS:
            raise CheckpointError(
                f"The checkpoint {draft} cannot hold numbers of type {array.dtype}: use float64 or narrower ones."
            )
        header[name] = {"dtype": KINDS[kind], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(draft, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(_bytes(arrays[name]))


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def previous(path: Path) -> Path:
    """The checkpoint before this one."""
    return path.with_name(path.name + ".previous")


def restore(path: Path) -> None:
    """Puts the checkpoint before this one in its place, all or nothing."""
    with replacing(path) as draft:
        shutil.copyfile(previous(path), draft)


def _keep(path: Path) -> None:
    """Keeps a checkpoint, which is about to be replaced, as the previous one; at no instant there is none."""
    if path.exists():
        draft = draft_of(previous(path))
        draft.unlink(missing_ok=True)
        try:
            os.link(path, draft)
        except OSError:  # on a drive without links
            os.replace(path, previous(path))
        else:
            os.replace(draft, previous(path))
            draft.unlink(missing_ok=True)  # still there where the previous one was this one already, after a kill


def _digest(metadata: dict[str, str], arrays: dict[str, Array]) -> str:
    """Of everything that a checkpoint says."""
    digest = hashlib.blake2b(digest_size=32)
    digest.update(json.dumps([metadata[name] for name in ("format", "structure", "packed")]).encode())
    for key, array in sorted(arrays.items()):
        digest.update(json.dumps([key, array.dtype.str, array.shape]).encode())
        digest.update(_bytes(array))
    return digest.hexdigest()


def _encode(value: Any, leaves: list[Leaf], copied: bool) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray | Snapshot):
        leaf = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        if isinstance(leaf, np.ndarray):
            leaf = np.array(leaf, order="C") if copied else np.ascontiguousarray(leaf).reshape(leaf.shape)
        leaves.append(leaf)
        return {"array" if isinstance(value, np.ndarray) else "tensor": str(len(leaves) - 1)}
    if isinstance(value, dict):
        return {"dict": [[key, _encode(item, leaves, copied)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_encode(item, leaves, copied) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"A checkpoint cannot hold {type(value).__name__}.")


def _decode(node: Any, arrays: dict[str, Array]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "tensor":
        return torch.from_numpy(_own(arrays[content]))
    if kind == "array":
        return _own(arrays[content])
    if kind == "dict":
        return {key: _decode(item, arrays) for key, item in content}
    items = [_decode(item, arrays) for item in content]
    return tuple(items) if kind == "tuple" else items


def _own(array: Array) -> Array:
    return array if array.flags.writeable and array.flags.owndata else array.copy()


class _Rows:
    """An array as rows of bytes, to be read some at a time: those of its first dimension, or its single numbers."""

    def __init__(self, leaf: Leaf) -> None:
        self.count = len(leaf)
        self.width = leaf.nbytes // self.count
        self._take = leaf.take if isinstance(leaf, Snapshot) else leaf.reshape(self.count, -1).view(np.uint8).__getitem__
        self.step = max(1, CHUNK // self.width)

    def take(self, index: Array) -> Array:
        return self._take(index)

    def first(self) -> Array:
        """For each row the first one that is equal to it, [count]."""
        every = np.arange(self.count, dtype=np.uint32)
        if self.width < NARROW:
            return every
        word = next(size for size in (4, 2, 1) if self.width % size == 0)
        factors = np.random.default_rng(0).integers(1, 2**63, self.width // word, np.uint64) | np.uint64(1)
        chunks = [every[at : at + self.step] for at in range(0, self.count, self.step)]
        hashes = np.concatenate([(self.take(chunk).view(f"u{word}") * factors).sum(1) for chunk in chunks])
        _, at_first, same = np.unique(hashes, return_index=True, return_inverse=True)
        first = at_first.astype(np.uint32)[same]
        again = every[first != every]
        for at in range(0, len(again), self.step):
            some = again[at : at + self.step]
            equal = (self.take(some) == self.take(first[some])).all(1)
            first[some[~equal]] = some[~equal]  # the same hash by chance
        return first

    def distances(self, kept: Array) -> list[int]:
        """How far back in its row each byte's reference is: those that make a sample smallest, one after the other."""
        if self.width < NARROW:
            return []
        run = min(len(kept), max(1, SAMPLE // self.width // 4))
        starts = np.linspace(0, len(kept) - run, 4).astype(int)
        sample = self.take(np.concatenate([kept[start : start + run] for start in starts]))
        candidates = [distance for distance in range(1, self.width // 2 + 1) if self.width % distance == 0]
        chosen: list[int] = []
        smallest = len(zstandard.compress(sample.data, LEVEL))
        while len(chosen) < 3:
            sizes = {distance: len(zstandard.compress(_less(sample, distance).data, LEVEL)) for distance in candidates}
            best = min(sizes, key=sizes.__getitem__, default=0)
            if not best or sizes[best] > 0.98 * smallest:
                break
            chosen.append(best)
            sample, smallest = _less(sample, best), sizes[best]
        return chosen


def _whole(snapshot: Snapshot) -> Array:
    return snapshot.take(np.arange(len(snapshot))).view(snapshot.dtype).reshape(snapshot.shape)


def _less(rows: Array, distance: int) -> Array:
    """Each byte less the one so many places before it in its row."""
    less = rows.copy()
    less[:, distance:] -= rows[:, :-distance]
    return less


def _more(rows: Array, distance: int) -> None:
    """The reverse of `_less`, in place."""
    parts = rows.reshape(len(rows), -1, distance)
    if distance < 16:
        np.add.accumulate(parts, axis=1, dtype=np.uint8, out=parts)
    else:  # the same, faster where a part is wide
        for place in range(1, parts.shape[1]):
            parts[:, place] += parts[:, place - 1]


def _pack(leaf: Leaf) -> tuple[Array, dict[str, Any]] | None:
    """An array's bytes, packed, and what it takes to unpack them; None if that does not make it smaller by a tenth."""
    if leaf.nbytes < SMALLEST:
        return None
    rows = _Rows(leaf)
    first = rows.first()
    every = np.arange(rows.count, dtype=np.uint32)
    kept = every[first == every]
    distances = rows.distances(kept)
    stream = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compressobj()
    parts = [stream.compress((every - first).data)] if rows.width >= NARROW else []
    for at in range(0, len(kept), rows.step):
        some = rows.take(kept[at : at + rows.step])
        for distance in distances:
            some = _less(some, distance)
        parts.append(stream.compress(some.data))
        if sum(map(len, parts)) > 0.9 * leaf.nbytes:
            return None
    parts.append(stream.flush())
    if sum(map(len, parts)) > 0.9 * leaf.nbytes:
        return None
    packing = {"dtype": leaf.dtype.str, "shape": list(leaf.shape), "distances": distances}
    return np.frombuffer(b"".join(parts), np.uint8), packing


def _unpack(packed: Array, dtype: str, shape: list[int], distances: list[int]) -> Array:
    array = np.empty(shape, np.dtype(dtype))
    rows = array.reshape(len(array), -1).view(np.uint8)
    every = np.arange(len(rows), dtype=np.uint32)
    step = max(1, CHUNK // rows.shape[1])
    with zstandard.ZstdDecompressor().stream_reader(packed.data) as stream:

        def read(into: Array) -> Array:
            if stream.readinto(into.reshape(-1).view(np.uint8).data) != into.nbytes:
                raise ValueError("a packed array ends early")
            return into

        first = every - read(np.empty_like(every)) if rows.shape[1] >= NARROW else every
        kept = every[first == every]
        for at in range(0, len(kept), step):
            some = read(np.empty((len(kept[at : at + step]), rows.shape[1]), np.uint8))
            for distance in reversed(distances):
                _more(some, distance)
            rows[kept[at : at + step]] = some
        if stream.read(1):
            raise ValueError("a packed array goes on past its end")
    again = every[first != every]
    for at in range(0, len(again), step):
        rows[again[at : at + step]] = rows[first[again[at : at + step]]]
    return array
