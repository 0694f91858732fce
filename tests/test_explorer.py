"""One object for loops of one's own: when it fits, what is heard in between, what it refuses."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList
from walk import Known, Walk, places

from conftest import BUTTONS, VECTOR
from ex2 import Explorer, UsageError, Weight, make_bonus
from ex2.adapters.gymnasium import BonusVectorWrapper, BonusWrapper
from ex2.batch import Batch

FINAL = {"final_obs": np.zeros((1, 2), np.float32)}


def explorer(bonus="histogram", **settings):
    return Explorer(VECTOR, BUTTONS, bonus, **settings)


def steps(told, count, rewards=0.0, envs=2, seed=0, terminated=False):
    random = np.random.default_rng(seed)
    for _ in range(count):
        before, after = random.uniform(-1, 1, (2, envs, 2)).astype(np.float32)
        ends = np.full(envs, terminated)
        told.step(before, np.zeros(envs, int), after, np.full(envs, rewards), ends, np.zeros(envs, bool))


def test_short_rollouts_are_gathered_for_a_fit():
    told = explorer(gather=100)
    for rollout in range(1, 21):
        steps(told, 5, seed=rollout)
        told.rollout()
        assert len(told.bonus.replay) == (rollout * 10) // 100 * 100


def test_in_between_rollouts_are_rated_by_what_the_last_fit_left():
    told = explorer(gather=100, weight=1.0, bins=3)
    for seed in (1, 2):
        steps(told, 50, rewards=1.0, seed=seed)
        fitted = told.rollout()
    assert fitted.bonuses.any()
    before = told.bonus.state_dict()["replay"]["rows"].clone()
    steps(told, 5, rewards=3.0, seed=9)
    rated = told.rollout()
    assert rated.bonuses.any()
    assert rated.rewards.tolist() == [[3.0, 3.0]] * 5
    assert (told.bonus.state_dict()["replay"]["rows"] == before).all()
    factor = told.metrics["exploration/weight"]
    scores = told.bonus.score(told.latest).numpy()
    apart = rated.bonuses - factor * scores
    assert np.allclose(apart, apart[0, 0], atol=1e-5)  # all but the centre


def stay(told, count, at=0.0):
    for _ in range(count):
        here = np.full((2, 2), at, np.float32)
        told.step(here, np.zeros(2, int), here, np.zeros(2), np.zeros(2, bool), np.zeros(2, bool))


def test_places_are_counted_within_an_episode_over_rollouts_until_environments_are_reset():
    told = explorer("kernel-exemplar", gather=100, weight=1.0)
    for _ in range(2):
        steps(told, 100)
        told.rollout()
    found = []
    for at in (0.0, 0.0, 0.5):  # the last one does not begin where the one before ended
        stay(told, 50, at)
        told.rollout()
        found.append(told.metrics["exploration/episode_visits"])
    assert found == pytest.approx([25.5, 75.5, 25.5], rel=1e-3)


def test_where_transitions_are_not_rated_in_whole_rollouts_nothing_is_counted_within_episodes():
    whole, short, later, mixed = (explorer("kernel-exemplar", gather=100) for _ in range(4))
    for seed in (1, 2):
        steps(whole, 50, seed=seed)
        whole.rollout()
        for part in range(10):
            steps(short, 5, seed=10 * seed + part)
            short.rollout()
        steps(later, 50, seed=seed)
        later.learn()
    counted = [told.metrics.get("exploration/episode_visits") for told in (whole, short, later)]
    assert [value is None for value in counted] == [False, True, True]
    for count in (50, 5, 50, 50):  # a short one is no reason to stop counting
        steps(mixed, count, seed=count)
        mixed.rollout()
    assert mixed.metrics["exploration/episode_visits"] >= 1.0


def test_a_reset_is_none_of_a_loaded_explorers_steps():
    """Which environments wait for their own reset is part of the state."""
    found = []
    for again in (False, True):
        told = explorer(autoreset=AutoresetMode.NEXT_STEP, gather=1)
        random = np.random.default_rng(0)
        for step in range(2):
            before, after = random.uniform(-1, 1, (2, 2, 2)).astype(np.float32)
            ends = np.array([step == 0, False])
            told.step(before, np.zeros(2, int), after, np.zeros(2), ends, np.zeros(2, bool))
            if step == 0 and again:
                state, told = told.state_dict(), explorer(autoreset=AutoresetMode.NEXT_STEP, gather=1)
                told.load_state_dict(state)
        told.rollout()
        found.append(told.latest.mask.tolist())
    assert found[0] == found[1] == [[True, True], [False, True]]


def test_before_the_first_fit_rewards_are_the_environments_own():
    told = explorer(gather=100)
    steps(told, 5, rewards=-7.0)
    shaped = told.rollout()
    assert (shaped.rewards == -7.0).all()
    assert not shaped.bonuses.any()


@pytest.mark.parametrize("news", [{"rewards": 5.0}, {"terminated": True}])
def test_a_reward_that_says_something_new_is_not_kept_waiting(news):
    """Rewards that were all the same are left out; the first that is not has to be heard."""
    told = explorer(gather=100)
    for seed in (1, 2):
        steps(told, 50, rewards=-1.0, seed=seed)
        told.rollout()
    steps(told, 5, rewards=-1.0, seed=3)
    assert not told.rollout().rewards.any()
    steps(told, 1, **({"rewards": -1.0} | news), seed=4)
    assert told.rollout().rewards.any()


def test_a_cut_episode_has_no_neighbours_across_it():
    walk = Walk()
    known = Known(walk.observation_space, walk.action_space)
    told = Explorer(walk.observation_space, walk.action_space, known, gather=8)
    for place in (0, 1, 4, 5):  # between the second and the third somebody has reset the environment
        if place == 4:
            told.rollout()
            told.begin()
        row = (np.full((2, 1), float(number), np.float32) for number in (place, place + 1))
        told.step(next(row), np.ones(2, int), next(row), np.zeros(2), np.zeros(2, bool), np.zeros(2, bool))
    told.rollout()
    (batch,) = known.fitted
    assert batch.truncated.tolist() == [[False, False], [True, True], [False, False], [False, False]]


def test_what_cannot_be_told_is_refused():
    told = explorer()
    with pytest.raises(UsageError, match="There is no step to learn from"):
        told.rollout()
    with pytest.raises(UsageError, match="The reward of environment 0 at step 0 of the rollout, 0 steps into training, is nan"):
        steps(told, 1, rewards=np.nan)
    steps(told, 3)
    with pytest.raises(UsageError, match=r"There were 2 environments and now are 4: call Explorer\.rollout or drop before"):
        steps(told, 3, envs=4)
    with pytest.raises(UsageError, match=r"rewards has the shape \(\) where rewards have \(\)|each must be one number"):
        told.step(np.zeros(2, np.float32), 0, np.zeros(2, np.float32), 0.0, False, False)
    same = explorer(autoreset=AutoresetMode.SAME_STEP)
    with pytest.raises(UsageError, match="infos hold no final_obs"):
        steps(same, 1, terminated=True)
    envs = gymnasium.make_vec("CartPole-v1", 2)
    envs.metadata = {}
    with pytest.raises(UsageError, match="does not say in its metadata"):
        Explorer.of(envs)


def test_wrappers_and_explorers_say_what_they_take():
    one, several = gymnasium.make("CartPole-v1"), gymnasium.make_vec("CartPole-v1", 2)
    for make, given, sentence in (
        (BonusVectorWrapper, one, r"BonusVectorWrapper takes a vector .* not TimeLimit: BonusWrapper is for one"),
        (BonusWrapper, several, r"BonusWrapper takes one environment, .* BonusVectorWrapper is for several"),
        (Explorer.of, one, r"Explorer\.of takes a vector of environments, .* not TimeLimit"),
    ):
        with pytest.raises(UsageError, match=sentence):
            make(given)
    with pytest.raises(UsageError, match="'total_step': did you mean 'total_steps'"):
        BonusVectorWrapper(several, total_step=100)
    told, here = explorer(), np.zeros((2, 2), np.float32)
    with pytest.raises(UsageError, match=r"truncated has the shape \(\) where rewards have \(2,\)"):
        told.step(here, np.zeros(2, int), here, np.zeros(2), np.zeros(2, bool), {})
    with pytest.raises(UsageError, match=r"The action space is Dict.*: bonuses take actions of Box and discrete spaces"):
        Explorer(VECTOR, gymnasium.spaces.Dict({"push": BUTTONS}))
    pair = Explorer(gymnasium.spaces.Tuple((VECTOR, BUTTONS)), BUTTONS)
    both = np.full((1, 2), np.nan, np.float32), np.zeros(1, int)
    with pytest.raises(UsageError, match=r"The observation\[0\] of environment 0 at step 0 of the rollout"):
        pair.step(both, np.zeros(1, int), both, np.zeros(1), np.zeros(1, bool), np.zeros(1, bool))
    with pytest.raises(UsageError, match="There was no rollout yet"):
        told.latest  # noqa: B018


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gather": 0}, "gather=0 must be a whole number"),
        ({"total_steps": 0}, "total_steps=0 must be the steps of the whole training"),
        ({"gamma": 1.5}, r"gamma=1\.5 must be the agent's discount, a number from 0 to 1"),
        ({"autoreset": "NextStep"}, "autoreset='NextStep' is no mode of gymnasium.vector.AutoresetMode"),
        ({"seed": 0.5}, r"seed=0\.5 must be a whole number"),
        ({"centre": "middle"}, "centre 'middle'"),
        ({"bonus": 0.5}, "A bonus is a name, such as 'kernel-exemplar', or one that is built already, not float"),
        (
            {"bonus": make_bonus("rnd", BUTTONS, BUTTONS)},
            r"The bonus was built for observations Discrete\(\d+\) and is to see Box",
        ),
    ],
)
def test_what_no_training_can_begin_with_is_refused(settings, sentence):
    with pytest.raises(UsageError, match=sentence):
        explorer(**settings)


def test_a_state_of_another_bonus_is_refused_and_changes_nothing():
    told = explorer()
    before = told.bonus.replay
    with pytest.raises(UsageError, match="The state is of the bonus 'rnd', and this one is 'histogram'"):
        told.load_state_dict(explorer("rnd").state_dict())
    with pytest.raises(UsageError, match="The state holds no bonus, only policy, optimizer"):
        told.load_state_dict({"policy": {}, "optimizer": {}})
    assert told.bonus.replay is before


@pytest.mark.parametrize("autoreset", list(AutoresetMode))
def test_there_may_be_more_environments_from_one_rollout_to_the_next(autoreset):
    """As many are fitted as were seen, and none of them goes on where one of the others ended."""
    told, one = explorer(gather=30, autoreset=autoreset), np.zeros(1, bool)
    for _ in range(5):
        told.step(np.zeros((1, 2), np.float32), np.zeros(1, int), np.zeros((1, 2), np.float32), np.zeros(1), one, ~one, FINAL)
    told.rollout()
    steps(told, 20, envs=4)
    assert told.rollout().bonuses.shape == (20, 4)
    assert told.steps == 85
    kept = 1 if autoreset is AutoresetMode.NEXT_STEP else 5  # a step behind an end only resets
    assert len(told.bonus.replay) == kept + 80


@pytest.mark.parametrize("weight", [lambda progress: 1.0, "big", np.nan, -1, None, True, [1.0]])
def test_a_weight_that_is_none_gets_a_clear_word(weight):
    with pytest.raises(UsageError, match=r'is none: it must be "auto", a finite number of at least 0, or a schedule'):
        explorer(weight=weight)


def test_the_weight_falls_over_the_whole_training():
    told, weights = explorer(gather=1, total_steps=400), []
    for seed in range(4):
        steps(told, 50, seed=seed)
        told.rollout()
        weights.append(told.metrics["exploration/weight"] * told.metrics["exploration/scale"])
    assert np.allclose(weights[1:], [0.16875, 0.075, 0.01875], atol=1e-6)
    assert told.progress == 1.0


def test_what_did_not_happen_is_no_news_and_may_be_anything():
    told, random, rewards = explorer(gather=1_000), np.random.default_rng(0), np.full((10, 2), -1.0)
    rewards[4, 1] = np.nan
    for _ in range(2):
        before, after = random.uniform(-1, 1, (2, 10, 2, 2)).astype(np.float32)
        batch = Batch.of(before, np.zeros((10, 2), int), after)
        batch.mask[4, 1] = False
        told.shape(batch, rewards)
    assert not told.metrics  # there was no fit yet


def test_a_reset_by_hand_within_a_rollout_keeps_what_went_before():
    """A single environment, reset at each end of an episode, as Gymnasium's own loop does it."""
    walk = Walk()
    known = Known(walk.observation_space, walk.action_space)
    told, random = Explorer(walk.observation_space, walk.action_space, known, gather=1), np.random.default_rng(0)
    obs, _ = walk.reset()
    for _ in range(128):
        action = int(random.integers(2))
        after, reward, terminated, truncated, _ = walk.step(action)
        told.step(*(np.array([value]) for value in (obs, action, after, reward, terminated, truncated)))
        obs = after
        if terminated or truncated:
            obs, _ = walk.reset()
            told.reset()
    assert told.rollout().bonuses.shape == (128, 1)
    assert told.steps == 128
    (batch,) = known.fitted
    apart = batch.next_obs[:-1, :, 0] != batch.obs[1:, :, 0]
    assert apart.any()
    assert (batch.terminated | batch.truncated)[:-1][apart].all()


def test_environments_that_are_reset_by_hand_do_not_reset_themselves():
    walk = Walk()
    known = Known(walk.observation_space, walk.action_space)
    envs = SyncVectorEnv([Walk] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    envs, random = BonusVectorWrapper(envs, known, gather=1), np.random.default_rng(0)
    envs.reset(seed=0)
    for _ in range(200):
        *_, terminated, truncated, _ = envs.step(random.integers(2, size=2))
        if (terminated | truncated)[0]:
            envs.reset(options={"reset_mask": np.array([True, False])})
    for batch in known.fitted:
        before, after = (places(part)[batch.mask.numpy()] for part in (batch.obs, batch.next_obs))
        assert ((np.abs(after - before) == 1) | ((before == 0) & (after == 0))).all()
    assert sum(int(batch.mask.sum()) for batch in known.fitted) > 380


def test_a_state_is_of_a_bonus_with_the_same_settings(tmp_path):
    told = explorer("rnd", hidden=32, gather=50)
    steps(told, 60, envs=1)
    told.rollout()
    torch.save(told.state_dict(), tmp_path / "explorer")
    state = torch.load(tmp_path / "explorer")
    with pytest.raises(UsageError, match="a bonus with hidden=32, and this one has hidden=64"):
        explorer("rnd", hidden=64).load_state_dict(state)
    again = explorer("rnd", hidden=32, gather=50)
    again.load_state_dict(state)
    for one in (told, again):
        steps(one, 60, envs=1, seed=2)
    assert np.array_equal(told.rollout().bonuses, again.rollout().bonuses)


def test_a_schedule_needs_a_length_and_flags_are_flags():
    falls = Weight(start=1.0, schedule="linear")
    told = explorer(weight=falls, gather=1)
    steps(told, 3)
    with pytest.raises(UsageError, match="pass total_steps="):
        told.rollout()
    with pytest.raises(UsageError, match="pass total_steps="):
        BonusVectorWrapper(SyncVectorEnv([Walk]), weight=falls)
    with pytest.raises(UsageError, match="episodic=None must be True or False"):
        explorer(episodic=None)


def test_what_cannot_be_wrapped_is_refused():
    envs = BonusVectorWrapper(SyncVectorEnv([Walk]))
    with pytest.raises(UsageError, match="have a bonus already"):
        BonusVectorWrapper(envs)
    with pytest.raises(UsageError, match="have a bonus already"):
        BonusWrapper(BonusWrapper(Walk()))
    listed = BonusVectorWrapper(DictInfoToList(SyncVectorEnv([Walk])))
    listed.reset()
    with pytest.raises(UsageError, match="infos are a list"):
        listed.step(np.zeros(1, int))


def test_a_wrapped_environment_is_made_again_from_its_spec():
    env = BonusWrapper(gymnasium.make("CartPole-v1"), "rnd", 0.5, hidden=16)
    again = gymnasium.make(env.spec)
    assert isinstance(again, BonusWrapper)
    assert again.explorer.bonus.settings.hidden == 16
