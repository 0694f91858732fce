"""The bonus in RLlib: it reaches the advantages, sees true transitions of all runners, and stays out of what is reported."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import ray
import torch
from corridor import Corridor
from known import LateBonus, discounted_bonuses, same, shown, snippet, steady
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.learner import GeneralAdvantageEstimation
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.evaluation.postprocessing import Postprocessing

from ex2 import UsageError
from ex2.adapters.rllib import BonusConnector, with_bonus

pytestmark = pytest.mark.xdist_group("ray")  # one session, in one process
SPACES = Corridor(length=5).observation_space, Corridor().action_space


class Short(Corridor):
    """As RLlib makes environments; rewards are whole numbers, as many environments give them."""

    def __init__(self, config=None):
        super().__init__(**({"length": 5, "limit": 9} | dict(config or {})))

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, int(reward), *rest


@pytest.fixture(scope="module")
def session():
    """One for all: Ray takes seconds to start."""
    paths = {"PYTHONPATH": str(Path(__file__).parent)}
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": paths})
    yield
    ray.shutdown()


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


def late():
    return LateBonus(*SPACES)


def learner(algorithm):
    return algorithm.learner_group._learner


def sampled(algorithm, random_actions=True):
    """An agent's episodes, as a learner gets them."""
    return algorithm.env_runner_group.local_env_runner.sample(num_timesteps=120, random_actions=random_actions)


def batch_of(algorithm, episodes):
    """What the pipeline of an algorithm's learner makes of episodes, which it changes."""
    one = learner(algorithm)
    made = one._learner_connector(rl_module=one.module, batch={}, episodes=episodes, shared_data={}, metrics=one.metrics)
    return {name: value.detach().numpy() for name, value in made["default_policy"].items() if hasattr(value, "detach")}


@pytest.fixture(scope="module")
def pair(session):
    """A PPO without a bonus and one with; the same seed, so the same networks."""
    known = {"scaled": False, "centre": "none"}
    made = [configured().build_algo(), with_bonus(configured(), late(), 2.0, **known).build_algo()]
    yield made
    for algorithm in made:
        algorithm.stop()


@pytest.mark.slow
def test_1_the_bonus_reaches_the_advantages(pair):
    """A bonus late in an episode changes the advantage of each step before it by exactly the discounted amount."""
    episodes = sampled(pair[0])
    without, found = (batch_of(algorithm, copy.deepcopy(episodes)) for algorithm in pair)
    bonuses = 2.0 * (without[Columns.OBS][:, 0] >= 3) * without[Columns.LOSS_MASK]
    ends = without[Columns.TERMINATEDS] | without[Columns.TRUNCATEDS]
    assert np.allclose(found[Columns.REWARDS] - without[Columns.REWARDS], bonuses)
    assert bonuses.any()
    expected = discounted_bonuses(bonuses, ends, 0.9 * 0.8)
    difference = found[Postprocessing.VALUE_TARGETS] - without[Postprocessing.VALUE_TARGETS]
    real = without[Columns.LOSS_MASK]
    assert np.allclose(difference[real], expected[real], atol=1e-5)
    assert (expected[real & (bonuses == 0)] > 0).any()


@pytest.mark.slow
def test_3_terminal_and_truncated_ends_bootstrap_as_they_should(pair):
    """Behind a terminal end there is nothing, behind a time limit or a cut the value of the last observation."""
    samples = (sampled(pair[0]) for _ in range(50))  # an agent may go a while without either
    episodes = next(some for some in samples if any(e.is_terminated for e in some) and any(e.is_truncated for e in some))
    one = learner(pair[1])
    pieces = one._learner_connector.connectors
    estimation = next(piece for piece in pieces if isinstance(piece, GeneralAdvantageEstimation))
    estimation.lambda_ = 0.0
    try:
        found = batch_of(pair[1], episodes)
    finally:
        estimation.lambda_ = 0.8
    assert found[Columns.TERMINATEDS].any()
    assert found[Columns.TRUNCATEDS].any()
    with torch.no_grad():
        values = one.module["default_policy"].compute_values({Columns.OBS: torch.as_tensor(found[Columns.OBS])}).numpy()
    real = found[Columns.LOSS_MASK][:-1]
    gone = found[Columns.TERMINATEDS][:-1]
    expected = found[Columns.REWARDS][:-1] + 0.9 * np.where(gone, 0.0, values[1:])
    assert np.allclose(found[Postprocessing.VALUE_TARGETS][:-1][real], expected[real], atol=1e-5)


@pytest.mark.slow
def test_2_each_transition_is_shown_once_and_none_is_made_up(pair):
    """PPO's artificial last steps are not shown, and what a runner in this process holds keeps its rewards."""
    bonus = learner(pair[1]).connector.options["bonus"]
    bonus.batches.clear()
    episodes = sampled(pair[0])
    own = [episode.get_rewards().copy() for episode in episodes]
    batch_of(pair[1], list(episodes))
    seen = shown(bonus)
    assert len(seen) == sum(map(len, own))
    for place, after, terminated, _ in seen:
        assert abs(after - place) == 1 or place == after == 0
        assert terminated == (after == 4)
    assert sum(terminated for _, _, terminated, _ in seen) == sum(episode.is_terminated for episode in episodes)
    for batch in bonus.batches:
        gaps = batch.next_obs[:-1, 0, 0] != batch.obs[1:, 0, 0]
        assert (batch.terminated | batch.truncated)[:-1, 0][gaps].all()
    assert all(np.array_equal(episode.get_rewards()[:-1], kept) for episode, kept in zip(episodes, own, strict=True))


def test_a_bad_observation_is_named_before_anything_is_changed():
    connector = BonusConnector(0.9, False, {"bonus": "histogram", "weight": 1.0, "bins": 5})

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


def trained(config, iterations=3):
    algorithm = config.build_algo()
    results = [algorithm.train() for _ in range(iterations)]
    state = learner(algorithm).module.get_state()
    algorithm.stop()
    return state["default_policy"], results


@pytest.mark.slow
def test_weight_0_is_the_run_without(session):
    """Bit for bit, with a runner in this process; and reported returns are the environment's with any weight."""
    plain, _ = trained(configured())
    with_0, results = trained(with_bonus(configured(), "histogram", 0.0, bins=5))
    assert plain.keys() == with_0.keys()
    assert all(np.array_equal(plain[name], with_0[name]) for name in plain)
    expected = {
        "exploration/mean",
        "exploration/std",
        "exploration/weight",
        "exploration/scale",
        "exploration/reward_scale",
        "exploration/seconds",
    }
    assert expected <= set(results[-1]["learners"]["default_policy"])
    heavy, results = trained(with_bonus(configured(), "histogram", 1_000.0, bins=5), 4)
    assert any(not np.array_equal(plain[name], heavy[name]) for name in plain)
    for result in results:
        assert 0.0 <= result["env_runners"]["episode_return_min"] <= result["env_runners"]["episode_return_max"] <= 1.0


@pytest.mark.slow
def test_two_runners_and_evaluation_and_a_checkpoint(tmp_path, pair):
    """One bonus sees the steps of both; saved, loaded and gone on with is never having stopped."""
    config = configured(runners=2, use_kl_loss=False).evaluation(
        evaluation_interval=1, evaluation_duration=4, evaluation_num_env_runners=0
    )
    algorithm = with_bonus(config, "kernel-exemplar", total_steps=1_000).build_algo()
    for _ in range(2):
        result = algorithm.train()
    assert learner(algorithm).connector.shaper.seen == result["env_runners"]["num_env_steps_sampled_lifetime"] >= 240
    assert 0.0 <= result["evaluation"]["env_runners"]["episode_return_mean"] <= 1.0
    path = algorithm.save_to_path(tmp_path / "checkpoint")
    episodes, states = sampled(pair[0], random_actions=False), []
    for load in (False, True):
        if load:
            algorithm.stop()
            algorithm = Algorithm.from_checkpoint(path)
        one, sampled_steps = learner(algorithm), {"num_env_steps_sampled_lifetime": 480}
        one.update(episodes=copy.deepcopy(episodes), timesteps=sampled_steps, num_epochs=2)
        metrics = steady(one.connector.shaper.metrics)
        states.append((one.connector.get_state(), metrics, one.module.get_state()["default_policy"]))
    assert same(states[0][:2], states[1][:2])
    assert states[0][1]["exploration/std"] > 0
    assert all(np.array_equal(states[0][2][name], states[1][2][name]) for name in states[0][2])
    seen = learner(algorithm).connector.shaper.seen
    algorithm.train()
    assert learner(algorithm).connector.shaper.seen > seen
    algorithm.stop()


def test_refusals_name_their_remedy():
    with pytest.raises(UsageError, match=r"DQNConfig .* takes a PPOConfig"):
        with_bonus(DQNConfig())
    with pytest.raises(UsageError, match="pass total_steps="):
        with_bonus(configured())
    with pytest.raises(UsageError, match="takes one agent"):
        with_bonus(configured().multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda *args, **keywords: "a"), weight=1.0)
    several = with_bonus(configured(), weight=1.0).learners(num_learners=2)
    with pytest.raises(UsageError, match="num_learners is 2"):
        several.learner_class(config=several).build()


@pytest.mark.slow
def test_the_page_runs(session):
    names = {}
    exec(snippet("rllib.md"), names)
    assert learner(names["algorithm"]).connector.shaper.seen == 2_000
    names["algorithm"].stop()
