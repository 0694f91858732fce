from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from conftest import BUTTONS, CONTINUOUS, TILES, VECTOR
from ex2 import Batch, UsageError, make_bonus


def test_counts_on_the_grid():
    """Cells of a 4 x 4 grid over [-1, 1]^2, each visited a known number of times."""
    bonus = make_bonus("histogram", VECTOR, CONTINUOUS, bins=4)
    middles = torch.tensor([-0.75, -0.25, 0.25, 0.75])
    places = torch.stack(torch.meshgrid(middles, middles, indexing="ij"), -1).reshape(-1, 2)
    visits = torch.arange(16)
    obs = places.repeat_interleave(visits, 0)[:, None]
    bonus.remember(Batch.of(obs, torch.zeros(120, 1, 2), obs))
    expected = visits.clamp_min(0.5).log() - np.log(120)
    assert torch.allclose(bonus.log_density(places + 0.2), expected, atol=1e-5)


def test_discrete_states_and_actions_each_have_their_own_cell():
    bonus = make_bonus("histogram", TILES, BUTTONS, inputs="state-action")
    assert bonus.cell_count == 15
    state, action = torch.tensor([[4]] * 6), torch.tensor([[0]] * 4 + [[2]] * 2)
    bonus.remember(Batch.of(state, action, state))
    pairs = Batch.of(torch.tensor([[4], [4], [4]]), torch.tensor([[0], [1], [2]]), torch.zeros(3, 1, dtype=torch.long))
    found = bonus.log_density_of_batch(pairs).flatten().exp() * 6
    assert torch.allclose(found, torch.tensor([4.0, 0.5, 2.0]), atol=1e-5)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(UsageError, match="bounded"):
        make_bonus("histogram", spaces.Box(-np.inf, np.inf, (2,)), CONTINUOUS)
    with pytest.raises(UsageError, match="cells"):
        make_bonus("histogram", spaces.Box(-1, 1, (8,)), CONTINUOUS)
    with pytest.raises(UsageError, match="bins=0"):
        make_bonus("histogram", VECTOR, CONTINUOUS, bins=0)
