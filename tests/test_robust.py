"""Bad and odd input: what is refused leaves no trace, and what is taken does no lasting harm. See benchmarks/faults.py."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces

import faults
from conftest import CONTINUOUS, SPACES, TILES, UNBOUNDED, VECTOR, make_batch
from ex2 import Batch, UsageError, make_bonus
from ex2.bonus import Bonus, setting_names
from ex2.inputs import Inputs
from ex2.networks import Moments
from ex2.replay import Fifo


def small(name: str, pair, **settings) -> Bonus:
    chosen = {key: faults.SMALL[key.split(".")[-1]] for key in setting_names(name) if key.split(".")[-1] in faults.SMALL}
    return make_bonus(name, *pair, **(chosen | settings))


@pytest.mark.slow
def test_a_reduced_campaign_finds_nothing():
    found = faults.campaign(300, seed=5)
    assert found.offences() == (0, 0, 0), found.report()


@pytest.mark.parametrize("name", faults.NAMES)
@pytest.mark.parametrize("method", ["observe", "prepare", "score", "remember"])
def test_every_method_refuses_before_anything_changes(name, method):
    pair = SPACES["vector-continuous"]
    batch = make_batch(pair)
    bad = [replace(batch, **{field: batch.obs.masked_fill(batch.obs > 0.5, torch.nan)}) for field in ("obs", "next_obs")]
    bad.append(replace(bad[0], mask=torch.zeros(batch.shape, dtype=torch.bool)))
    bad.append(Batch.of(batch.obs[..., :1], batch.action, batch.next_obs[..., :1]))
    if name in ("icm", "vime"):
        bad.append(replace(batch, action=batch.action * torch.inf))
    bonus = small(name, pair)
    for _ in range(2):  # at first nothing was seen, then something was
        before = copy.deepcopy(bonus.state_dict())
        for some in bad:
            with pytest.raises(UsageError):
                getattr(bonus, method)(some)
        assert faults.same(before, bonus.state_dict())
        bonus.observe(batch)


@pytest.mark.parametrize("name", ["kernel-exemplar", "rnd+kernel-exemplar"])
def test_a_batch_without_neighbours_changes_nothing_where_they_are_needed(name):
    own = "kernel-exemplar." if "+" in name else ""
    bonus = small(name, (VECTOR, CONTINUOUS), **{f"{own}projection": "neighbours"})
    bonus.observe(make_batch((VECTOR, CONTINUOUS)))
    before = copy.deepcopy(bonus.state_dict())
    for method in (bonus.observe, bonus.prepare):
        with pytest.raises(UsageError, match="adjacent in time"):
            method(make_batch((VECTOR, CONTINUOUS), steps=1))
    assert faults.same(before, bonus.state_dict())


def walk(count: int, wild: float | None = None, moved: int | None = None):
    """Batches of 200 transitions of 3 numbers; one wild number in the fifth, or the first number times 100 from one on."""
    random = np.random.default_rng(0)
    for number in range(count):
        obs, action = random.normal(size=(50, 4, 3)), random.uniform(-1, 1, (50, 4, 2))
        after = 0.9 * obs + 0.3 * action[..., :1] * [1.0, 0.5, 0.2] + 0.05 * random.normal(size=obs.shape)
        if moved is not None and number >= moved:
            obs[..., 0], after[..., 0] = 100 * obs[..., 0], 100 * after[..., 0]
        if wild is not None and number == 5:
            obs[7, 2, 0] = after[6, 2, 0] = wild
        yield Batch.of(*(x.astype(np.float32) for x in (obs, action, after)))


def probe(at: float, step: float = 0.0, scale: float = 1.0) -> Batch:
    """Transitions near (at, 0, 0), of a step in the first number, both in units of its scale."""
    random = np.random.default_rng(9)
    obs, action = 0.3 * random.normal(size=(200, 1, 3)), random.uniform(-1, 1, (200, 1, 2))
    obs[..., 0] = scale * (at + obs[..., 0])
    after = obs + np.array([step * scale, 0, 0])
    return Batch.of(*(x.astype(np.float32) for x in (obs, action, after)))


def after_walk(name: str, count: int = 60, **kind) -> Bonus:
    settings = {"vime": {"steps": 5}, "kernel-exemplar": {"count_offset": 0.0}}  # counts, however few visits they are
    bonus = make_bonus(name, UNBOUNDED, CONTINUOUS, **settings.get(name, {}))
    for batch in walk(count, **kind):
        bonus.observe(batch)
    return bonus


@pytest.mark.parametrize("name", ["kernel-exemplar", "rnd"])
def test_one_wild_number_leaves_states_apart(name):
    bonus = after_walk(name, wild=1e4)
    near, far, farther = (bonus.score(probe(at)).mean().item() for at in (0.0, 4.0, 8.0))
    assert farther > 1.1 * far > 2.0 * near


@pytest.mark.parametrize("name", ["icm", "vime"])
def test_one_wild_number_hides_no_transition(name):
    one, other = after_walk(name), after_walk(name, wild=1e4)
    usual, scores = ([bonus.score(probe(0.0, step)).mean().item() for step in (0.0, 1.0, 2.0)] for bonus in (one, other))
    assert scores[2] > scores[1] > 2.0 * scores[0]
    assert np.allclose(scores, usual, rtol=0.5)


@pytest.mark.parametrize("name", ["kernel-exemplar", "rnd", "icm"])
def test_a_scale_that_changes_for_good_is_followed(name):
    """Old states and new ones are apart by a factor of 100: on the old scale all of the new would look the same."""
    bonus = after_walk(name, 40, moved=12)
    probes = [probe(0.0, 0.5 * x, 100.0) if name == "icm" else probe(x, 0.0, 100.0) for x in (0.0, 2.0, 4.0)]
    scores = [bonus.score(batch).mean().item() for batch in probes]
    assert scores[2] > 1.2 * scores[1] > 1.44 * scores[0]


@pytest.mark.parametrize("rows", [20, 200])
def test_moments_resist_and_follow_whatever_the_size_of_batches(rows):
    random, moments = torch.Generator().manual_seed(0), Moments(2)
    for number in range(8_000 // rows):
        some = torch.randn(rows, 2, generator=random)
        some[0, 0] = 1e30 if number == 1_000 // rows else some[0, 0]
        moments.update(some)
    assert torch.allclose(moments.spread(), torch.ones(2), rtol=0.1)
    for _ in range(16_000 // rows):
        moments.update(1_000 * torch.randn(rows, 2, generator=random))
    assert (moments.spread() > 500).all()


def test_numbers_may_come_as_arrays_of_one():
    for space, values in ((TILES, np.array([[3, 1]])), (spaces.Box(-1.0, 1.0, ()), np.array([[0.5, -0.5]], np.float32))):
        inputs, action = Inputs(space, CONTINUOUS), np.zeros((1, 2, 2))
        plain, nested = (inputs.rows(Batch.of(x, action, x)) for x in (values, values[..., None]))
        assert torch.equal(plain, nested)


def test_infinities_of_half_precision_are_infinities():
    obs = np.full((1, 1, 2), np.inf, np.float16)
    with pytest.raises(UsageError, match="holds inf"):
        Inputs(VECTOR, CONTINUOUS).rows(Batch.of(obs, np.zeros((1, 1, 2)), obs))


@pytest.mark.parametrize(
    "values", [torch.eye(3)[None].to_sparse(), torch.zeros(1, 3, 3, device="meta"), torch.zeros(1, 3, 3) * 1j]
)
def test_tensors_that_are_not_plain_are_named(values):
    with pytest.raises(UsageError, match=r"obs is a .* tensor"):
        Batch.of(values, np.zeros((1, 3, 2)), values)


def test_a_replay_that_no_memory_holds_is_named():
    with pytest.raises(UsageError, match="replay_capacity"):
        Fifo(10**9, 10**6, torch.float32)


def test_far_outside_of_a_histogram_is_its_last_cell():
    bonus = make_bonus("histogram", VECTOR, CONTINUOUS, bins=4)
    assert bonus.cells(torch.tensor([[3e38, -3e38], [1.0, -1.0]])).tolist() == [12, 12]


def test_keys_of_several_kinds():
    space = spaces.Dict({"a": VECTOR})
    obs = {"a": np.zeros((1, 1, 2), np.float32), 3: np.zeros((1, 1))}
    assert Inputs(space, CONTINUOUS).rows(Batch.of(obs, np.zeros((1, 1, 2)), obs)).shape == (1, 1, 2)
