"""What every adapter keeps to, whatever the algorithm, the observations and the autoreset mode.

One suite over every case of `harnesses.HARNESSES`, on a walk with known answers and a bonus of known scores.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from harnesses import HARNESSES, WEIGHT
from walk import LENGTH, NOVEL, places

from ex2.shaping import discounted

QUICK = ("sb3-PPO-vector", "sb3-A2C-dict", "sb3-DQN-vector", "sb3-SAC-vector", "gymnasium-vector-vector-NEXT_STEP")
QUICK += ("gymnasium-vector-vector-SAME_STEP", "by-hand-dict-DISABLED", "gymnasium-vector-autoreset-False")
QUICK += ("torchrl-PPO-vector", "tianshou-DQN-vector")
"""For `make quick`."""
TOGETHER = {"rllib": "ray", "tianshou": "tianshou"}
"""Libraries that take seconds to start, in one process each, with their own tests."""


def case(name):
    slow, group = [pytest.mark.slow] * (name not in QUICK), TOGETHER.get(name.partition("-")[0])
    return pytest.param(name, marks=slow if group is None else [*slow, pytest.mark.xdist_group(group)])


@pytest.fixture(params=[case(name) for name in HARNESSES])
def name(request):
    return request.param


@pytest.fixture
def harness(name):
    return built(name)


def built(name):
    kind, *arguments = HARNESSES[name]
    return kind(*arguments)


@cache
def played(name):
    """Without the adapter, with a bonus, and the bonus."""
    harness = built(name)
    bonus = harness.known()
    return harness.play(None), harness.play(bonus), bonus


@cache
def without(name):
    """What a training without the adapter learns."""
    return built(name).train(None)


def test_a_late_bonus_reaches_an_early_step_by_the_discounted_amount(name):
    plain, shaped, _ = played(name)
    bonuses = WEIGHT * (shaped.places >= NOVEL) * shaped.real
    assert bonuses.any()
    expected = discounted(bonuses, shaped.discount, shaped.ends)
    assert np.allclose(shaped.learned - plain.learned, expected, atol=1e-5)
    if shaped.discount:
        assert ((expected > 0) & (bonuses == 0)).any()


def test_ends_of_episodes_bootstrap_as_they_do_without(name):
    plain, shaped, _ = played(name)
    assert np.array_equal(plain.ends, shaped.ends)
    assert np.allclose(plain.bootstrap, shaped.bootstrap, atol=1e-6)


def test_only_what_happened_is_fitted_scored_and_remembered(name):
    _, _, bonus = played(name)
    assert bonus.fitted
    assert [batch.shape for batch in bonus.fitted] == [batch.shape for batch in bonus.remembered]
    for batch, later in zip(bonus.fitted, bonus.remembered, strict=True):
        assert np.array_equal(places(batch.obs), places(later.obs))
        assert torch.equal(batch.mask, later.mask)
    happened = {
        (int(here), int(there))
        for batch in bonus.fitted
        for here, there in zip(*(places(part)[batch.mask.numpy()] for part in (batch.obs, batch.next_obs)), strict=True)
    }
    for batch in bonus.scored:
        pairs = (places(part)[batch.mask.numpy()].tolist() for part in (batch.obs, batch.next_obs))
        assert set(zip(*pairs, strict=True)) <= happened
    for batch in bonus.fitted:
        before, after, mask = places(batch.obs), places(batch.next_obs), batch.mask.numpy()
        assert ((np.abs(after - before) == 1) | ((before == 0) & (after == 0)))[mask].all()
        terminated, truncated = batch.terminated.numpy()[mask], batch.truncated.numpy()[mask]
        assert np.array_equal(after[mask] == LENGTH - 1, terminated)
        assert not (terminated & truncated).any()
        apart = (after[:-1] != before[1:]) & mask[:-1] & mask[1:]  # stretches that only lie one behind the other
        assert (batch.terminated | batch.truncated).numpy()[:-1][apart].all()
    assert any(batch.terminated[batch.mask].any() for batch in bonus.fitted)


def test_evaluations_see_no_bonus(harness):
    returns = harness.evaluate()
    assert len(returns) >= 3
    assert set(np.ravel(returns)) <= {0.0, 1.0}


def test_a_weight_of_0_is_the_training_without_the_adapter_bit_for_bit(name):
    assert np.array_equal(without(name), built(name).train(0.0))


def test_a_bonus_changes_the_training(name):
    assert not np.array_equal(without(name), built(name).train("auto"))


def test_going_on_equals_never_having_stopped(harness, tmp_path):
    never, again = harness.resumed(tmp_path)
    assert np.array_equal(never, again)


OWN = ["sb3-PPO-vector", "sb3-TRPO-picture", "sb3-A2C-discrete", "sb3-DQN-vector", "sb3-SAC-picture", "torchrl-PPO-vector"]
OWN += map(case, ["torchrl-DQN-vector", "tianshou-PPO-dict", "tianshou-DQN-vector", "tianshou-SAC-vector", "rllib-PPO-vector"])


@pytest.mark.parametrize("name", OWN)
def test_a_policy_of_ones_own_learns_with_a_bonus(name):
    assert np.isfinite(built(name).own_policy()).all()
