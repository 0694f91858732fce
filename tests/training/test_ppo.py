"""Our PPO does what Stable-Baselines3's does."""

from __future__ import annotations

import copy

import pytest
import stable_baselines3
from oracle import assert_same_update, pairs, rolled_out, theirs


@pytest.mark.parametrize("task", ["cheetah", "CartPole-v1"])
@pytest.mark.parametrize("extra", [{}, {"ent_coef": 0.01, "clip_range": 0.1, "max_grad_norm": 0.1}])
def test_an_update_is_that_of_stable_baselines3(task, extra):
    settings = {"algo.batch_size": 128, "algo.n_epochs": 4} | {f"algo.{name}": value for name, value in extra.items()}
    settings["policy.standardise"] = "none"
    trainer, rollout, advantages, returns = rolled_out(task, "ppo", **settings)
    model = theirs(stable_baselines3.PPO, trainer, rollout, advantages, returns, batch_size=128, n_epochs=4, **extra)
    before = [mine.detach().clone() for mine, _ in pairs(trainer.policy, model.policy)]
    trainer.algorithm.update(rollout, advantages, returns)
    model.train()
    assert_same_update(trainer.policy, model, before)


def test_an_update_ends_at_its_divergence():
    lengths = []
    for target in (None, 1e-6):
        trainer, rollout, advantages, returns = rolled_out("cheetah", "ppo", **{"algo.target_kl": target})
        before = copy.deepcopy(trainer.policy.actor.state_dict())
        trainer.algorithm.update(rollout, advantages, returns)
        lengths.append(sum((v - before[k]).norm().item() for k, v in trainer.policy.actor.state_dict().items()))
    assert 0.0 < lengths[1] < 0.5 * lengths[0]


def test_minibatches_are_shuffled_by_the_run_s_own_generator():
    found = []
    for _ in range(2):
        trainer, rollout, advantages, returns = rolled_out("cheetah", "ppo")
        trainer.algorithm.update(rollout, advantages, returns)
        found.append(trainer.policy.actor.state_dict())
    assert all((found[0][name] == found[1][name]).all() for name in found[0])
