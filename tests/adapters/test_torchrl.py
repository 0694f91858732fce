"""What is particular to the bonus in TorchRL; what every adapter keeps to is in tests/contract/test_adapters.py."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from corridor import Corridor
from gymnasium import spaces
from known import LateBonus, same, shown, snippet
from torchrl.collectors import Collector, MultiSyncCollector
from torchrl.data import Binary, Categorical, Composite, LazyTensorStorage, MultiCategorical, MultiOneHot, OneHot, ReplayBuffer
from torchrl.envs import GymWrapper, SerialEnv, StepCounter, TransformedEnv
from torchrl.envs.libs.gym import GymEnv

from ex2 import UsageError
from ex2.adapters.torchrl import BonusTransform, space_of
from ex2.episodic import Places

ENV = Corridor()


def corridor(**settings):
    return GymWrapper(Corridor(**({"length": 5, "limit": 9} | settings)), categorical_action_encoding=True)


def corridors(count=3, **settings):
    made = SerialEnv(count, lambda: corridor(**settings))
    made.set_seed(0)
    return made


def late(env, weight=2.0, **settings):
    """A transform with a bonus of known answers, unscaled and not centred."""
    bonus = LateBonus(ENV.observation_space, ENV.action_space)
    return BonusTransform(env, bonus, weight, scaled=False, centre="none", gather=1, **settings)


def gathered(steps=60, **settings):
    """A batch of a random agent in three corridors, [3, T]."""
    torch.manual_seed(1)
    return next(iter(Collector(corridors(**settings), None, frames_per_batch=3 * steps, total_frames=3 * steps)))


def test_the_bonus_is_written_beside_the_reward():
    """What was passed stays as it is."""
    data = gathered()
    before = data.clone()
    found = late(corridors())(data)
    assert torch.equal(found["next", "environment_reward"], before["next", "reward"])
    assert torch.equal(found["next", "bonus"], 2.0 * (before["observation"] >= 3))
    assert torch.equal(found["next", "reward"], found["next", "environment_reward"] + found["next", "bonus"])
    assert (data == before).all()


def test_each_transition_is_shown_once_also_where_trajectories_are_split():
    """Padding, which splitting makes, is none."""
    env = corridors()
    transform = late(env)
    collector = Collector(env, None, frames_per_batch=90, total_frames=180, postproc=transform, split_trajs=True)
    found = []
    for data in collector:
        rows = data[data["collector", "mask"]]
        found += list(zip(rows["observation"].flatten().tolist(), rows["next", "observation"].flatten().tolist(), strict=True))
    seen = shown(transform.explorer.bonus)
    assert len(seen) == transform.explorer.steps == 180
    assert sorted((place, after) for place, after, _, _ in seen) == sorted(found)
    for place, after, terminated, _ in seen:
        assert abs(after - place) == 1 or place == after == 0
        assert terminated == (after == 4)
    assert any(terminated for _, _, terminated, _ in seen)
    assert any(truncated for *_, truncated in seen)


class Placed(LateBonus):
    """With a metric, so that what recurs within an episode counts less."""

    def places(self, batch):
        return Places(batch.obs, 0.1, 0)


@pytest.mark.parametrize("mode", ["", "reset_at_each_iter", "split_trajs"])
def test_an_episode_is_counted_as_long_as_it_runs(mode):
    """Over several batches, and no longer where the collector resets; where it splits them, within a batch."""
    env, visits, modes = corridors(length=8, limit=40), Counter(), {mode: True} if mode else {}
    transform = BonusTransform(env, Placed(ENV.observation_space, ENV.action_space), 1.0, scaled=False, centre="none", gather=1)
    torch.manual_seed(1)
    for data in Collector(env, None, frames_per_batch=60, total_frames=1_200, postproc=transform, **modes):
        visits = Counter() if mode == "split_trajs" else visits
        rows = data[data["collector", "mask"]] if mode == "split_trajs" else data.reshape(-1)
        parts = (rows["collector", "traj_ids"], rows["observation"], rows["next", "bonus"])
        for number, place, bonus in zip(*(part.flatten().tolist() for part in parts), strict=True):
            visits[number, place] += 1
            assert bonus == pytest.approx((place >= 3) * visits[number, place] ** -0.5)
    assert max(visits.values()) > 1


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
    assert transform.explorer.steps == 120
    for batch in transform.explorer.bonus.batches:
        gaps = batch.next_obs[:-1, 0, 0] != batch.obs[1:, 0, 0]
        assert (batch.terminated | batch.truncated)[:-1, 0][gaps].all()
        assert gaps.any()


def test_batches_of_single_steps_are_gathered_for_a_fit():
    env = corridors(1)
    transform, found = BonusTransform(env, "histogram", 1.0, gather=50, bins=5), []
    for data in Collector(env, None, frames_per_batch=1, total_frames=200, postproc=transform):
        found.append(data["next", "bonus"].item())
    assert not any(found[:49])
    assert len(set(found[50:])) > 3


def test_data_without_next_observations_is_refused():
    data = gathered()
    with pytest.raises(UsageError, match=r"data has no \('next', 'observation'\).*compact_obs"):
        late(corridors())(data.exclude(("next", "observation")))


def test_metrics_are_those_of_the_shaper():
    transform = BonusTransform(corridors(), "simhash", total_steps=1_000, gather=100)
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
    transform, data = BonusTransform(corridors(), "histogram", 1.0, bins=5, gather=1), gathered()
    transform(data)
    before, broken = transform.state_dict(), data.clone()
    broken[("next", "reward") if key == "reward" else "observation"][1, 7] = torch.inf
    with pytest.raises(UsageError, match="environment 1 at step 7 of"):
        transform(broken)
    assert same(before, transform.state_dict())


def test_specs_become_spaces():
    """One-hot codes are numbered, bounds are kept, several observations are a Dict."""
    lake = GymEnv("FrozenLake-v1")
    transform = BonusTransform(lake, "histogram", 1.0)
    assert transform.explorer.bonus.observation_space.n == 16
    data = lake.rollout(12, break_when_any_done=False)
    transform(data)
    assert transform.explorer.steps == 12
    car = GymEnv("MountainCarContinuous-v0")
    space = BonusTransform(car, "rnd", 1.0).explorer.bonus.observation_space
    assert np.allclose(space.low, [-1.2, -0.07])
    counted = TransformedEnv(car, StepCounter())
    assert BonusTransform(counted, "rnd", 1.0).explorer.bonus.observation_space == space
    assert BonusTransform(counted, "rnd", 1.0, in_keys="observation").explorer.bonus.observation_space == space
    with pytest.raises(UsageError, match=r"step_count.*int64"):
        BonusTransform(counted, "rnd", 1.0, in_keys=["observation", "step_count"])


@pytest.mark.parametrize(
    ("spec", "space"),
    [
        (OneHot(3), spaces.Discrete(3)),
        (Categorical(3), spaces.Discrete(3)),
        (MultiOneHot([2, 3]), spaces.MultiDiscrete([2, 3])),
        (MultiCategorical([2, 3]), spaces.MultiDiscrete([2, 3])),
        (Binary(4), spaces.MultiBinary(4)),
    ],
)
def test_discrete_specs_become_spaces_and_their_values_members(spec, space):
    found, values = space_of(spec, 0, "action")
    assert found == space or found.shape == space.shape == (4,)
    for drawn in values(spec.rand((20,))).numpy():
        assert space.contains(drawn.astype(space.dtype))


def test_an_observation_of_several_parts_is_refused():
    with pytest.raises(UsageError, match=r"The observation 'state' has several parts \(arm, leg\)"):
        space_of(Composite(arm=Binary(2), leg=Binary(2)), 0, "observation 'state'")


def test_refusals_name_their_remedy():
    env = corridors()
    with pytest.raises(UsageError, match=r"no observation 'pixels': pass in_keys=.*observation"):
        BonusTransform(env, in_keys=["pixels"], total_steps=10)
    with pytest.raises(UsageError, match=r"see= is not for this library: .*in_keys="):
        BonusTransform(env, see="observation", total_steps=10)
    with pytest.raises(UsageError, match=r"takes TorchRL's environment, GymEnv\(\.\.\.\), first, not str"):
        BonusTransform("rnd", total_steps=10)
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
    assert names["bonus"].explorer.steps == names["bonus"].explorer.total_steps
    assert names["bonus"].metrics["exploration/std"] > 0
