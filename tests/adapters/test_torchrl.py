"""The bonus in TorchRL: it reaches the advantages, sees true transitions, and leaves the environment's reward beside them."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from corridor import Corridor
from known import LateBonus, discounted_bonuses, same, shown, snippet, steady
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector, MultiSyncCollector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import GymWrapper, SerialEnv, StepCounter, TransformedEnv
from torchrl.envs.libs.gym import GymEnv
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from ex2 import UsageError
from ex2.adapters.torchrl import BonusTransform

ENV = Corridor()


def corridor(**settings):
    return GymWrapper(Corridor(**({"length": 5, "limit": 9} | settings)), categorical_action_encoding=True)


def corridors(count=3, **settings):
    made = SerialEnv(count, lambda: corridor(**settings))
    made.set_seed(0)
    return made


def actor_and_critic():
    torch.manual_seed(0)
    scores = TensorDictModule(
        nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2)), in_keys=["observation"], out_keys=["logits"]
    )
    actor = ProbabilisticActor(scores, in_keys=["logits"], distribution_class=Categorical, return_log_prob=True)
    return actor, ValueOperator(nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)), in_keys=["observation"])


def late(env, weight=2.0, **settings):
    """A transform with a bonus of known answers, unscaled and not centred."""
    bonus = LateBonus(ENV.observation_space, ENV.action_space)
    return BonusTransform(env, bonus, weight, scaled=False, centre="none", **settings)


def gathered(steps=60, **settings):
    """A batch of a random agent in three corridors, [3, T]."""
    torch.manual_seed(1)
    return next(iter(Collector(corridors(**settings), None, frames_per_batch=3 * steps, total_frames=3 * steps)))


def train(postproc=None, frames=360, env=None):
    """A small PPO; returns what it has learned and the rewards of its batches."""
    env = corridors() if env is None else env
    actor, critic = actor_and_critic()
    loss, advantage = ClipPPOLoss(actor, critic), GAE(gamma=0.9, lmbda=0.8, value_network=critic)
    optim = torch.optim.Adam(loss.parameters(), 1e-2)
    collector = Collector(env, actor, frames_per_batch=90, total_frames=frames, postproc=postproc)
    torch.manual_seed(2)
    rewards = []
    for data in collector:
        rewards.append(data["next", "reward"])
        for _ in range(2):
            advantage(data)
            terms = loss(data.reshape(-1))
            optim.zero_grad()
            sum(value for name, value in terms.items() if name.startswith("loss_")).backward()
            optim.step()
    return loss.state_dict(), rewards


def test_1_the_bonus_reaches_the_advantages():
    """A bonus late in an episode changes the advantage of each step before it by exactly the discounted amount."""
    data, (_, critic) = gathered(), actor_and_critic()
    advantage = GAE(gamma=0.9, lmbda=0.8, value_network=critic)
    found, without = late(corridors())(data), data.clone()
    with torch.no_grad():
        advantage(found), advantage(without)
    difference = (found["advantage"] - without["advantage"])[..., 0].numpy()
    bonuses, ends = 2.0 * (data["observation"][..., 0] >= 3).numpy(), data["next", "done"][..., 0].numpy()
    assert bonuses.any()
    assert ends.sum() > 6
    for env in range(3):
        expected = discounted_bonuses(bonuses[env], ends[env], 0.9 * 0.8)
        assert np.allclose(difference[env], expected, atol=1e-5)
        assert (expected[bonuses[env] == 0] > 0).any()


def test_3_terminal_and_truncated_ends_bootstrap_as_they_should():
    """Behind a terminal end there is nothing, behind a time limit the value of the last observation."""
    data, (_, critic) = gathered(), actor_and_critic()
    found = late(corridors())(data)
    with torch.no_grad():
        GAE(gamma=0.9, lmbda=0.0, value_network=critic)(found)
        after = critic.module(data["next", "observation"])
    bonuses = 2.0 * (data["observation"] >= 3)
    ended = data["next", "terminated"]
    expected = data["next", "reward"] + bonuses + 0.9 * torch.where(ended, 0.0, after)
    assert ended.any()
    assert data["next", "truncated"].any()
    assert torch.allclose(found["value_target"], expected, atol=1e-5)


def test_the_bonus_is_written_beside_the_reward():
    """What was passed stays as it is."""
    data = gathered()
    before = data.clone()
    found = late(corridors())(data)
    assert torch.equal(found["next", "environment_reward"], before["next", "reward"])
    assert torch.equal(found["next", "bonus"], 2.0 * (before["observation"] >= 3))
    assert torch.equal(found["next", "reward"], found["next", "environment_reward"] + found["next", "bonus"])
    assert (data == before).all()


@pytest.mark.parametrize("split", [False, True])
def test_2_each_transition_is_shown_once_and_none_is_made_up(split):
    """Padding, which splitting makes, is none."""
    env = corridors()
    transform = late(env)
    collector = Collector(env, None, frames_per_batch=90, total_frames=180, postproc=transform, split_trajs=split)
    found = []
    for data in collector:
        rows = data if not split else data[data["collector", "mask"]]
        found += list(zip(rows["observation"].flatten().tolist(), rows["next", "observation"].flatten().tolist(), strict=True))
    seen = shown(transform.shaper.bonus)
    assert len(seen) == transform.shaper.seen == 180
    assert sorted((place, after) for place, after, _, _ in seen) == sorted(found)
    for place, after, terminated, _ in seen:
        assert abs(after - place) == 1 or place == after == 0
        assert terminated == (after == 4)
    assert any(terminated for _, _, terminated, _ in seen)
    assert any(truncated for *_, truncated in seen)


@pytest.mark.slow
def test_collectors_in_other_processes_are_seen_by_one_bonus():
    """Their stretches lie one behind the other, and do not count as one."""
    transform = late(corridor())
    collector = MultiSyncCollector(
        [corridor, corridor], None, frames_per_batch=60, total_frames=120, postproc=transform, cat_results=0
    )
    try:
        for data in collector:
            assert data["next", "bonus"].shape == (60, 1)
    finally:
        collector.shutdown()
    assert transform.shaper.seen == 120
    for batch in transform.shaper.bonus.batches:
        gaps = batch.next_obs[:-1, 0, 0] != batch.obs[1:, 0, 0]
        assert (batch.terminated | batch.truncated)[:-1, 0][gaps].all()
        assert gaps.any()


def test_evaluation_never_sees_a_bonus():
    env = corridors()
    transform = late(env, 1_000.0)
    train(transform, env=env)
    rollout = env.rollout(20, break_when_any_done=False)
    assert set(rollout["next", "reward"].unique().tolist()) <= {0.0, 1.0}
    assert "bonus" not in rollout["next"].keys()  # noqa: SIM118


def test_weight_0_is_the_run_without():
    env = corridors()
    plain, with_0 = train(), train(BonusTransform(env, "histogram", 0.0, bins=5), env=env)
    assert same(dict(plain[0]), dict(with_0[0]))
    other = train(BonusTransform(corridors(), "histogram", 1.0, bins=5))
    assert not same(dict(plain[0]), dict(other[0]))


def test_save_load_go_on():
    """As if it had never stopped."""
    first, second = gathered(), gathered(40)
    made = [BonusTransform(corridors(), gamma=0.9, total_steps=400) for _ in range(2)]
    made[0](first)
    file = io.BytesIO()
    torch.save(made[0].state_dict(), file)
    file.seek(0)
    made[1].load_state_dict(torch.load(file, weights_only=False))
    found = [transform(second) for transform in made]
    assert torch.equal(found[0]["next", "reward"], found[1]["next", "reward"])
    assert found[0]["next", "bonus"].any()
    assert steady(made[0].metrics) == steady(made[1].metrics)
    assert same(made[0].state_dict(), made[1].state_dict())
    assert made[1].shaper.seen == 300


def test_metrics_are_those_of_the_shaper():
    transform = BonusTransform(corridors(), "simhash", total_steps=1_000)
    transform(gathered())
    assert {
        "exploration/mean",
        "exploration/std",
        "exploration/weight",
        "exploration/scale",
        "exploration/reward_scale",
    } <= set(transform.metrics)


@pytest.mark.parametrize("key", ["observation", "reward"])
def test_bad_observations_are_named_before_anything_is_changed(key):
    transform, data = BonusTransform(corridors(), "histogram", 1.0, bins=5), gathered()
    transform(data)
    before, broken = transform.state_dict(), data.clone()
    broken[("next", "reward") if key == "reward" else "observation"][1, 7] = torch.inf
    with pytest.raises(UsageError, match="environment 1 at step 7 of the batch"):
        transform(broken)
    assert same(before, transform.state_dict())


def test_specs_become_spaces():
    """One-hot codes are numbered, bounds are kept, several observations are a Dict."""
    lake = GymEnv("FrozenLake-v1")
    transform = BonusTransform(lake, "histogram", 1.0)
    assert transform.shaper.bonus.observation_space.n == 16
    data = lake.rollout(12, break_when_any_done=False)
    transform(data)
    assert transform.shaper.seen == 12
    car = GymEnv("MountainCarContinuous-v0")
    space = BonusTransform(car, "rnd", 1.0).shaper.bonus.observation_space
    assert np.allclose(space.low, [-1.2, -0.07])
    counted = TransformedEnv(car, StepCounter())
    assert BonusTransform(counted, "rnd", 1.0).shaper.bonus.observation_space == space
    with pytest.raises(UsageError, match=r"step_count.*int64"):
        BonusTransform(counted, "rnd", 1.0, in_keys=["observation", "step_count"])


def test_refusals_name_their_remedy():
    env = corridors()
    with pytest.raises(UsageError, match=r"no observation 'pixels': pass in_keys=.*observation"):
        BonusTransform(env, in_keys=["pixels"], total_steps=10)
    with pytest.raises(UsageError, match="pass total_steps="):
        BonusTransform(env)
    with pytest.raises(UsageError, match="postproc"):
        TransformedEnv(corridor(), late(corridor())).rollout(3)
    buffer = ReplayBuffer(storage=LazyTensorStorage(200))
    buffer.append_transform(late(env))
    buffer.extend(gathered().reshape(-1))
    with pytest.raises(UsageError, match="as in a replay buffer"):
        buffer.sample(8)


def test_the_page_runs():
    names = {}
    exec(snippet("torchrl.md"), names)
    assert names["bonus"].shaper.seen == names["bonus"].shaper.total_steps
    assert names["bonus"].metrics["exploration/std"] > 0
