from __future__ import annotations

import math

import pytest
import torch

from conftest import CONTINUOUS, SPACES, VECTOR, make_batch
from ex2 import Batch, UsageError, make_bonus
from ex2.exemplar.propositions import log_kernel_peak


def test_against_the_sum_of_kernels():
    """With one state remembered over and over, p is the kernel itself, relative to its peak."""
    bonus = make_bonus("kde", VECTOR, CONTINUOUS, bandwidth=0.2, subsample=30, relative_tolerance=0.0)
    obs = torch.zeros(50, 1, 2)
    bonus.remember(Batch.of(obs, obs, obs))
    bonus.fit(Batch.of(obs, obs, obs))
    points = torch.tensor([[0.0, 0.0], [0.2, 0.0], [0.3, -0.4]])
    assert torch.allclose(bonus.log_density(points), -points.square().sum(1) / (2 * 0.2**2), atol=1e-4)


def test_the_subsample_bounds_the_cost():
    bonus = make_bonus("kde", *SPACES["vector-continuous"], subsample=10)
    bonus.remember(make_batch(SPACES["vector-continuous"], 100))
    bonus.fit(make_batch(SPACES["vector-continuous"]))
    assert len(bonus.state_dict()["centres"]) == 10


def test_kernel_peak():
    assert log_kernel_peak(0.5, 2) == pytest.approx(-math.log(2 * math.pi * 0.25))
    with pytest.raises(UsageError, match="bandwidth"):
        make_bonus("kde", VECTOR, CONTINUOUS, bandwidth=0.0)
