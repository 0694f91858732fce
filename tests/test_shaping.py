from __future__ import annotations

import pytest
import torch

from ex2 import UsageError, Weight
from ex2.shaping import bonus_of_density, centred


def test_the_three_forms():
    p = torch.tensor([0.1, 0.4])
    assert torch.allclose(bonus_of_density(p.log(), 50), -p.log())
    assert torch.allclose(bonus_of_density(p.log(), 50, "sqrt-count"), (50 * p).rsqrt())
    assert torch.allclose(bonus_of_density(p.log(), 50, "sqrt-count", count_offset=1.0), (50 * p + 1).rsqrt())
    assert torch.allclose(bonus_of_density(p.log(), 50, "inverse-count", state_count=7.0), 1 / (50 * p + 7))


def test_a_state_of_no_density_at_all_has_a_finite_bonus():
    for form in ("sqrt-count", "inverse-count"):
        assert torch.isfinite(bonus_of_density(torch.tensor([-1e4]), 100, form)).all()


def test_centring_sees_only_what_happened():
    bonus, mask = torch.tensor([[1.0, 2.0], [3.0, 99.0]]), torch.tensor([[True, True], [True, False]])
    assert centred(bonus, mask, "median").tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert centred(bonus, mask, "mean").tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert centred(bonus, mask, "none").tolist() == [[1.0, 2.0], [3.0, 0.0]]


def test_a_factor_on_the_density_is_centred_away():
    p, mask = torch.rand(5, 3), torch.ones(5, 3, dtype=torch.bool)
    one, two = (centred(bonus_of_density((c * p).log(), 10), mask) for c in (1.0, 17.0))
    assert torch.allclose(one, two, atol=1e-5)


def test_schedules():
    assert Weight(start=0.5).at(0.9) == 0.5
    fading = Weight(start=1.0, schedule="linear", end=0.2, until=0.5)
    assert [round(fading.at(x), 3) for x in (0.0, 0.25, 0.5, 1.0)] == [1.0, 0.6, 0.2, 0.2]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: bonus_of_density(torch.zeros(1), 1, "lgo"), "did you mean 'log'"),
        (lambda: centred(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), "midian"), "did you mean 'median'"),
        (lambda: Weight(schedule="liner"), "did you mean 'linear'"),
        (lambda: Weight(schedule="linear", until=0.0), "until=0.0 must be above 0"),
    ],
)
def test_wrong_names_suggest_the_nearest(make, name):
    with pytest.raises(UsageError, match=name):
        make()
