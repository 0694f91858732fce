from __future__ import annotations

import torch

from conftest import CONTINUOUS, UNBOUNDED
from ex2.inputs import Inputs
from ex2.networks import Stem


def test_running_moments_are_those_of_all_rows_even_far_from_zero():
    stem = Stem(Inputs(UNBOUNDED, CONTINUOUS))
    rows = torch.randn(5_000, 3) * torch.tensor([1.0, 0.1, 5.0]) + torch.tensor([1e4, -1e3, 0.0])
    for part in rows.split([7, 993, 4_000]):
        stem.update(part)
    assert torch.allclose(stem.spread(), rows.double().std(0, unbiased=False).float(), rtol=1e-3)
    assert stem(rows).mean(0).abs().max() < 0.02


def test_actions_beside_unbounded_states_keep_their_scale():
    inputs = Inputs(UNBOUNDED, CONTINUOUS, "state-action", action_scale=0.25)
    stem = Stem(inputs)
    rows = torch.cat([torch.randn(100, 3) * 50, torch.rand(100, 2) * 0.5 - 0.25], 1)
    stem.update(rows)
    assert torch.equal(stem(rows)[:, 3:], rows[:, 3:])


def test_the_forward_pass_moves_nothing():
    stem = Stem(Inputs(UNBOUNDED, CONTINUOUS))
    stem.update(torch.randn(10, 3))
    before = {name: value.clone() for name, value in stem.state_dict().items()}
    stem(torch.randn(10, 3))
    assert all(torch.equal(before[name], value) for name, value in stem.state_dict().items())
