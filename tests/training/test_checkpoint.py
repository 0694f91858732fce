"""Checkpoints: what goes in comes out, and a bad one says so and harms nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from ex2.replay import Fifo
from ex2.training import checkpoint
from ex2.training.checkpoint import CheckpointError, Writer
from ex2.training.run import CHECKPOINT, CONFIG

STATE = {
    "tensors": {"a": torch.randn(3, 2), "bytes": torch.arange(5, dtype=torch.uint8), "scalar": torch.tensor(2.5)},
    "arrays": [np.arange(4, dtype=np.uint32), np.array([[True, False]]), np.zeros((0, 3))],
    "plain": (None, True, 3, 2.5, "word", 2**100, float("nan")),
    "int keys": {0: {"step": torch.tensor(1.0)}, 1: {}},
    "strided": torch.randn(4, 4).T,
}


def test_what_goes_in_comes_out(tmp_path):
    checkpoint.save(tmp_path / "c", STATE)
    back = checkpoint.load(tmp_path / "c")
    for name, tensor in STATE["tensors"].items():
        assert torch.equal(back["tensors"][name], tensor)
        assert back["tensors"][name].dtype == tensor.dtype
    for one, two in zip(STATE["arrays"], back["arrays"], strict=True):
        assert np.array_equal(one, two)
        assert one.dtype == two.dtype
    assert back["plain"][:6] == STATE["plain"][:6]
    assert np.isnan(back["plain"][6])
    assert list(back["int keys"]) == [0, 1]
    assert torch.equal(back["strided"], STATE["strided"])


def test_a_truncated_checkpoint_is_named(tmp_path):
    path = tmp_path / "c"
    checkpoint.save(path, STATE)
    whole = path.read_bytes()
    for size in (0, 5, 100, len(whole) - 3):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoint.load(path)


def test_a_foreign_checkpoint_is_named(tmp_path):
    save_file({"weights": np.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(CheckpointError, match="no checkpoint of this version"):
        checkpoint.load(tmp_path / "foreign")
    (tmp_path / "text").write_text("not a checkpoint at all, but long enough to be taken for one")
    with pytest.raises(CheckpointError, match="damaged or no checkpoint"):
        checkpoint.load(tmp_path / "text")
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        checkpoint.load(tmp_path / "missing")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_what_may_not_be_read_is_not_called_missing():
    with tempfile.TemporaryDirectory() as made:  # pytest's own may be entered by nobody else
        folder = Path(made)
        folder.chmod(0o755)
        checkpoint.save(folder / CHECKPOINT, {"steps": 1})
        (folder / CONFIG).write_text("{}")
        script = f"""
import os
from pathlib import Path
from ex2 import Run, UsageError
from ex2.training import checkpoint
folder = Path({made!r})
for path in folder.iterdir():
    path.chmod(0o600)
os.seteuid(65534)
for read in (lambda: checkpoint.load(folder / {CHECKPOINT!r}), lambda: Run(folder).config):
    try:
        read()
    except UsageError as error:
        print(error)
"""
        answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert answer.stdout.splitlines() == [
            f"The checkpoint {folder / CHECKPOINT} cannot be read (Permission denied).",
            f"{folder / CONFIG} cannot be read (Permission denied).",
        ], answer.stderr


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    """The operating system refuses to let a file grow past 64 KiB, as a full disk would."""
    path = tmp_path / "c"
    checkpoint.save(path, {"good": torch.arange(3)})
    script = f"""
import resource, torch
from pathlib import Path
from ex2.training import checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
checkpoint.save(Path({str(path)!r}), {{"too large": torch.randn(1_000_000)}})
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert answer.returncode != 0
    assert "could not be written" in answer.stderr
    assert "the last good checkpoint is still there" in answer.stderr
    assert torch.equal(checkpoint.load(path)["good"], torch.arange(3))
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


def films(count: int, shape: tuple[int, ...] = (3, 8, 8)) -> torch.Tensor:
    """Pictures as a game has them: a smooth one that moves, some of them again and again; rows of bytes."""
    generator = torch.Generator().manual_seed(0)
    smooth = torch.randint(-2, 3, (count, *shape), generator=generator).cumsum(-1).cumsum(-2) + 100
    rows = smooth.to(torch.uint8).reshape(count, -1)
    return rows[torch.randint(count // 2, (count,), generator=generator)]


def test_frames_come_back_to_the_bit_and_small(tmp_path):
    frames = films(10_000)
    state = {"frames": frames, "points": frames[:, :16].float() * 0.1, "noise": torch.randn(50_000)}
    checkpoint.save(tmp_path / "c", state)
    back = checkpoint.load(tmp_path / "c")
    for name, value in state.items():
        assert torch.equal(back[name], value)
        assert back[name].dtype == value.dtype
    checkpoint.save(tmp_path / "frames", {"frames": frames})
    assert (tmp_path / "frames").stat().st_size < frames.nbytes / 2


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int16, torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("shape", [(1, 70_001), (70_001,), (70_001, 1), (331, 331), (3, 5, 7, 1_009), (2_000, 37), (0, 99_999)])
def test_every_shape_and_type_comes_back(tmp_path, dtype, shape):
    value = films(300)[:, :1].flatten().repeat(400)[: int(np.prod(shape))].reshape(shape).to(dtype)
    state = {"one": value, "turned": value.transpose(0, -1), "some": value[::2], "array": value.numpy()}
    checkpoint.save(tmp_path / "c", state)
    back = checkpoint.load(tmp_path / "c")
    for name in ("one", "turned", "some"):
        assert torch.equal(back[name], state[name])
        assert back[name].dtype == dtype
        back[name].zero_()  # it can be changed
    assert np.array_equal(back["array"], state["array"])


def test_rows_whose_hashes_are_equal_by_chance_stay_apart(tmp_path, monkeypatch):
    class Zeros:
        def integers(self, low, high, size, dtype):
            return np.zeros(size, dtype)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Zeros())
    rows = torch.randint(2, (3_000, 32), dtype=torch.uint8).cumsum(1).to(torch.uint8)
    checkpoint.save(tmp_path / "c", {"rows": rows})
    assert torch.equal(checkpoint.load(tmp_path / "c")["rows"], rows)


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "c"
    checkpoint.save(path, STATE | {"frames": films(2_000)})
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    random = np.random.default_rng(0)
    places = [*range(8), *random.integers(header, size=100), *random.integers(header, len(whole), size=100)]
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(random.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError):
            checkpoint.load(path)


def test_a_checkpoint_of_the_last_version_is_refused(tmp_path):
    save_file({"empty": np.zeros(0)}, tmp_path / "old", metadata={"format": "ex2-checkpoint-1", "structure": "1"})
    with pytest.raises(CheckpointError, match=r"this version \(ex2-checkpoint-3\): its format is 'ex2-checkpoint-1'"):
        checkpoint.load(tmp_path / "old")


def test_a_writer_writes_what_was_when_it_was_asked(tmp_path):
    rows, weights, numbers = films(20_000), torch.zeros(100, 100), np.zeros(3)
    fifo = Fifo(20_000, rows.shape[1], torch.uint8)
    fifo.add(rows)
    writer = Writer()
    for _ in range(2):  # the second waits for the first
        before = {"fifo": fifo.state_dict(), "weights": weights.clone(), "numbers": numbers.copy()}
        writer.save(tmp_path / "c", lambda: {"fifo": fifo.state_dict(), "weights": weights, "numbers": numbers})
        weights.add_(1.0)
        numbers[:] = numbers + 1.0
        fifo.add(torch.randint(256, (5_000, rows.shape[1]), dtype=torch.uint8))
    writer.wait()
    back = checkpoint.load(tmp_path / "c")
    assert torch.equal(back["fifo"]["rows"], before["fifo"]["rows"])
    assert back["fifo"]["next"] == before["fifo"]["next"]
    assert torch.equal(back["weights"], before["weights"])
    assert np.array_equal(back["numbers"], before["numbers"])
    assert not fifo._snapshots


def test_what_goes_wrong_in_the_thread_is_raised_by_the_next_call(tmp_path):
    path = tmp_path / "c"
    checkpoint.save(path, {"good": torch.arange(3)})
    script = f"""
import resource, torch
from pathlib import Path
from ex2.training.checkpoint import CheckpointError, Writer
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
writer = Writer()
for call in (writer.wait, lambda: writer.save(Path({str(path)!r}), dict)):
    writer.save(Path({str(path)!r}), lambda: {{"too large": torch.randn(1_000_000)}})
    try:
        call()
    except CheckpointError as error:
        print(error)
writer.wait()
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("could not be written") == 2
    assert answer.stdout.count("the last good checkpoint is still there") == 2
    assert torch.equal(checkpoint.load(path)["good"], torch.arange(3))
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


@pytest.mark.slow
def test_a_kill_before_the_last_move_leaves_no_draft_behind(tmp_path):
    """The previous checkpoint is then the same file as the last one."""
    path = tmp_path / "c"
    checkpoint.save(path, 1)
    os.link(path, tmp_path / "c.previous")
    checkpoint.save(path, 2)
    assert {file.name for file in tmp_path.iterdir()} == {"c", "c.previous"}
    assert [checkpoint.load(tmp_path / name) for name in ("c", "c.previous")] == [2, 1]


def test_a_killed_process_leaves_the_last_good_checkpoint(tmp_path):
    """Killed at several instants of writing in the background, again and again."""
    path = tmp_path / "c"
    script = f"""
import torch
from pathlib import Path
from ex2.training.checkpoint import Writer
writer, rows = Writer(), torch.randint(4, (20_000, 512), dtype=torch.uint8)
for number in range(10_000):
    writer.save(Path({str(path)!r}), lambda: {{"number": number, "rows": rows + number % 200}})
    print(number, flush=True)
"""
    for wait in (0.0, 0.05, 0.13):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(3):
                written = int(process.stdout.readline()) - 1  # the one before the one that is being written
            time.sleep(wait)
            os.kill(process.pid, signal.SIGKILL)
        back = checkpoint.load(path)
        assert back["number"] >= written
        assert len(torch.unique(back["rows"])) == 4
        assert back["rows"].min() == back["number"] % 200
    kept = {"c", "c.previous"}
    assert {file.name for file in tmp_path.iterdir()} <= kept | {"c.draft", "c.previous.draft"}
    checkpoint.save(path, 1)
    assert {file.name for file in Path(tmp_path).iterdir()} == kept


def test_numbers_that_a_file_cannot_hold_are_refused_and_the_last_good_one_stays(tmp_path):
    path = tmp_path / "c"
    checkpoint.save(path, {"step": 1})
    for _ in range(2):
        with pytest.raises(checkpoint.CheckpointError, match="numbers of type complex128"):
            checkpoint.save(path, {"step": 2, "wild": np.zeros(3, np.complex128)})
    assert checkpoint.load(path) == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["c"]
