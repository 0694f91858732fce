"""Our TRPO does what sb3-contrib's does, and what it leaves out it can do without."""

from __future__ import annotations

import copy

import gymnasium
import pytest
import sb3_contrib
import torch
from stable_baselines3.common.distributions import kl_divergence

from ex2.errors import UsageError
from ex2.training import rollout
from ex2.training.config import configure
from ex2.training.loop import Trainer
from ex2.training.rollout import Observations, actor_of
from ex2.training.trpo import TRPO, Fisher


def rolled_out(task, steps=None, **overrides):
    """An agent with a rollout in its buffer, and advantages to learn from."""
    settings = {"num_envs": 4, "rollout_steps": 32, "algo.batch_size": 32, "algo.curvature_share": 1.0} | overrides
    trainer = Trainer(configure(task, "none", steps=steps, overrides=settings))
    trainer.agent.train = lambda: None
    trainer.iterate()
    trainer.env.close()
    del trainer.agent.train
    buffer = trainer.agent.rollout_buffer
    buffer.advantages[:] = torch.randn(buffer.advantages.shape, generator=torch.Generator().manual_seed(1)).numpy()
    buffer.returns[:] = buffer.advantages + buffer.values
    return trainer.agent


def product(agent, share=1.0):
    """A random vector times the Fisher matrix of the agent's actor."""
    seen = Observations(agent.rollout_buffer, agent.policy)
    some = seen.rows[:: round(1 / share)]
    actor, log_std = actor_of(agent.policy), getattr(agent.policy, "log_std", None)
    fisher = Fisher(actor, log_std, [part for _, part in seen.chunks(some)], agent.cg_damping)
    count = sum(value.numel() for value in fisher.parameters) + (0 if log_std is None else log_std.numel())
    vector = torch.randn(count, generator=torch.Generator().manual_seed(0))
    return vector, fisher(vector)


@pytest.mark.parametrize("task", ["cheetah", "venture"])
def test_the_fisher_matrix_is_the_second_derivative_of_the_divergence(task):
    agent = rolled_out(task)
    vector, ours = product(agent)
    data = next(agent.rollout_buffer.get(None))
    with torch.no_grad():
        old = copy.copy(agent.policy.get_distribution(data.observations))
    divergence = kl_divergence(agent.policy.get_distribution(data.observations), old).mean()
    log_std = [agent.policy.log_std] if task == "cheetah" else []
    parameters = log_std + list(actor_of(agent.policy).parameters())
    slope = torch.cat([part.flatten() for part in torch.autograd.grad(divergence, parameters, create_graph=True)])
    theirs = torch.cat([part.flatten() for part in torch.autograd.grad(slope @ vector, parameters)]) + agent.cg_damping * vector
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("task", ["cheetah", "freeway", "doom"])
def test_an_update_is_that_of_sb3_contrib(task):
    agent = rolled_out(task, **{"algo.n_critic_updates": 3, "algo.batch_size": 128})  # in one batch, of whatever order
    before = copy.deepcopy(agent.policy.state_dict())
    agent.train()
    ours = copy.deepcopy(agent.policy.state_dict())
    assert all(not torch.equal(ours[name], value) for name, value in before.items())
    agent.policy.load_state_dict(before)
    agent.policy.optimizer.state.clear()
    sb3_contrib.TRPO.train(agent)
    moved = 0.0
    for name, theirs in agent.policy.state_dict().items():
        change = (theirs - before[name]).norm()
        moved += change.item()
        assert (ours[name] - theirs).norm() <= 0.02 * change + 1e-6, name
    assert moved > 0.01


def test_observations_in_chunks_come_to_the_same(monkeypatch):
    agent = rolled_out("freeway")
    before = copy.deepcopy(agent.policy.state_dict())
    found = []
    for numbers in (10**9, 7 * 4 * 42 * 42):
        monkeypatch.setitem(rollout.CHUNK, "cpu", numbers)
        agent.policy.load_state_dict(before)
        agent.policy.optimizer.state.clear()
        torch.manual_seed(0)
        agent.train()
        found.append((product(agent)[1], copy.deepcopy(agent.policy.state_dict()), dict(agent.logger.name_to_value)))
    (whole, policy, logged), (parts, other, reported) = found
    torch.testing.assert_close(parts, whole, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(other, policy, rtol=1e-3, atol=1e-4)
    assert reported["train/value_loss"] == pytest.approx(logged["train/value_loss"], rel=1e-3)
    assert logged["train/value_loss"] > 0.0


def test_a_share_of_the_states_is_near():
    agent = rolled_out("cheetah", rollout_steps=500)
    (_, whole), (_, part) = product(agent), product(agent, 0.25)
    assert 0.0 < (whole - part).norm() < 0.3 * whole.norm()


def test_the_matrix_is_of_a_share_of_the_states(monkeypatch):
    agent = rolled_out("cheetah", **{"algo.curvature_share": 0.25})
    seen, init = [], Fisher.__init__

    def watched(fisher, actor, log_std, observations, damping):
        seen.append(torch.cat(observations))
        init(fisher, actor, log_std, observations, damping)

    monkeypatch.setattr(Fisher, "__init__", watched)
    agent.train()
    agent.train()
    assert [len(rows) for rows in seen] == [32, 32]  # of 128
    assert not torch.equal(*seen)
    assert agent.logger.name_to_value["train/kl_divergence_loss"] < agent.target_kl


def test_no_line_search_no_step():
    agent = rolled_out("cheetah", **{"algo.line_search_max_iter": 0, "algo.n_critic_updates": 0})
    before = copy.deepcopy(agent.policy.state_dict())
    agent.train()
    assert all(torch.equal(value, before[name]) for name, value in agent.policy.state_dict().items())


def test_layers_that_the_critic_would_move_are_refused():
    with pytest.raises(ValueError, match="share layers"):
        TRPO("CnnPolicy", gymnasium.make("ex2/Freeway-v0"), device="cpu")


def test_a_step_that_does_not_help_is_not_taken():
    agent = rolled_out("cheetah", **{"algo.n_critic_updates": 0, "algo.line_search_max_iter": 1, "algo.cg_damping": 1e-9})
    agent.target_kl = 1e6  # far beyond where the objective is linear
    before = copy.deepcopy(agent.policy.state_dict())
    agent.train()
    assert agent.logger.name_to_value["train/is_line_search_success"] == 0.0
    assert all(torch.equal(value, before[name]) for name, value in agent.policy.state_dict().items())


def test_the_trust_region_can_shrink():
    agent = rolled_out("cheetah", 256, **{"algo.target_kl": 0.02, "algo.final_kl": 0.0, "algo.n_critic_updates": 0})
    assert agent.trust == pytest.approx(0.01)  # after 128 of 256 steps
    agent.train()
    assert 0.003 < agent.logger.name_to_value["train/kl_divergence_loss"] < 0.01
    agent.num_timesteps = 512
    assert agent.trust == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("curvature_share", 2.0),
        ("curvature_share", 0.0),
        ("final_kl", -1.0),
        ("batch_size", -1),
        ("line_search_max_iter", 2.5),
        ("sub_sampling_factor", 2),
        ("use_sde", True),
    ],
)
def test_wrong_settings_are_named(name, value):
    with pytest.raises(UsageError, match=name):
        rolled_out("cheetah", **{f"algo.{name}": value})
