from __future__ import annotations

import pytest
import torch

from ex2 import UsageError
from ex2.replay import Fifo


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
