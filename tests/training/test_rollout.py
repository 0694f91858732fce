"""Rollouts that are completed at once hold what Stable-Baselines3 would have put into them step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ex2.training.config import configure
from ex2.training.loop import Trainer


@pytest.mark.parametrize("algo", ["trpo", "ppo"])
@pytest.mark.parametrize(("task", "steps"), [("cheetah", 505), ("gather", 40), ("doom", 215), ("freeway", 40)])
def test_values_chances_and_time_limits(task, steps, algo):
    settings = {
        "num_envs": 2,
        "rollout_steps": steps,
        "algo.batch_size": 2 * steps,
        "policy.zero_critic": False,
        "entropy": 0.0,
    }
    trainer = Trainer(configure(task, "none", algo=algo, overrides=settings))
    agent, ended, own = trainer.agent, [], []
    step = trainer.env.step_wait

    def watched():
        observation, rewards, dones, infos = step()
        own.append(rewards.copy())
        ended.extend((len(own) - 1, index, infos[index]["terminal_observation"]) for index in np.flatnonzero(dones))
        return observation, rewards, dones, infos

    trainer.env.step_wait = watched
    agent.train = lambda: None
    trainer.iterate()
    trainer.env.close()
    buffer, policy = agent.rollout_buffer, agent.policy
    rewards = np.stack(own)
    for now, index, observation in ended:
        seen = observation if task != "doom" else observation.transpose(2, 0, 1)
        rewards[now, index] += agent.gamma * policy.predict_values(policy.obs_to_tensor(seen)[0]).item()
    assert bool(ended) == (task in ("cheetah", "doom"))
    np.testing.assert_allclose(buffer.rewards, rewards, rtol=1e-4, atol=1e-5)
    assert np.array_equal(trainer.callback.batch.terminated.numpy(), np.zeros_like(rewards, bool))
    advantages, returns = buffer.advantages.copy(), buffer.returns.copy()
    behind = policy.predict_values(policy.obs_to_tensor(agent._last_obs)[0]).detach()
    buffer.compute_returns_and_advantage(behind, agent._last_episode_starts)
    np.testing.assert_allclose(buffer.advantages, advantages, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(buffer.returns, returns, rtol=1e-3, atol=1e-5)
    data = next(buffer.get(None))
    actions = data.actions.long().flatten() if agent.action_space.shape == () else data.actions
    values, chances, _ = policy.evaluate_actions(data.observations, actions)
    torch.testing.assert_close(data.old_values, values.flatten(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(data.old_log_prob, chances, rtol=1e-4, atol=1e-4)
    assert data.old_values.std() > 0.0
