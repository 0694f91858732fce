"""What is particular to the bonus in Tianshou; what every adapter keeps to is in tests/contract/test_adapters.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from corridor import Corridor
from gymnasium import spaces
from known import LateBonus, same, shown, snippet
from tianshou.algorithm import A2C, DQN, NPG, PPO, QRDQN, SAC
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.qrdqn import QRDQNPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.modelfree.sac import SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, CollectStats, ReplayBuffer, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils import BaseLogger
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

from ex2 import UsageError
from ex2.adapters.tianshou import BonusOffPolicyWrapper, BonusOnPolicyWrapper

pytestmark = pytest.mark.xdist_group("tianshou")  # which compiles for ten seconds in each process
ENV = Corridor()
ON, OFF = (A2C, NPG, PPO), (DQN, QRDQN)


def envs(count=3, **settings):
    made = DummyVectorEnv([lambda: Corridor(**({"length": 5, "limit": 9} | settings))] * count)
    made.seed(0)
    return made


def net(**settings):
    return Net(state_shape=(1,), hidden_sizes=[16], **settings)


def algorithm(kind, **settings):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (which Tianshou draws from)
    known = {"action_space": ENV.action_space, "observation_space": ENV.observation_space}
    optim = AdamOptimizerFactory(lr=1e-2)
    if kind in ON:
        actor, critic = DiscreteActor(preprocess_net=net(), action_shape=2), DiscreteCritic(preprocess_net=net())
        return kind(policy=DiscreteActorPolicy(actor=actor, **known), critic=critic, optim=optim, gamma=0.9, **settings)
    if kind is QRDQN:
        policy = QRDQNPolicy(model=net(action_shape=2, num_atoms=200, softmax=False), eps_training=0.9, **known)
    else:
        policy = DiscreteQLearningPolicy(model=net(action_shape=2), eps_training=0.9, **known)
    return kind(policy=policy, optim=optim, gamma=0.9, **settings)


def late(**settings):
    return LateBonus(ENV.observation_space, ENV.action_space, **settings)


def wrapped(plain, weight=2.0, bonus=None, **settings):
    """With a bonus of known answers, unscaled and not centred."""
    wrapper = BonusOnPolicyWrapper if isinstance(plain, ON) else BonusOffPolicyWrapper
    known = {"scaled": False, "centre": "none"} | settings
    return wrapper(plain, bonus or late(), weight, **known)


def collected(agent, steps=60, buffer=None, **settings):
    """A buffer of an agent's steps in three corridors."""
    buffer = VectorReplayBuffer(300, 3) if buffer is None else buffer  # an empty one is false
    collector = Collector[CollectStats](agent, envs(**settings), buffer)
    collector.reset(reset_buffer=False)
    collector.collect(n_step=steps, random=True)
    return buffer


def train(agent, steps=240, logger=None, test_envs=None, buffer=None):
    on = isinstance(agent, (*ON, BonusOnPolicyWrapper))
    buffer = VectorReplayBuffer(300, 3) if buffer is None else buffer  # an empty one is false
    collector = Collector[CollectStats](agent, envs(), buffer, exploration_noise=True)
    test = test_envs and Collector[CollectStats](agent, test_envs)
    common = {
        "training_collector": collector, "test_collector": test, "max_epochs": 1, "epoch_num_steps": steps, "batch_size": 32,
        "test_step_num_episodes": 4, "verbose": False, "show_progress": False, "logger": logger,
    }  # fmt: skip
    np.random.seed(1)  # noqa: NPY002 (which Tianshou draws from)
    torch.manual_seed(1)
    if on:
        own = {"collection_step_num_env_steps": 60, "update_step_num_repetitions": 2}
        return agent.run_training(OnPolicyTrainerParams(**common, **own))
    own = {"collection_step_num_env_steps": 12, "update_step_num_gradient_steps_per_sample": 0.25}
    return agent.run_training(OffPolicyTrainerParams(**common, **own))


def update(agent, buffer, seed=2):
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (which Tianshou draws from)
    with policy_within_training_step(agent.policy):
        if isinstance(agent, (*ON, BonusOnPolicyWrapper)):
            return agent.update(buffer=buffer, batch_size=32, repeat=2)
        return agent.update(buffer=buffer, sample_size=32)


@pytest.mark.parametrize("kind", OFF)
def test_the_bonus_reaches_targets_of_several_steps(kind):
    """All bonuses within the horizon count, and none beyond the end of an episode; the buffer keeps its rewards."""
    plain = algorithm(kind, n_step_return_horizon=3)
    buffer = collected(plain)
    kept = buffer.rew.copy()
    batch, indices = buffer.sample(48)
    without = plain._preprocess_batch(Batch(batch, copy=True), buffer, indices)
    agent = wrapped(plain, gather=30)
    agent.look(buffer)
    found = agent._preprocess_batch(Batch(batch, copy=True), buffer, indices)
    expected, where, alive = np.zeros(48), indices, np.ones(48)
    for step in range(3):
        expected += 0.9**step * alive * 2.0 * (buffer.obs[where][:, 0] >= 3)
        alive = alive * (buffer.next(where) != where)
        where = buffer.next(where)
    difference = (found.returns - without.returns).numpy().reshape(48, -1)
    assert expected.any()
    assert np.allclose(difference, expected[:, None], atol=1e-5)
    assert np.array_equal(buffer.rew, kept)


@pytest.mark.parametrize("kind", [PPO, DQN])
@pytest.mark.parametrize("kept", [True, False])
def test_each_transition_is_shown_once_and_none_is_made_up(kind, kept):
    """Also where the buffer runs over, and where it keeps no next observations: what it then lacks is left out."""
    agent = wrapped(algorithm(kind), **({"gather": 30} if kind is DQN else {"gather": 1}))
    train(agent, 240, buffer=VectorReplayBuffer(150, 3, ignore_obs_next=not kept))
    found = shown(agent.explorer.bonus)
    assert agent.explorer.steps == sum(batch.mask.numel() for batch in agent.explorer.bonus.batches) >= len(found)
    if kept:
        assert len(found) == 240 if kind is PPO else 210 <= len(found) <= 240  # what is not yet enough for a fit waits
        assert any(terminated for _, _, terminated, _ in found)
    for place, after, terminated, _ in found:
        assert abs(after - place) == 1 or place == after == 0
        assert terminated == (after == 4)
    rows = sum(batch.mask.numel() for batch in agent.explorer.bonus.batches)
    assert rows == len(found) if kept else rows > len(found)


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_schedules_of_learning_rates_go_on(kind):
    """With a weight of 0 as without the wrapper, bit for bit."""

    def trained(wrap):
        agent = algorithm(kind)
        agent.lr_schedulers += [torch.optim.lr_scheduler.LinearLR(agent.optim._optim)]
        train(wrap(agent))
        return agent.state_dict()

    assert same(trained(lambda agent: agent), trained(lambda agent: wrapped(agent, 0.0, "histogram", bins=5)))


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_a_second_trainer_is_a_second_training(kind):
    """The weight falls in each; where the length was said, over all of them."""
    settings = {"scaled": True} | ({"gather": 12} if kind is DQN else {"gather": 1})
    agent, whole = (wrapped(algorithm(kind), "auto", "simhash", **settings, **said) for said in ({}, {"total_steps": 480}))
    for trained, expected in ((agent, [1.0, 1.0]), (whole, [0.5, 1.0])):
        for progress in expected:
            train(trained, 240)
            assert trained.explorer.progress == pytest.approx(progress)


def test_a_state_without_a_bonus_is_refused():
    agent = algorithm(PPO)
    with pytest.raises(UsageError, match="load it before you wrap"):
        wrapped(agent).load_state_dict(algorithm(PPO).state_dict())


def test_old_transitions_lose_their_novelty():
    """The bonus of a sample is that of today."""
    agent = wrapped(algorithm(DQN), 1.0, "histogram", gather=30, bins=5)
    buffer = collected(agent)
    agent.look(buffer)
    indices = buffer.sample_indices(0)
    before = agent._preprocess_batch(buffer[indices], buffer, indices).rew
    collected(agent, 60, buffer)
    agent.look(buffer)
    after = agent._preprocess_batch(buffer[indices], buffer, indices).rew
    assert (after <= before).all()
    assert (after < before).mean() > 0.9


class Kept(BaseLogger):
    """Keeps what is written."""

    def __init__(self):
        super().__init__(update_interval=1)
        self.rows = []

    def write(self, step_type, step, data):
        self.rows.append(data)

    def prepare_dict_for_logging(self, log_data):
        return self._flat(log_data)

    def _flat(self, data, path=()):
        found = {}
        for key, value in data.items():
            found |= self._flat(value, (*path, key)) if isinstance(value, dict) else {"/".join((*path, key)): value}
        return found

    def finalize(self):
        pass

    def save_data(self, *args, **keywords):
        pass

    def restore_data(self):
        return 0, 0, 0

    @staticmethod
    def restore_logged_data(log_path):
        return {}


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_metrics_are_those_of_the_shaper(kind):
    logger = Kept()
    agent = wrapped(algorithm(kind), "auto", "simhash", scaled=True, gather=100)
    train(agent, 600, logger)
    expected = {
        "exploration/mean",
        "exploration/std",
        "exploration/weight",
        "exploration/scale",
        "exploration/reward_scale",
        "exploration/seconds",
    }
    assert expected <= set(agent.explorer.metrics)
    logged = set().union(*logger.rows)
    assert {f"smoothed_loss/{name}" for name in expected} <= logged
    assert any(name.endswith("loss") for name in logged)
    assert agent.explorer.total_steps == 600


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_bad_observations_are_named_before_anything_is_changed(kind):
    settings = {"gather": 20} if kind is DQN else {"gather": 1}
    for key, sentence in (
        ("obs", "environment 0 at step 5 of the batch holds inf"),
        ("rew", "reward of environment 0 at step 5"),
    ):
        agent = wrapped(algorithm(kind), 1.0, "histogram", bins=5, **settings)
        buffer = collected(agent)
        getattr(buffer, key)[5] = np.inf
        before = {name: value for name, value in agent.state_dict().items()}
        kept = torch.nn.utils.parameters_to_vector(agent.policy.parameters()).clone()
        with pytest.raises(UsageError, match=sentence):
            update(agent, buffer)
        assert torch.equal(torch.nn.utils.parameters_to_vector(agent.policy.parameters()), kept)
        assert same(before["bonus"], agent.state_dict()["bonus"])


def test_refusals_name_their_remedy():
    with pytest.raises(
        UsageError, match=r"off-policy algorithm, such as DQN\(policy=\.\.\.\), not for DiscreteQLearningPolicy"
    ):
        BonusOffPolicyWrapper(algorithm(DQN).policy)
    with pytest.raises(UsageError, match="The algorithm has a bonus already"):
        BonusOffPolicyWrapper(BonusOffPolicyWrapper(algorithm(DQN), "rnd"), "rnd")
    with pytest.raises(UsageError, match="use BonusOffPolicyWrapper"):
        BonusOnPolicyWrapper(algorithm(DQN))
    with pytest.raises(UsageError, match="use BonusOnPolicyWrapper"):
        BonusOffPolicyWrapper(algorithm(PPO))
    blind = algorithm(DQN)
    blind.policy.observation_space = None
    with pytest.raises(UsageError, match="pass observation_space="):
        BonusOffPolicyWrapper(blind)
    assert BonusOffPolicyWrapper(blind, observation_space=ENV.observation_space).explorer.bonus.observation_space
    agent = BonusOnPolicyWrapper(algorithm(PPO))
    buffer = collected(agent)
    with pytest.raises(UsageError, match="pass total_steps="):
        update(agent, buffer)
    with pytest.raises(UsageError, match=r"see= is not for this library: .*entries="):
        BonusOnPolicyWrapper(algorithm(PPO), see="place")
    with pytest.raises(UsageError, match="gather=0 must be"):
        BonusOffPolicyWrapper(algorithm(DQN), gather=0)
    with pytest.raises(UsageError, match="did you mean 'median'"):
        BonusOnPolicyWrapper(algorithm(PPO), centre="midian")


def test_continuous_actions_are_those_that_the_environment_saw():
    """SAC's are stretched from [-1, 1] to the space's; its targets have the bonus in them."""
    box, reach = spaces.Box(0.0, 9.0, (1,), np.float32), spaces.Box(-5.0, 5.0, (1,), np.float32)

    class Slide(Corridor):
        def __init__(self):
            super().__init__(length=9, limit=20)
            self.action_space, self.seen = reach, []

        def step(self, action):
            self.seen.append(float(action[0]))
            return super().step(int(action[0] > 0))

    slide = Slide()
    torch.manual_seed(0)
    shape = {"state_shape": (1,), "hidden_sizes": [16]}
    actor = ContinuousActorProbabilistic(preprocess_net=Net(**shape), action_shape=(1,), unbounded=True, conditioned_sigma=True)
    critic = ContinuousCritic(preprocess_net=Net(**shape, action_shape=(1,), concat=True))
    policy = SACPolicy(actor=actor, action_space=reach, observation_space=box)
    optim = AdamOptimizerFactory(lr=1e-3)
    plain = SAC(policy=policy, policy_optim=optim, critic=critic, critic_optim=optim, critic2=None)
    agent = BonusOffPolicyWrapper(plain, LateBonus(box, reach), 1.0, gather=20, scaled=False)
    buffer = ReplayBuffer(100)
    collector = Collector[CollectStats](agent, slide, buffer)
    collector.reset()
    collector.collect(n_step=60)
    agent.look(buffer)
    assert np.allclose(torch.cat([batch.action.flatten() for batch in agent.explorer.bonus.batches]), slide.seen)
    with policy_within_training_step(policy):
        assert np.isfinite(agent.update(buffer, 32).get_loss_stats_dict()["actor_loss"])


def test_the_page_runs():
    names = {}
    exec(snippet("tianshou.md"), names)
    assert names["algorithm"].explorer.steps == names["algorithm"].explorer.total_steps
