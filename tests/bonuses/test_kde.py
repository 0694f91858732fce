from __future__ import annotations

import math

import pytest
import torch
from sklearn.neighbors import KernelDensity

from conftest import CONTINUOUS, SPACES, VECTOR, make_batch
from ex2 import Batch, UsageError, make_bonus
from ex2.bonuses.exemplar.propositions import log_kernel_peak
from ex2.networks import middle_and_spread


def test_against_the_sum_of_kernels():
    """With one state remembered over and over, p is the kernel itself, relative to its peak."""
    bonus = make_bonus("kde", VECTOR, CONTINUOUS, bandwidth=0.2, subsample=30)
    obs = torch.zeros(50, 1, 2)
    bonus.remember(Batch.of(obs, obs, obs))
    bonus.prepare(Batch.of(obs, obs, obs))
    points = torch.tensor([[0.0, 0.0], [0.2, 0.0], [0.3, -0.4]])
    assert torch.allclose(bonus.log_density(points), -points.square().sum(1) / (2 * 0.2**2), atol=1e-4)


def test_against_scikit_learn():
    """In several dimensions and for pixels, with kernels on states that are not alike."""
    for name in ("vector-continuous", "image"):
        bonus = make_bonus("kde", *SPACES[name], bandwidth=0.5, subsample=40)
        batch = make_batch(SPACES[name], 60)
        bonus.remember(batch)
        bonus.prepare(batch)
        centres, rows = bonus.state_dict()["centres"].double(), bonus.inputs.rows(batch).flatten(0, 1).double()
        share = 255 if rows.max() > 10 else middle_and_spread(centres)[1]
        estimate = KernelDensity(bandwidth=0.5).fit(centres / share)
        found = bonus.log_density(bonus.inputs.rows(batch).flatten(0, 1)).double()
        expected = torch.as_tensor(estimate.score_samples(rows / share)) - log_kernel_peak(0.5, rows.shape[1])
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_subsample_bounds_the_cost():
    bonus = make_bonus("kde", *SPACES["vector-continuous"], subsample=10)
    bonus.remember(make_batch(SPACES["vector-continuous"], 100))
    bonus.prepare(make_batch(SPACES["vector-continuous"]))
    assert len(bonus.state_dict()["centres"]) == 10


def test_kernel_peak():
    assert log_kernel_peak(0.5, 2) == pytest.approx(-math.log(2 * math.pi * 0.25))
    with pytest.raises(UsageError, match="bandwidth"):
        make_bonus("kde", VECTOR, CONTINUOUS, bandwidth=0.0)
