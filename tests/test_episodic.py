from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from ex2 import Batch, Weight, make_bonus
from ex2.episodic import EpisodicCounts, Places
from ex2.shaping import Shaper

STEPS, ENVS, PLACES = 60, 3, 6


def walk(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Places far apart, visited at random; ends of episodes; steps that happened."""
    draw = torch.Generator().manual_seed(seed)
    at = torch.randint(0, PLACES, (STEPS, ENVS), generator=draw)
    return at, torch.rand(STEPS, ENVS, generator=draw) < 0.1, torch.rand(STEPS, ENVS, generator=draw) < 0.9


def counted(at: torch.Tensor, ends: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The same, one step after the other."""
    found = torch.ones(STEPS, ENVS)
    for env in range(ENVS):
        seen: Counter[int] = Counter()
        for step in range(STEPS):
            if mask[step, env]:
                seen[int(at[step, env])] += 1
                found[step, env] = seen[int(at[step, env])]
            if ends[step, env]:
                seen.clear()
    return found


def places(at: torch.Tensor, metric: int = 0) -> Places:
    return Places(10.0 * at[..., None].float(), 1.0, metric)


@pytest.mark.parametrize("length", [60, 20, 1])
def test_places_are_counted_within_their_episode_however_the_steps_are_cut(length):
    at, ends, mask = walk()
    counts = EpisodicCounts()
    parts = [slice(first, first + length) for first in range(0, STEPS, length)]
    found = torch.cat([counts(places(at[part]), ends[part], mask[part]) for part in parts])
    assert torch.equal(found, counted(at, ends, mask))


def test_what_did_not_happen_may_be_anything():
    at, ends, mask = walk()
    points = places(at).points
    points[~mask] = torch.nan
    assert torch.equal(EpisodicCounts()(Places(points, 1.0, 0), ends, mask), counted(at, ends, mask))


def test_far_out_the_same_place_is_the_same(monkeypatch):
    at, ends, mask = walk()
    points = 1e5 * torch.randn(PLACES, 8, generator=torch.Generator().manual_seed(1))[at]
    assert torch.equal(EpisodicCounts()(Places(points, 1.0, 0), ends, mask), counted(at, ends, mask))
    monkeypatch.setattr("ex2.episodic.STEPS_AT_ONCE", 7)
    assert torch.equal(EpisodicCounts()(Places(points, 1.0, 0), ends, mask), counted(at, ends, mask))


def test_near_places_count_in_part():
    points = torch.tensor([[[0.0]], [[2.0]]])
    none = torch.zeros(2, 1, dtype=torch.bool)
    assert EpisodicCounts()(Places(points, 2.0, 0), none, ~none)[1].item() == pytest.approx(1.0 + np.exp(-0.5))


def test_another_metric_begins_anew_and_so_do_other_environments():
    at, ends, mask = walk()
    never = torch.zeros_like(ends)
    counts = EpisodicCounts()
    first = counts(places(at), never, mask)
    assert counts(places(at), never, mask).sum() > first.sum()
    assert torch.equal(counts(places(at, metric=1), never, mask), first)
    counts.forget()
    assert torch.equal(counts(places(at, metric=1), never, mask), first)


def test_counts_go_on_where_they_were_saved():
    at, ends, mask = walk()
    one, other = EpisodicCounts(), EpisodicCounts()
    one(places(at), ends, mask)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(places(at), ends, mask), other(places(at), ends, mask))


def test_an_agent_that_stays_is_paid_less_and_less_of_what_a_place_is_worth():
    bonus = make_bonus("kernel-exemplar", Box(-np.inf, np.inf, (2,)), Discrete(2))
    draw = np.random.default_rng(0)
    wandering = draw.normal(size=(200, 4, 2))
    staying = np.broadcast_to(draw.normal(size=(1, 4, 2)), (200, 4, 2))
    paid = {}
    for counts in (True, False):
        shaper = Shaper(bonus, Weight(start=1.0), 0.99, centre="none", scaled=False, episode_counts=counts)
        for states in (wandering, wandering, staying):
            shaped = shaper(Batch.of(states, np.zeros((200, 4)), states), np.zeros((200, 4), np.float32), 0.0)
            shaper.restart()
        paid[counts] = shaped
    assert np.allclose(paid[False].bonuses[1:], paid[False].bonuses[:-1])
    later = paid[True].bonuses / paid[True].bonuses[0]
    assert np.allclose(later, np.arange(1, 201)[:, None] ** -0.5, rtol=1e-4)
    assert paid[True].metrics["bonus/episode_visits"] == pytest.approx(100.5, rel=1e-3)
