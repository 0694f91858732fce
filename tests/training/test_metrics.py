"""Metrics: what TensorBoard reads, and a disk that fills."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ex2.training.metrics import Metrics, read


def test_tensorboard_reads_rows_and_those_of_sessions_that_went_on_from_before(tmp_path):
    first = Metrics(tmp_path)
    for step in (10, 20, 30):
        first.write({"step": step, "score": float(step), "seconds": 1.0})
    second = Metrics(tmp_path, step=20)
    assert [row["step"] for row in read(tmp_path / "metrics.csv")] == [10, 20]
    second.write({"step": 40, "score": 41.0, "seconds": 2.0, "new": 3.0})
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(board.Tags()["scalars"]) == ["new", "score", "seconds"]
    assert [(event.step, event.value) for event in board.Scalars("score")] == [(10, 10.0), (20, 20.0), (40, 41.0)]
    assert [row.get("new") for row in read(tmp_path / "metrics.csv")] == [None, None, 3.0]


@pytest.mark.parametrize("name", ["metrics.csv", "tensorboard"])
def test_whatever_cannot_be_written_is_heard_of(name, tmp_path):
    """TensorBoard's file, too: in a thread nobody would."""
    metrics = Metrics(tmp_path)
    metrics.write({"step": 10, "score": 1.0})
    paths = [tmp_path / name] if name == "metrics.csv" else list((tmp_path / name).iterdir())
    for path in paths:
        path.unlink()
        path.mkdir()
    with pytest.raises(OSError, match="directory"):
        metrics.write({"step": 20, "score": 1.0})
