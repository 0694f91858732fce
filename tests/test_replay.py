from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from ex2 import UsageError
from ex2.replay import BLOCK, Fifo, snapshots


def test_6_the_count_stops_growing_when_it_is_full():
    fifo = Fifo(100, 1, torch.float32)
    for start in range(0, 350, 35):
        fifo.add(torch.arange(start, start + 35.0)[:, None])
        assert len(fifo) == min(start + 35, 100)
    assert sorted(fifo.rows().flatten().tolist()) == list(range(250, 350))


def test_more_than_it_holds_at_once_keeps_the_newest():
    fifo = Fifo(10, 1, torch.float32)
    fifo.add(torch.arange(25.0)[:, None])
    assert sorted(fifo.rows().flatten().tolist()) == list(range(15, 25))


def test_restored_at_any_fill_it_goes_on_the_same():
    for fill in (3, 10, 17):
        one, two = Fifo(10, 1, torch.uint8), Fifo(10, 1, torch.uint8)
        one.add(torch.arange(fill, dtype=torch.uint8)[:, None])
        two.load_state_dict(one.state_dict())
        for fifo in (one, two):
            fifo.add(torch.arange(100, 104, dtype=torch.uint8)[:, None])
        draws = [fifo.sample(50, torch.Generator().manual_seed(1)) for fifo in (one, two)]
        assert torch.equal(one.rows(), two.rows())
        assert torch.equal(draws[0], draws[1])


def test_a_foreign_state_is_refused():
    with pytest.raises(UsageError, match="saved replay"):
        Fifo(10, 2, torch.float32).load_state_dict(Fifo(10, 3, torch.float32).state_dict())


def test_a_snapshot_stays_as_it_was():
    """At any fill, whatever is added, and however much of it at once."""
    for held in (0, 5, BLOCK, 3 * BLOCK + 7):
        fifo = Fifo(3 * BLOCK + 7, 2, torch.int16)
        fifo.add(torch.randint(1000, (held, 2), dtype=torch.int16))
        before = fifo.state_dict()
        with snapshots():
            state = fifo.state_dict()
        assert state["next"] == before["next"]
        snapshot = state["rows"]
        assert snapshot.shape == tuple(before["rows"].shape)
        for count in (1, 700, BLOCK, 2 * BLOCK, 4 * BLOCK):
            fifo.add(torch.randint(1000, (count, 2), dtype=torch.int16))
            rows = snapshot.take(np.arange(held)).view(snapshot.dtype)
            assert np.array_equal(rows, before["rows"].numpy())
        fifo.load_state_dict({"rows": torch.zeros(3 * BLOCK, 2, dtype=torch.int16), "next": 0})
        assert np.array_equal(snapshot.take(np.arange(held)).view(snapshot.dtype), before["rows"].numpy())


def test_without_a_snapshot_nothing_is_kept():
    fifo = Fifo(10, 1, torch.uint8)
    fifo.add(torch.zeros(10, 1, dtype=torch.uint8))
    with snapshots():
        state = fifo.state_dict()
    assert len(fifo._snapshots) == 1
    del state
    assert not fifo._snapshots
    assert isinstance(fifo.state_dict()["rows"], torch.Tensor)


def test_a_copy_of_a_queue_goes_its_own_way():
    one = Fifo(4, 1, torch.uint8)
    one.add(torch.arange(3, dtype=torch.uint8)[:, None])
    two = copy.deepcopy(one)
    two.add(torch.full((4, 1), 9, dtype=torch.uint8))
    assert one.rows().flatten().tolist() == [0, 1, 2]
