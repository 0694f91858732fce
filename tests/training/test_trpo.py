"""Our TRPO does what sb3-contrib's does, and what it leaves out it can do without."""

from __future__ import annotations

import copy

import pytest
import sb3_contrib
import torch
from oracle import assert_same_update, pairs, rolled_out, theirs

from ex2.errors import UsageError
from ex2.training import seen
from ex2.training.trpo import Fisher, conjugate_gradients, flat


def product(trainer, rollout, share=1.0):
    """A random vector times the Fisher matrix of the agent's actor."""
    rows = torch.arange(len(rollout.observations))[:: round(1 / share)]
    fisher = Fisher(trainer.policy.actor, trainer.policy.actions, rollout.observations, rows, 0.1)
    count = sum(value.numel() for value in fisher.parameters)
    vector = torch.randn(count, generator=torch.Generator().manual_seed(0))
    return vector, fisher(vector)


@pytest.mark.parametrize("task", ["cheetah", "venture"])
def test_the_fisher_matrix_is_the_second_derivative_of_the_divergence(task):
    trainer, rollout, _, _ = rolled_out(task)
    vector, ours = product(trainer, rollout)
    actor, actions = trainer.policy.actor, trainer.policy.actions
    now = actor(rollout.observations[:])
    divergence = actions.kl(now.detach(), now).mean()
    parameters = list(actor.parameters())
    slope = flat(torch.autograd.grad(divergence, parameters, create_graph=True))
    double = flat(torch.autograd.grad(slope @ vector, parameters)) + 0.1 * vector
    torch.testing.assert_close(ours, double, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("task", ["cheetah", "maze", "CartPole-v1"])
def test_an_update_is_that_of_sb3_contrib(task):
    # In one batch, of whatever order.
    settings = {"algo.n_critic_updates": 3, "algo.batch_size": 128, "algo.cg_damping": 0.1, "algo.cg_max_steps": 15}
    settings["policy.standardise"] = "none"
    trainer, rollout, advantages, returns = rolled_out(task, **settings)
    model = theirs(sb3_contrib.TRPO, trainer, rollout, advantages, returns, batch_size=128, n_critic_updates=3)
    before = [mine.detach().clone() for mine, _ in pairs(trainer.policy, model.policy)]
    trainer.algorithm.update(rollout, advantages, returns)
    trainer.algorithm.finish()
    model.train()
    assert_same_update(trainer.policy, model, before)


def test_observations_in_chunks_come_to_the_same(monkeypatch):
    found = []
    for numbers in (10**9, 7 * 4 * 42 * 42):
        monkeypatch.setitem(seen.AT_ONCE, "cpu", numbers)
        trainer, rollout, advantages, returns = rolled_out("freeway")
        vector = product(trainer, rollout)[1]
        metrics = trainer.algorithm.update(rollout, advantages, returns) | trainer.algorithm.finish()
        found.append((vector, copy.deepcopy(trainer.policy.state_dict()), metrics))
    (whole, policy, logged), (parts, other, reported) = found
    torch.testing.assert_close(parts, whole, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(other, policy, rtol=1e-3, atol=1e-4)
    assert reported["train/value_loss"] == pytest.approx(logged["train/value_loss"], rel=1e-3)
    assert logged["train/value_loss"] > 0.0


def test_a_share_of_the_states_is_near():
    trainer, rollout, _, _ = rolled_out("cheetah", rollout_steps=500)
    (_, whole), (_, part) = product(trainer, rollout), product(trainer, rollout, 0.25)
    assert 0.0 < (whole - part).norm() < 0.3 * whole.norm()


def test_the_matrix_is_of_a_share_of_the_states(monkeypatch):
    trainer, rollout, advantages, returns = rolled_out("cheetah", **{"algo.curvature_share": 0.25})
    seen, init = [], Fisher.__init__

    def watched(fisher, actor, actions, observations, rows, damping):
        seen.append(rows)
        init(fisher, actor, actions, observations, rows, damping)

    monkeypatch.setattr(Fisher, "__init__", watched)
    for _ in range(2):
        metrics = trainer.algorithm.update(rollout, advantages, returns)
    assert [len(rows) for rows in seen] == [32, 32]  # of 128
    assert not torch.equal(*seen)
    assert metrics["train/kl_divergence_loss"] < trainer.algorithm.settings.target_kl


def test_no_line_search_no_step():
    trainer, *data = rolled_out("cheetah", **{"algo.line_search_max_iter": 0, "algo.n_critic_updates": 0})
    before = copy.deepcopy(trainer.policy.state_dict())
    trainer.algorithm.update(*data)
    assert all(torch.equal(value, before[name]) for name, value in trainer.policy.state_dict().items())


def test_a_step_that_does_not_help_is_not_taken():
    # A target far beyond where the objective is linear.
    few = {"algo.n_critic_updates": 0, "algo.line_search_max_iter": 1, "algo.cg_damping": 1e-9, "algo.target_kl": 1e6}
    trainer, *data = rolled_out("cheetah", **few)
    before = copy.deepcopy(trainer.policy.state_dict())
    metrics = trainer.algorithm.update(*data)
    assert metrics["train/is_line_search_success"] == 0.0
    assert all(torch.equal(value, before[name]) for name, value in trainer.policy.state_dict().items())


def test_the_trust_region_can_shrink():
    trainer, *data = rolled_out("cheetah", **{"algo.target_kl": 0.02, "algo.final_kl": 0.0, "algo.n_critic_updates": 0})
    assert 0.003 < trainer.algorithm.update(*data, progress=0.5)["train/kl_divergence_loss"] < 0.01
    assert trainer.algorithm.update(*data, progress=2.0)["train/kl_divergence_loss"] == 0.0


def test_nothing_to_learn_changes_nothing():
    trainer, rollout, advantages, returns = rolled_out("cheetah")
    before = copy.deepcopy(trainer.policy.state_dict())
    assert trainer.algorithm.update(rollout, 0.0 * advantages, returns) == {}
    assert all(torch.equal(value, before[name]) for name, value in trainer.policy.state_dict().items())


def test_conjugate_gradients_solve():
    random = torch.Generator().manual_seed(0)
    root = torch.randn(8, 8, generator=random, dtype=torch.float64)
    matrix, target = root @ root.T + torch.eye(8), torch.randn(8, generator=random, dtype=torch.float64)
    found = conjugate_gradients(lambda vector: matrix @ vector, target, 20)
    torch.testing.assert_close(found, torch.linalg.solve(matrix, target), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("curvature_share", 2.0),
        ("curvature_share", 0.0),
        ("final_kl", -1.0),
        ("batch_size", -1),
        ("line_search_max_iter", 2.5),
        ("gamma", 2.0),
        ("learning_rate", -1e-3),
        ("use_sde", True),
    ],
)
def test_wrong_settings_are_named(name, value):
    with pytest.raises(UsageError, match=name):
        rolled_out("cheetah", **{f"algo.{name}": value})
