from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from ex2 import UsageError, Weight
from ex2.batch import Batch
from ex2.bonus import Bonus
from ex2.shaping import GUIDED, RAREST, SHARE, Scale, Shaper, bonus_of_density, centred, discounted

STEPS, ENVS = 30, 4
SPACE = Box(-np.inf, np.inf, (1,))


def test_the_three_forms():
    p = torch.tensor([0.1, 0.4])
    assert torch.allclose(bonus_of_density(p.log(), 50), -p.log())
    assert torch.allclose(bonus_of_density(p.log(), 50, "sqrt-count"), (50 * p).rsqrt())
    assert torch.allclose(bonus_of_density(p.log(), 50, "sqrt-count", count_offset=1.0), (50 * p + 1).rsqrt())
    assert torch.allclose(bonus_of_density(p.log(), 50, "inverse-count", state_count=7.0), 1 / (50 * p + 7))


def test_a_state_of_no_density_at_all_has_a_finite_bonus():
    for form in ("sqrt-count", "inverse-count"):
        assert torch.isfinite(bonus_of_density(torch.tensor([-1e4]), 100, form)).all()


def test_centring_sees_only_what_happened():
    bonus, mask = torch.tensor([[1.0, 2.0], [3.0, 99.0]]), torch.tensor([[True, True], [True, False]])
    assert centred(bonus, mask, "median").tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert centred(bonus, mask, "mean").tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert centred(bonus, mask, "none").tolist() == [[1.0, 2.0], [3.0, 0.0]]


def test_a_factor_on_the_density_is_centred_away():
    p, mask = torch.rand(5, 3), torch.ones(5, 3, dtype=torch.bool)
    one, two = (centred(bonus_of_density((c * p).log(), 10), mask) for c in (1.0, 17.0))
    assert torch.allclose(one, two, atol=1e-5)


def test_schedules():
    assert Weight(start=0.5).at(0.9) == 0.5
    assert [Weight().at(progress) for progress in (0.0, 0.5, 1.0)] == [SHARE, SHARE / 4, 0.0]
    fading = Weight(start=1.0, schedule="linear", end=0.2, until=0.5)
    assert [round(fading.at(x), 3) for x in (0.0, 0.25, 0.5, 1.0)] == [1.0, 0.6, 0.2, 0.2]


class FirstNumber(Bonus):
    """A bonus that is what was seen."""

    def prepare(self, batch):
        return {}

    def score(self, batch):
        return batch.obs[..., 0].clone()

    def remember(self, batch):
        pass


def scored(scores, ends=None):
    """A batch with these scores [T, N], and ends of episodes."""
    seen = np.asarray(scores, np.float32)[..., None]
    return Batch.of(seen, np.zeros_like(seen), seen, ends)


def streams(seed, factor=1.0):
    """Rewards that come now and then, scores, and ends of episodes, [T, N]."""
    random = np.random.default_rng(seed)
    rewards = factor * (random.random((STEPS, ENVS)) < 0.1)
    return rewards.astype(np.float32), random.normal(1.0, 2.0, (STEPS, ENVS)), random.random((STEPS, ENVS)) < 0.1


def shaper(weight=None, **settings):
    return Shaper(FirstNumber(SPACE, SPACE), weight or Weight(), **({"gamma": 0.9} | settings))


def test_discounted_sums_end_with_an_episode():
    values, ends = np.array([[1.0], [2.0], [4.0]]), np.array([[False], [True], [False]])
    assert discounted(values, 0.5, ends).ravel().tolist() == [2.0, 2.0, 4.0]
    assert discounted(values, 0.5).ravel().tolist() == [3.0, 4.0, 4.0]


def test_a_scale_is_the_deviation_of_all_sums_ever():
    scale, sums = Scale(0.9), np.zeros(0)
    for seed in range(4):
        _, values, ends = streams(seed)
        mask = np.random.default_rng(seed).random(values.shape) < 0.8
        scale.update(values, mask, ends)
        sums = np.concatenate([sums, discounted(np.where(mask, values, 0.0), 0.9, ends)[mask]])
        assert scale.deviation == pytest.approx(sums.std())


def test_a_scale_of_one_number_over_and_over_is_none():
    scale = Scale(0.0)
    scale.update(np.full((STEPS, ENVS), 0.1), np.ones((STEPS, ENVS), bool))
    assert scale.deviation == 0.0


def test_the_automatic_weight_is_what_its_formula_says():
    one, both_signs = shaper(), 0.0
    for seed, progress in enumerate((0.1, 0.5)):
        rewards, scores, ends = streams(seed)
        shaped = one(scored(scores, ends), rewards, progress)
        both_signs = max(min(rewards.max(), -rewards.min()), both_signs)
        floors = RAREST * one.reward_scale.largest, (1.0 - progress) ** 2 * both_signs
        assert one.unit == pytest.approx(max(one.reward_scale.deviation, *floors))
        middle = np.sort(np.float32(scores).ravel())[(scores.size - 1) // 2]
        assert np.allclose(shaped.rewards, rewards / one.unit)
        expected = SHARE * (1.0 - progress) ** 2 * (scores - middle) / one.bonus_scale.deviation
        assert np.allclose(shaped.bonuses, expected, atol=1e-5)
        told = shaped.metrics["bonus/weight"]  # of a score, in units of the reward
        assert told == pytest.approx(SHARE * (1.0 - progress) ** 2 * one.unit / one.bonus_scale.deviation)


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("none", SHARE),
        ("-1 a step", SHARE),
        ("a goal", SHARE),
        ("1 while it goes well", SHARE),
        ("-1 a step, normalised", SHARE),
        ("speed", GUIDED),
        ("costs", SHARE),
        ("costs and a goal", SHARE),
        ("a goal behind resets", SHARE),
    ],
)
def test_where_rewards_guide_by_themselves_the_bonus_is_a_thirtieth(kind, share):
    random, mask = np.random.default_rng(0), np.ones((STEPS, ENVS), bool)
    rewards = np.zeros((STEPS, ENVS))
    if kind.startswith("-1"):
        rewards -= 1.0 + (1e-5 * np.arange(STEPS)[:, None] if "normalised" in kind else 0.0)
    elif kind == "1 while it goes well":
        rewards[STEPS // 3 :] = 1.0
    elif kind == "speed":
        rewards = random.normal(size=rewards.shape)
    elif kind.startswith("costs"):
        rewards = -np.square(random.normal(size=rewards.shape))
        rewards[15] = 100.0 if "goal" in kind else rewards[15]
    elif kind != "none":
        rewards[::20] = 1.0
    if kind == "a goal behind resets":
        mask[1::2] = False
        rewards[1::2] = 9.0  # of resets, which are no steps
    seen = random.random((STEPS, ENVS, 1))
    one, again = shaper(), shaper()
    one(Batch.of(seen, np.zeros((STEPS, ENVS)), seen, mask=mask), rewards, 0.5)
    again.load_state_dict(one.state_dict())
    assert one.heard.guiding == again.heard.guiding == (share == GUIDED)
    assert one.last["factor"] == pytest.approx(0.25 * share / one.bonus_scale.deviation)


@pytest.mark.parametrize(
    ("other", "worth", "later"), [(0.0, 10.0, 10.0), (-0.01, 10.0, 10.0), (-0.5, 2.0, 8.0), (-1.0, 1.0, 4.0), (-5.0, 1.0, 2.0)]
)
def test_a_rare_find_counts_less_where_losses_are_as_large(other, worth, later):
    """One reward of 1 in many steps, and another one: a find comes to 10, unless it could as well have been a loss; less so as
    the bonus fades."""
    rewards, one = np.zeros((400, 10)), shaper(gamma=0.0)
    rewards[7, 3], rewards[200, 5] = 1.0, other
    shaped = one(scored(np.random.default_rng(0).random((400, 10)), np.zeros((400, 10), bool)), rewards, 0.0)
    assert shaped.rewards[7, 3] == pytest.approx(worth)
    again = shaper(gamma=0.0)
    again.load_state_dict(one.state_dict())
    assert again.unit == one.unit
    shaped = one(scored(np.random.default_rng(1).random((400, 10)), np.zeros((400, 10), bool)), rewards, 0.5)
    assert shaped.rewards[7, 3] == pytest.approx(later)


def test_whether_rewards_guide_is_seen_over_single_steps_and_beside_an_outlier():
    random, whole, one, early = np.random.default_rng(0), shaper(), shaper(), shaper()
    rewards, scores = random.random((STEPS, ENVS)), random.random((STEPS, ENVS))
    rewards[3, 1] = -1_000.0
    whole(scored(scores), rewards, 0.0)
    early(scored(scores[:9]), rewards[:9], 0.0)
    one.load_state_dict(early.state_dict())
    for step in range(9, STEPS):
        one(scored(scores[step : step + 1]), rewards[step : step + 1], 0.0)
    assert (whole.heard.paid, whole.heard.pairs) == (one.heard.paid, one.heard.pairs)
    assert whole.heard.guiding
    assert one.heard.guiding


def test_the_automatic_weight_knows_no_units():
    one, other = shaper(), shaper()
    for seed in range(3):
        rewards, scores, ends = streams(seed)
        first, second = one(scored(scores, ends), rewards, 0.3), other(scored(1e-3 * scores, ends), 50.0 * rewards, 0.3)
        assert np.allclose(first.rewards, second.rewards, rtol=1e-4)
        assert np.allclose(first.bonuses, second.bonuses, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("episodic", [True, False])
def test_without_a_reward_the_bonus_is_all_there_is(episodic):
    _, scores, ends = streams(0)
    shaped = shaper(episodic=episodic)(scored(scores, ends), np.zeros(scores.shape, np.float32), 0.0)
    assert not shaped.rewards.any()
    assert discounted(shaped.bonuses, 0.9, ends if episodic else None).std() == pytest.approx(SHARE, rel=1e-3)


def test_what_was_new_at_first_does_not_drown_what_is_new_later():
    rewards, scores, ends = streams(0)
    one = shaper()
    one(scored(100.0 * scores, ends), rewards, 0.0)
    for _ in range(1_500):
        shaped = one(scored(scores, ends), rewards, 0.0)
    assert discounted(shaped.bonuses, 0.9, ends).std() == pytest.approx(SHARE, rel=0.1)


def test_scores_that_fade_faster_than_the_training_grows_old_fade_for_the_agent():
    rewards, scores, ends = streams(0)
    one = shaper()
    for step in range(400):
        shaped = one(scored(0.98**step * scores, ends), rewards, 0.0)
    assert discounted(shaped.bonuses, 0.9, ends).std() < 0.1 * SHARE


def test_batches_without_a_bonus_do_not_count():
    _, scores, ends = streams(0)
    late, prompt = shaper(), shaper()
    for _ in range(3):
        late(scored(np.zeros(scores.shape), ends), np.zeros(scores.shape, np.float32), 0.0)
    for one in (late, prompt):
        one(scored(scores, ends), np.zeros(scores.shape, np.float32), 0.0)
    assert late.bonus_scale.deviation == prompt.bonus_scale.deviation


@pytest.mark.parametrize("how", ["another reward", "a terminal state"])
def test_a_reward_that_is_always_the_same_is_left_out_until_it_says_something(how):
    _, scores, _ = streams(0)
    one, plain = shaper(), shaper()
    batch = scored(scores, np.zeros(scores.shape, bool))
    rewards = np.full(scores.shape, -1.0, np.float32)
    for _ in range(2):
        assert not one(batch, rewards, 0.0).rewards.any()
        assert plain(
            scored(np.zeros(scores.shape), np.zeros(scores.shape, bool)), rewards, 0.0
        ).rewards.all()  # no bonus instead
    if how == "another reward":
        rewards[5, 1] = -0.5
    else:
        batch.terminated[5, 1] = True
    assert one(batch, rewards, 0.0).rewards.all()
    other = shaper()
    other.load_state_dict(one.state_dict())
    assert other(scored(scores, np.zeros(scores.shape, bool)), np.full(scores.shape, -1.0, np.float32), 0.0).rewards.all()


def test_scores_that_are_all_the_same_are_no_bonus():
    rewards, scores, ends = streams(0)
    shaped = shaper()(scored(np.full(scores.shape, 7.0), ends), rewards, 0.0)
    assert not shaped.bonuses.any()
    assert np.isfinite(shaped.rewards).all()


def test_a_number_as_weight_leaves_rewards_alone():
    rewards, scores, ends = streams(0)
    for scaled in (True, False):
        one = shaper(Weight(start=2.0), centre="none", scaled=scaled)
        shaped = one(scored(scores, ends), rewards, 0.5)
        assert np.array_equal(shaped.rewards, rewards)
        assert np.allclose(shaped.bonuses, 2.0 * scores / (one.bonus_scale.deviation if scaled else 1.0), rtol=1e-4, atol=1e-6)


def test_a_shaper_goes_on_where_it_was_saved():
    one, other = shaper(), shaper()
    for seed in range(2):
        rewards, scores, ends = streams(seed)
        one(scored(scores, ends), rewards, 0.1)
    other.load_state_dict(one.state_dict())
    rewards, scores, ends = streams(9)
    first, second = (each(scored(scores, ends), rewards, 0.2) for each in (one, other))
    assert np.array_equal(first.rewards, second.rewards)
    assert np.array_equal(first.bonuses, second.bonuses)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: bonus_of_density(torch.zeros(1), 1, "lgo"), "did you mean 'log'"),
        (lambda: centred(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), "midian"), "did you mean 'median'"),
        (lambda: Weight(schedule="liner"), "did you mean 'linear'"),
        (lambda: Weight(schedule="linear", until=0.0), "until=0.0 must be above 0"),
        (lambda: Weight(start="atuo"), "must be float | 'auto'"),
        (lambda: Weight(start=float("nan")), "start=nan must be finite"),
        (lambda: Weight(start=-1.0), "start=-1.0 must be at least 0"),
        (lambda: Weight(schedule="linear", end=0.5), 'The weight "auto" falls to 0 by itself'),
        (lambda: shaper(scaled=False), "scaled=false does not go with the weight"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make, name):
    with pytest.raises(UsageError, match=re.escape(name)):
        make()
