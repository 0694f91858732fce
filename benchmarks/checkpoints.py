"""How small the frames that a run holds can be written without loss, how fast, and how long the training stands still for it.

    python benchmarks/checkpoints.py                    # some minutes on 2 cores; writes results/checkpoints
    python benchmarks/checkpoints.py --run runs/doom-kernel-exemplar-0      # also with the frames of a trained agent's FIFO

Frames are of games played at random, each action kept for five steps on average, in the order of the FIFO: a step of every
environment, then the next one. Of a run, they are those its last checkpoint holds. Times of packing are CPU seconds of one
core. `ratio` is that of all bytes to the bytes written.

The second table has whole checkpoints: a full FIFO of frames and one of points beside it, written by a `Writer` while a
thread works on (adds of 4,000 frames, multiplications of matrices). `stood still` is the time of `Writer.save`, `longest add`
that of an add to the FIFO meanwhile, which keeps aside what it overwrites.
"""

from __future__ import annotations

import argparse
import importlib.util
import lzma
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import zstandard

from ex2 import make_vector_env
from ex2.replay import Fifo
from ex2.training import checkpoint

RESULTS = Path("results/checkpoints")
TASKS = {"doom": (20, 250_000), "freeway": (32, 60_000), "venture": (32, 60_000)}  # environments, frames of a full FIFO
COMPARED = 100_000_000  # bytes that codecs are compared on
POINTS = 17  # numbers of a point
Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


def play(task: str, envs: int, count: int) -> np.ndarray:
    """Frames of random play, as rows of bytes; of a stack the last one."""
    env = make_vector_env(task, envs)
    random = np.random.default_rng(0)
    seen, _ = env.reset(seed=0)
    rows = np.empty((count, seen[0].size if task == "doom" else seen[0, -1].size), np.uint8)
    actions = random.integers(env.single_action_space.n, size=envs)
    for at in range(0, count, envs):
        some = (seen if task == "doom" else seen[:, -1]).reshape(envs, -1)
        rows[at : at + envs] = some[: count - at]
        other = random.integers(env.single_action_space.n, size=envs)
        actions = np.where(random.random(envs) < 0.2, other, actions)
        seen = env.step(actions)[0]
    env.close()
    return rows


def of_run(folder: Path) -> np.ndarray:
    """The frames that a run's last checkpoint holds, oldest first."""
    held = checkpoint.load(folder / "checkpoint.safetensors")["bonus"]["replay"]
    return np.roll(held["rows"].numpy(), -held["next"], axis=0)


def zstd(level: int, long: bool = False) -> Codec:
    more = {"window_log": 27, "enable_ldm": True} if long else {}
    settings = zstandard.ZstdCompressionParameters.from_level(level, **more)
    return (
        zstandard.ZstdCompressor(compression_params=settings).compress,
        zstandard.ZstdDecompressor(max_window_size=2**27).decompress,
    )


def codecs() -> dict[str, Codec]:
    found: dict[str, Codec] = {
        "zlib 1": (lambda data: zlib.compress(data, 1), zlib.decompress),
        "zlib 6": (lambda data: zlib.compress(data, 6), zlib.decompress),
        "lzma 1": (lambda data: lzma.compress(data, preset=1), lzma.decompress),
        "zstd 1": zstd(1),
        "zstd 3": zstd(3),
        "zstd 9": zstd(9),
        "zstd 3, long distances": zstd(3, long=True),
    }
    if importlib.util.find_spec("lz4"):
        import lz4.frame

        found["lz4"] = (lz4.frame.compress, lz4.frame.decompress)
    if importlib.util.find_spec("brotli"):
        import brotli

        found["brotli 5"] = (lambda data: brotli.compress(bytes(data), quality=5), brotli.decompress)
    if importlib.util.find_spec("blosc2"):
        import blosc2

        settings = {
            "codec": blosc2.Codec.ZSTD,
            "clevel": 1,
            "filters": [blosc2.Filter.BITSHUFFLE],
            "typesize": 1,
            "nthreads": 1,
        }
        found["blosc2, zstd 1, bits shuffled"] = (
            lambda data: blosc2.compress2(data, cparams=settings),
            lambda data: blosc2.decompress2(data, dparams={"nthreads": 1}),
        )
    return found


def orders(rows: np.ndarray, envs: int) -> dict[str, np.ndarray]:
    """The same rows otherwise."""
    steps = len(rows) // envs
    grouped = np.ascontiguousarray(rows[: steps * envs].reshape(steps, envs, -1).swapaxes(0, 1)).reshape(steps * envs, -1)
    before = rows.copy()
    before[envs:] ^= rows[:-envs]
    changes = grouped.copy()
    changes[1:] ^= grouped[:-1]
    return {
        "as they come": rows,
        "environment by environment": grouped,
        "xor with the frame before": before,
        "xor, environment by environment": changes,
        "pixel by pixel": np.ascontiguousarray(grouped.T),
    }


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def compare(rows: np.ndarray, envs: int) -> list[dict[str, Any]]:
    """Rows of the first table."""
    rows = rows[: COMPARED // rows.shape[1]]
    lines: list[dict[str, Any]] = []

    def line(order: str, codec: str, ratio: float, there: float, back: float) -> None:
        rates = {"packed_mb_s": round(rows.nbytes / 1e6 / there), "unpacked_mb_s": round(rows.nbytes / 1e6 / back)}
        lines.append({"rows": order, "codec": codec, "ratio": round(ratio, 2), **rates})
        print(lines[-1], flush=True)

    for order, data in orders(rows, envs).items():
        for name, (pack, unpack) in codecs().items():
            if order == "as they come" or name in ("zstd 1", "zstd 9"):
                small, there = timed(lambda pack=pack, data=data: pack(data.data))
                large, back = timed(lambda unpack=unpack, small=small: unpack(small))
                assert len(large) == data.nbytes
                line(order, name, rows.nbytes / len(small), there, back)
    small, there = timed(lambda: checkpoint._pack(rows))
    large, back = timed(lambda: checkpoint._unpack(small[0], **small[1]))
    assert np.array_equal(large, rows)
    line(f"recurring rows once, differences at {small[1]['distances']}", "zstd 1", rows.nbytes / len(small[0]), there, back)
    return lines


def whole(rows: np.ndarray, folder: Path) -> dict[str, float]:
    """A row of the second table: a checkpoint of a full FIFO, written in the background."""
    fifo, points = Fifo(len(rows), rows.shape[1], torch.uint8), Fifo(len(rows), POINTS, torch.float32)
    view = torch.randn(rows.shape[1], POINTS, generator=torch.Generator().manual_seed(0))
    for some in torch.from_numpy(rows).split(4_000):
        fifo.add(some)
        points.add(some.float() @ view)
    before = fifo.state_dict(), points.state_dict()
    path = folder / "checkpoint.safetensors"
    writer = checkpoint.Writer()
    start = time.perf_counter()
    writer.save(path, lambda: [fifo.state_dict(), points.state_dict()])
    still = time.perf_counter() - start
    adds, matrix = [], torch.randn(500, 500)
    while writer._thread is not None and writer._thread.is_alive():
        added = time.perf_counter()
        fifo.add(torch.from_numpy(rows[:4_000]))
        adds.append(time.perf_counter() - added)
        for _ in range(100):
            matrix @ matrix
    writer.wait()
    written = time.perf_counter() - start
    start = time.perf_counter()
    back = checkpoint.load(path)
    loaded = time.perf_counter() - start
    start, cpu = time.perf_counter(), time.process_time()
    checkpoint.save(path, before)
    alone, cpu = time.perf_counter() - start, time.process_time() - cpu
    for one, other in zip(before, back, strict=True):
        assert torch.equal(one["rows"], other["rows"])
        assert one["next"] == other["next"]
    raw, size = (rows.nbytes + 4 * POINTS * len(rows)) / 1e6, path.stat().st_size / 1e6
    row = {"held_mb": round(raw), "file_mb": round(size, 1), "ratio": round(raw / size, 2), "stood_still_s": round(still, 3)}
    row |= {"longest_add_s": round(max(adds, default=0.0), 3), "written_after_s": round(written, 1)}
    return row | {"written_alone_s": round(alone, 1), "cpu_s": round(cpu, 1), "loaded_s": round(loaded, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--run", type=Path, help="a run of Doom whose frames to measure with, too")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    codecs_of, fifos = [], []
    for name in [*asked.tasks, *(["a trained agent's doom"] if asked.run else [])]:
        envs, count = TASKS.get(name, TASKS["doom"])
        rows = of_run(asked.run) if name not in TASKS else play(name, envs, count)
        recurring = 1 - len(np.unique(np.array([hash(row.tobytes()) for row in rows]))) / len(rows)
        what = {
            "frames_of": name,
            "frames": len(rows),
            "bytes_each": rows.shape[1],
            "seen_before_percent": round(100 * recurring),
        }
        codecs_of += [what | line for line in compare(rows, envs)]
        with tempfile.TemporaryDirectory() as folder:
            fifos.append({"fifo": f"{name}, {len(rows):,}", **whole(rows, Path(folder))})
        print(fifos[-1], flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(codecs_of).to_csv(RESULTS / "codecs.csv", index=False)
    pd.DataFrame(fifos).to_csv(RESULTS / "fifos.csv", index=False)


if __name__ == "__main__":
    main()
