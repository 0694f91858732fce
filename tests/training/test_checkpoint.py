"""Checkpoints: what goes in comes out, and a bad one says so and harms nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from ex2.training import checkpoint
from ex2.training.checkpoint import CheckpointError

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


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    """The operating system refuses to let a file grow past 64 KiB, as a full disk would."""
    path = tmp_path / "c"
    checkpoint.save(path, {"good": torch.arange(3)})
    script = f"""
import resource, torch
from pathlib import Path
from ex2.training import checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
checkpoint.save(Path({str(path)!r}), {{"too large": torch.zeros(1_000_000)}})
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert answer.returncode != 0
    assert "could not be written" in answer.stderr
    assert "the last good checkpoint is still there" in answer.stderr
    assert torch.equal(checkpoint.load(path)["good"], torch.arange(3))
    assert [file.name for file in tmp_path.iterdir()] == ["c"]
