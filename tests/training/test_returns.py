"""Advantages are those of Stable-Baselines3, and what they are by definition; a stream goes on over the ends of episodes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from torch import nn

from ex2.training import seen
from ex2.training.policy import Policy, PolicySettings
from ex2.training.returns import Stream, _by_autograd, advantages, explained_variance, fit_critic, gradients, orders
from ex2.training.seen import Observations

STEPS, ENVS = 30, 3


def data(seed=0):
    random = np.random.default_rng(seed)
    rewards = random.normal(size=(STEPS, ENVS)).astype(np.float32)
    values = random.normal(size=(STEPS + 1, ENVS)).astype(np.float32)
    return rewards, values, random.random((STEPS, ENVS)) < 0.15


def test_they_are_those_of_stable_baselines3():
    rewards, values, ends = data()
    box = spaces.Box(-1, 1, (1,))
    buffer = RolloutBuffer(STEPS, box, box, gae_lambda=0.9, gamma=0.95, n_envs=ENVS)
    starts = np.ones(ENVS)
    for step in range(STEPS):
        one = np.zeros((ENVS, 1))
        buffer.add(one, one, rewards[step], starts, torch.as_tensor(values[step]), torch.zeros(ENVS))
        starts = ends[step]
    buffer.compute_returns_and_advantage(torch.as_tensor(values[-1]), ends[-1])
    np.testing.assert_allclose(advantages(rewards, values, 0.95, 0.9, ends), buffer.advantages, rtol=1e-4, atol=1e-5)


def test_with_lambda_1_they_are_returns_less_values():
    rewards, values, ends = data()
    final = np.where(ends, 0.7, 0.0).astype(np.float32)  # as if every end were a time limit
    found = advantages(rewards, values, 0.9, 1.0, ends, final)
    for env in range(ENVS):
        for step in range(STEPS):
            total, discount = 0.0, 1.0
            for later in range(step, STEPS):
                total += discount * rewards[later, env]
                discount *= 0.9
                if ends[later, env]:
                    total += discount * 0.7
                    break
            else:
                total += discount * values[-1, env]
            assert found[step, env] == pytest.approx(total - values[step, env], abs=1e-4)


def test_a_stream_without_ends_goes_on():
    rewards, values, ends = data()
    assert np.array_equal(advantages(rewards, values, 0.9, 0.8), advantages(rewards, values, 0.9, 0.8, np.zeros_like(ends)))
    assert not np.allclose(advantages(rewards, values, 0.9, 0.8), advantages(rewards, values, 0.9, 0.8, ends))


def test_a_critic_is_fitted_in_chunks_of_any_size():
    torch.manual_seed(0)
    points = torch.randn(600, 4)
    critic = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(critic.parameters(), 0.05)
    target = (points @ torch.tensor([1.0, -2.0, 0.5, 0.0]) + 3.0).numpy().reshape(200, 3)
    random, seen = torch.Generator().manual_seed(0), Observations(points, lambda x: x)
    errors = [fit_critic(critic, optimizer, seen, target, orders(600, 5, random), 100) for _ in range(10)]
    assert errors[-1] < 1e-2 < errors[0]
    assert fit_critic(critic, optimizer, seen, target, [], 100) == 0.0


@pytest.mark.parametrize("at_once", [7, 10**6])
def test_a_minibatch_is_one_step_in_however_many_chunks(monkeypatch, at_once):
    """Of plain gradient descent, by hand."""
    monkeypatch.setitem(seen.AT_ONCE, "cpu", at_once)
    torch.manual_seed(0)
    points, target = torch.randn(12, 4), torch.randn(12)
    critic = nn.Linear(4, 1)
    by_hand = copy.deepcopy(critic)
    fit_critic(
        critic,
        torch.optim.SGD(critic.parameters(), 0.1),
        Observations(points, lambda x: x),
        target.numpy(),
        [torch.arange(12)],
        6,
    )
    for some in (slice(0, 6), slice(6, 12)):
        loss = (by_hand(points[some]).squeeze(1) - target[some]).square().mean()
        for value, slope in zip(by_hand.parameters(), torch.autograd.grad(loss, list(by_hand.parameters())), strict=True):
            value.data -= 0.1 * slope
    torch.testing.assert_close(critic.state_dict(), by_hand.state_dict())


@pytest.mark.parametrize("settings", [{"activation": "relu"}, {"standardise": "none"}, {"hidden": ()}])
def test_gradients_by_hand_are_those_of_autograd(settings):
    space = spaces.Box(-2.0, 1.0, (5,))
    torch.manual_seed(0)
    critic = Policy(space, spaces.Discrete(2), PolicySettings(**({"hidden": (16, 8)} | settings))).critic
    seen, targets = torch.randn(40, 5), torch.randn(40)
    (error, mine), (other, autograd) = gradients(critic)(seen, targets, 10), _by_autograd(critic, seen, targets, 10)
    torch.testing.assert_close(error, other)
    for one, two in zip(mine, autograd, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    by_hand = gradients(critic).func is not _by_autograd
    assert by_hand == (settings != {"hidden": ()})


def test_a_stream_learns_what_to_expect():
    """Of a constant score c for ever, c / (1 - gamma) is expected, and nothing is an advantage any more."""
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(1, 1))
    nn.init.zeros_(critic[0].weight)
    nn.init.zeros_(critic[0].bias)
    stream = Stream(critic, 0.9, 0.95, seed=0)
    random = np.random.default_rng(0)
    seen = torch.ones(STEPS * ENVS, 1)
    first = None
    for _ in range(900):
        scores = (1.0 + 0.1 * random.normal(size=(STEPS, ENVS))).astype(np.float32)
        found = stream.advantages(scores, Observations(seen, lambda x: x), torch.ones(ENVS, 1))
        first = found if first is None else first
    assert np.abs(found).mean() < 0.1 * np.abs(first).mean()
    again = Stream(nn.Sequential(nn.Linear(1, 1)), 0.9, 0.95, seed=5)
    again.load_state_dict(stream.state_dict())
    last = torch.ones(ENVS, 1)
    one, two = (each.advantages(scores, Observations(seen, lambda x: x), last) for each in (stream, again))
    assert np.array_equal(one, two)


def test_explained_variance():
    returns = np.array([1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.zeros(3), returns) == 0.0
    assert np.isnan(explained_variance(returns, np.ones(3)))
