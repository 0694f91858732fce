"""The Fisher matrix in closed form is sb3-contrib's own, and learning with a share of the states still learns."""

from __future__ import annotations

import copy

import pytest
import torch
from stable_baselines3.common.distributions import kl_divergence

from ex2.errors import UsageError
from ex2.training.config import configure
from ex2.training.loop import Trainer


def trained(task, share, **overrides):
    """A trainer with a rollout in its buffer."""
    settings = {"num_envs": 4, "rollout_steps": 32, "algo.batch_size": 32, "algo.curvature_share": share} | overrides
    trainer = Trainer(configure(task, "none", overrides=settings))
    trainer.agent.train = lambda: None
    trainer.iterate()
    trainer.env.close()
    return trainer.agent


def product(agent, seed=0):
    """The gradient of the objective, and a random vector times the Fisher matrix."""
    data = next(agent.rollout_buffer.get(None))
    with torch.no_grad():
        old = copy.copy(agent.policy.get_distribution(data.observations))
    now = agent.policy.get_distribution(data.observations)
    actions = data.actions.long().flatten() if agent.action_space.shape == () else data.actions
    objective = (now.log_prob(actions).exp() * (data.advantages + 1.0)).mean()
    params, gradient, of_kl, _ = agent._compute_actor_grad(kl_divergence(now, old).mean(), objective)
    vector = torch.randn(len(gradient), generator=torch.Generator().manual_seed(seed))
    return gradient, agent.hessian_vector_product(params, of_kl, vector)


@pytest.mark.parametrize("task", ["cheetah", "venture"])
def test_the_fisher_matrix_is_the_second_derivative_of_the_divergence(task):
    agent = trained(task, 1.0)
    gradient, ours = product(agent)
    agent.curvature_share = None
    other_gradient, theirs = product(agent)
    torch.testing.assert_close(gradient, other_gradient, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-6)


def test_a_share_of_the_states_is_near():
    agent = trained("cheetah", 1.0, rollout_steps=500)
    _, whole = product(agent)
    agent.curvature_share = 0.25
    _, part = product(agent)
    assert (whole - part).norm() < 0.3 * whole.norm()


def test_a_wrong_share_is_named():
    with pytest.raises(UsageError, match="curvature_share"):
        trained("cheetah", 2.0)
