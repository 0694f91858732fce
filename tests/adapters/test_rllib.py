"""What is particular to the bonus in RLlib; what every adapter keeps to is in tests/contract/test_adapters.py."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from corridor import Corridor, Short
from harness_rllib import learner, session
from known import same, snippet, steady
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from ex2 import UsageError
from ex2.adapters.rllib import BonusConnector, with_bonus

pytestmark = pytest.mark.xdist_group("ray")  # one session, in one process
METRICS = ("mean", "std", "weight", "scale", "reward_scale", "seconds")
SPACES = Corridor(length=5).observation_space, Corridor().action_space


def configured(runners=0, **settings):
    values = {"train_batch_size": 120, "minibatch_size": 60, "num_epochs": 2, "gamma": 0.9, "lambda_": 0.8} | settings
    return (
        PPOConfig()
        .environment(Short)
        .env_runners(num_env_runners=runners)
        .training(**values)
        .rl_module(model_config={"fcnet_hiddens": [16]})
        .debugging(seed=0)
    )


def test_a_bad_observation_is_named_before_anything_is_changed():
    connector = BonusConnector(0.9, False, {"bonus": "histogram", "weight": 1.0, "bins": 5, "gather": 1})

    def episodes(bad_place=1.0, bad_reward=0.0):
        places = np.array([[0.0], [1.0], [bad_place], [1.0]], np.float32)
        whole = {"observations": list(places), "actions": [1, 1, 0], "rewards": [0.0, bad_reward, 0.0], "truncated": True}
        made = SingleAgentEpisode(**whole, observation_space=SPACES[0], action_space=SPACES[1], len_lookback_buffer=0)
        return [made.to_numpy()]

    connector(batch={}, episodes=episodes())
    before = connector.get_state()
    for bad, sentence in (
        ({"bad_place": np.nan}, "at step 2 of the batch holds nan"),
        ({"bad_reward": np.inf}, "at step 1 of"),
    ):
        broken = episodes(**bad)
        kept = broken[0].get_rewards().copy()
        with pytest.raises(UsageError, match=sentence):
            connector(batch={}, episodes=broken)
        assert same(before, connector.get_state())
        assert np.array_equal(broken[0].get_rewards(), kept)


@pytest.mark.slow
def test_two_runners_and_evaluation_and_a_checkpoint(tmp_path):
    """One bonus sees the steps of both; saved, loaded and gone on with is never having stopped."""
    session()
    config = configured(runners=2, use_kl_loss=False).evaluation(
        evaluation_interval=1, evaluation_duration=4, evaluation_num_env_runners=0
    )
    algorithm = with_bonus(config, "kernel-exemplar", total_steps=1_000, gather=100).build_algo()
    for _ in range(2):
        result = algorithm.train()
    assert learner(algorithm).connector.explorer.steps == result["env_runners"]["num_env_steps_sampled_lifetime"] >= 240
    assert 0.0 <= result["evaluation"]["env_runners"]["episode_return_mean"] <= 1.0
    assert {f"exploration/{name}" for name in METRICS} <= set(result["learners"]["default_policy"])
    path = algorithm.save_to_path(tmp_path / "checkpoint")
    alone, states = configured().build_algo(), []
    episodes = alone.env_runner_group.local_env_runner.sample(num_timesteps=120)
    alone.stop()
    for load in (False, True):
        if load:
            algorithm.stop()
            algorithm = Algorithm.from_checkpoint(path)
        one, sampled_steps = learner(algorithm), {"num_env_steps_sampled_lifetime": 480}
        one.update(episodes=copy.deepcopy(episodes), timesteps=sampled_steps, num_epochs=2)
        metrics = steady(one.connector.explorer.metrics)
        state = one.connector.get_state()
        state["explorer"]["metrics"] = metrics
        states.append((state, metrics, one.module.get_state()["default_policy"]))
    assert same(states[0][:2], states[1][:2])
    assert states[0][1]["exploration/std"] > 0
    assert all(np.array_equal(states[0][2][name], states[1][2][name]) for name in states[0][2])
    seen = learner(algorithm).connector.explorer.steps
    algorithm.train()
    assert learner(algorithm).connector.explorer.steps > seen
    algorithm.stop()


def test_refusals_name_their_remedy():
    with pytest.raises(UsageError, match=r"DQNConfig .* takes a PPOConfig"):
        with_bonus(DQNConfig())
    with pytest.raises(UsageError, match="pass total_steps="):
        with_bonus(configured())
    with pytest.raises(UsageError, match="takes one agent"):
        with_bonus(configured().multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda *args, **keywords: "a"), weight=1.0)
    with pytest.raises(UsageError, match=r"takes a configuration, PPOConfig\(\), not PPOConfig"):
        with_bonus(PPOConfig, weight=1.0)
    with pytest.raises(UsageError, match="no setting, here or of the bonus 'rnd', 'lr'"):
        with_bonus(PPOConfig(), "rnd", total_steps=10, lr=0.1)
    with pytest.raises(UsageError, match="There is no setting, here or of the bonus 'rnd', 'see'"):
        with_bonus(PPOConfig(), "rnd", total_steps=10, see="place")
    with pytest.raises(UsageError, match="gather=0 must be"):
        with_bonus(PPOConfig(), "rnd", total_steps=10, gather=0)
    with pytest.raises(UsageError, match="has a bonus already"):
        with_bonus(with_bonus(configured(), weight=1.0), "rnd", weight=1.0)
    with pytest.raises(UsageError, match="num_learners is 2"):
        with_bonus(configured().learners(num_learners=2), weight=1.0)
    several = with_bonus(configured(), weight=1.0).learners(num_learners=2)
    with pytest.raises(UsageError, match="num_learners is 2"):
        several.learner_class(config=several).build()


@pytest.mark.slow
def test_the_page_runs():
    session()
    names = {}
    exec(snippet("rllib.md"), names)
    assert learner(names["algorithm"]).connector.explorer.steps == 2_000
    names["algorithm"].stop()
