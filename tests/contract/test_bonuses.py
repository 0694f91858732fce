"""What every registered bonus must do, on every kind of space it takes. A new bonus is covered by being registered.

The numbers in the names are those of docs/pitfalls.md.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pydoc

import numpy as np
import pytest
import torch

from conftest import CONTINUOUS, SPACES, VECTOR, make_batch
from ex2 import BONUSES, Batch, UsageError, make_bonus
from ex2.bonus import Bonus, BonusSettings, DensityBonus, bonus_settings, kind_of, setting_names, settings_type
from ex2.settings import describe, hints, setting
from ex2.training import checkpoint
from faults import same

SMALL = {
    "steps": 3,
    "first_steps": 4,
    "groups": 16,
    "negatives": 32,
    "newton_negatives": 64,
    "pairs": 16,
    "exemplars": 16,
    "subsample": 50,
    "bits": 4,
    "buckets": 1_000,
}
REFUSED = [("histogram", SPACES[kind][0]) for kind in ("unbounded", "image", "image-channels-first")]
COMBINED = "simhash+rnd"
NAMES = [*BONUSES, COMBINED]
RATING = [name for name in NAMES if name != "none"]
TRANSITIONS = [name for name in NAMES if "inputs" not in setting_names(name) and name != COMBINED]
"""Those that rate how a state became the next, not a state."""


def build(name: str, pair, **settings) -> Bonus:
    """A small bonus of this name, or a skip where it is known to refuse the space, in so many words."""
    small = {key: SMALL[key.split(".")[-1]] for key in setting_names(name) if key.split(".")[-1] in SMALL}
    try:
        return make_bonus(name, *pair, **(small | settings))
    except UsageError as refusal:
        if (name, pair[0]) not in REFUSED:
            raise
        pytest.skip(str(refusal))


def tuned(name: str) -> Bonus:
    """The bonus on a plane, with settings that are known to work in two dimensions."""
    settings = {"kde": {"bandwidth": 0.2}, "simhash": {"bits": 32, "offset": 0.5}}
    return make_bonus(name, VECTOR, CONTINUOUS, **settings.get(name, {}))


def seen(name: str, pair, **settings) -> Bonus:
    bonus = build(name, pair, **settings)
    for seed in range(3):
        bonus.observe(make_batch(pair, seed=seed))
    return bonus


@pytest.mark.parametrize("name", NAMES)
class TestEveryBonus:
    def test_11_shape_in_shape_out(self, name, pair):
        scores = seen(name, pair).score(make_batch(pair, seed=9))
        assert scores.shape == (30, 4)
        assert scores.dtype == torch.float32
        assert torch.isfinite(scores).all()
        if name != "none":
            assert scores.std() > 0

    def test_4_scoring_changes_nothing(self, name, pair):
        bonus, batch = seen(name, pair), make_batch(pair, seed=9)
        before = copy.deepcopy(bonus.state_dict())
        first = bonus.score(batch)
        assert same(before, bonus.state_dict())
        assert torch.equal(first, bonus.score(batch))

    def test_5_observe_is_prepare_score_remember(self, name, pair):
        one, other, batch = seen(name, pair), seen(name, pair), make_batch(pair, seed=9)
        scores, _ = one.observe(batch)
        other.prepare(batch)
        expected = other.score(batch)
        other.remember(batch)
        assert torch.equal(scores, expected)
        assert same(one.state_dict(), other.state_dict())

    @pytest.mark.parametrize("inputs", ["state", "next-state", "state-action"])
    def test_5_only_the_chosen_inputs_count(self, name, inputs):
        pair = SPACES["vector-discrete"]
        if "inputs" not in setting_names(name):
            with pytest.raises(UsageError, match="'inputs'"):
                build(name, pair, inputs=inputs)
            return
        batch, other = make_batch(pair, seed=9), make_batch(pair, seed=10)
        fields = {"state": {"obs"}, "next-state": {"next_obs"}, "state-action": {"obs", "action"}}[inputs]
        changed = {f: getattr(batch if f in fields else other, f) for f in ("obs", "action", "next_obs")}
        flags = {"truncated": batch.truncated}
        one = build(name, pair, inputs=inputs, **({"bins": 5} if name == "histogram" else {}))
        two = copy.deepcopy(one)
        for seed in range(2):
            one.observe(make_batch(pair, seed=seed))
            two.observe(make_batch(pair, seed=seed))
        assert torch.equal(one.observe(batch)[0], two.observe(Batch.of(**changed, **flags))[0])
        assert same(one.state_dict(), two.state_dict())

    def test_all_of_a_transition_counts_where_it_is_rated(self, name):
        if name not in TRANSITIONS:
            pytest.skip("rates states")
        pair = SPACES["vector-discrete"]
        bonus, batch, other = seen(name, pair), make_batch(pair, seed=9), make_batch(pair, seed=10)
        fields = {"obs": batch.obs, "action": batch.action, "next_obs": batch.next_obs}
        for field in fields:
            changed = Batch.of(**(fields | {field: getattr(other, field)}))
            assert not torch.equal(bonus.score(batch), bonus.score(changed))

    def test_2_masked_transitions_do_not_exist(self, name, pair):
        batch, noise = make_batch(pair, seed=9), make_batch(pair, seed=10)
        mask = torch.ones(batch.shape, dtype=torch.bool)
        mask[4, 1] = mask[20, 3] = False
        results = []
        for source in (batch, noise):
            obs, next_obs = batch.obs.clone(), batch.next_obs.clone()
            obs[~mask], next_obs[~mask] = source.obs[~mask], source.next_obs[~mask]
            bonus = seen(name, pair)
            scores, _ = bonus.observe(Batch.of(obs, batch.action, next_obs, truncated=batch.truncated, mask=mask))
            assert (scores[~mask] == 0).all()
            results.append((scores, bonus.state_dict()))
        assert same(results[0], results[1])

    def test_7_saved_and_restored_exactly(self, name, pair, tmp_path):
        bonus = seen(name, pair)
        checkpoint.save(tmp_path / "bonus", bonus.state_dict())
        restored = build(name, pair, seed=99)
        restored.load_state_dict(checkpoint.load(tmp_path / "bonus"))
        for seed in (7, 8):
            batch = make_batch(pair, seed=seed)
            assert torch.equal(bonus.score(batch), restored.score(batch))
            assert torch.equal(bonus.observe(batch)[0], restored.observe(batch)[0])
        assert same(bonus.state_dict(), restored.state_dict())

    def test_7_a_restored_bonus_shares_nothing_with_the_one_saved(self, name, pair):
        bonus, restored = seen(name, pair), build(name, pair)
        restored.load_state_dict(bonus.state_dict())
        before = copy.deepcopy(restored.state_dict())
        bonus.observe(make_batch(pair, seed=9))
        assert same(before, restored.state_dict())

    def test_seeded_and_leaves_other_generators_alone(self, name, pair):
        numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
        scores = seen(name, pair, seed=3).score(make_batch(pair, seed=9))
        assert torch.equal(scores, seen(name, pair, seed=3).score(make_batch(pair, seed=9)))
        assert torch.equal(torch_before, torch.get_rng_state())
        assert (numpy_before == np.random.get_state()[1]).all()  # noqa: NPY002

    def test_12_built_from_spaces_and_keywords(self, name):
        taken = list(inspect.signature(kind_of(name)).parameters.values())
        assert [parameter.name for parameter in taken[:3]] == ["observation_space", "action_space", "settings"]
        assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in taken[3:])
        with pytest.raises(UsageError, match="'wieght'"):
            make_bonus(name, VECTOR, CONTINUOUS, wieght=1.0)

    def test_bad_numbers_are_named_and_nothing_is_lost(self, name):
        pair = SPACES["vector-continuous"]
        bonus, batch = seen(name, pair), make_batch(pair)
        before = copy.deepcopy(bonus.state_dict())
        batch.obs[7, 2, 0] = float("nan")
        with pytest.raises(UsageError, match="environment 2 at step 7"):
            bonus.observe(batch)
        assert same(before, bonus.state_dict())

    def test_bad_actions_are_named_and_nothing_is_lost(self, name):
        pair = SPACES["vector-continuous"]
        settings = {"inputs": "state-action"} if "inputs" in setting_names(name) else {}
        settings |= {"rnd.inputs": "state-action"} if name == COMBINED else {"bins": 5} if name == "histogram" else {}
        bonus, batch = seen(name, pair, **settings), make_batch(pair)
        before = copy.deepcopy(bonus.state_dict())
        batch.action[7, 2, 0] = float("nan")
        with pytest.raises(UsageError, match="action of environment 2 at step 7"):
            bonus.observe(batch)
        assert same(before, bonus.state_dict())

    def test_steps_that_did_not_happen_take_no_time(self, name, pair):
        """Masked steps put between others leave everything as it was."""
        batch = make_batch(pair, seed=9)
        order = [*range(10), *range(10), *range(10, 30)]  # ten steps twice; the second time they did not happen
        mask = torch.ones(40, 4, dtype=torch.bool)
        mask[10:20] = False
        truncated = batch.truncated.clone()
        truncated[9] = True  # an episode must end where steps are missing
        whole = Batch.of(batch.obs, batch.action, batch.next_obs, truncated=truncated)
        longer = Batch.of(*(field[order] for field in (batch.obs, batch.action, batch.next_obs)), None, truncated[order], mask)
        one, other = seen(name, pair), seen(name, pair)
        scores, _ = one.observe(whole)
        longer_scores, _ = other.observe(longer)
        assert torch.allclose(scores, longer_scores[[*range(10), *range(20, 40)]], atol=1e-6)

    def test_entries_are_all_that_counts(self, name):
        if "entries" not in setting_names(name):
            pytest.skip("its parts have them")
        settings = {"entries": [1], **({"bins": 5} if name == "histogram" else {})}
        batch, other = make_batch(SPACES["vector-continuous"], seed=9), make_batch(SPACES["vector-continuous"], seed=10)
        fields = {"action": batch.action, "truncated": batch.truncated}
        mixed = {f: torch.stack([getattr(other, f)[..., 0], getattr(batch, f)[..., 1]], -1) for f in ("obs", "next_obs")}
        one, two = (seen(name, SPACES["vector-continuous"], **settings) for _ in range(2))
        assert torch.equal(one.observe(batch)[0], two.observe(Batch.of(**mixed, **fields))[0])

    def test_wrong_shapes_and_dtypes_are_named(self, name):
        pair = SPACES["vector-continuous"]
        bonus = seen(name, pair)
        batch = make_batch(SPACES["unbounded"])
        with pytest.raises(UsageError, match=r"obs has shape \(30, 4, 3\)"):
            bonus.observe(batch)
        whole = make_batch(pair)
        with pytest.raises(UsageError, match="int64"):
            bonus.observe(Batch.of(whole.obs.long(), whole.action, whole.next_obs.long()))

    def test_a_batch_in_which_nothing_happened(self, name, pair):
        bonus, batch = seen(name, pair), make_batch(pair, seed=9)
        nothing = Batch.of(batch.obs, batch.action, batch.next_obs, mask=torch.zeros(batch.shape, dtype=torch.bool))
        scores, _ = bonus.observe(nothing)
        assert (scores == 0).all()

    def test_moves_to_a_device(self, name, pair):
        bonus = seen(name, pair)
        batch = make_batch(pair, seed=9)
        before = bonus.score(batch)
        assert bonus.to("cpu") is bonus
        assert torch.equal(before, bonus.score(batch))
        bonus.observe(batch)


@pytest.mark.parametrize("name", RATING)
class TestEveryBonusThatRates:
    def test_rare_states_score_higher(self, name):
        """200 visits to one place for each visit to the other: the other is more novel, and so is what happens there."""
        random = np.random.default_rng(0)
        often, rare = np.array([-0.5, -0.5]), np.array([0.6, 0.5])
        bonus = tuned(name)
        actions = np.zeros((100, 4, 2), np.float32)

        def around(centre, share=0.0):
            place = np.where(random.random((100, 4, 1)) < share, rare, centre)
            return (place + random.normal(0, 0.03, (100, 4, 2))).astype(np.float32)

        def transitions(obs):
            """At the rare place the world turns; elsewhere it rests. Only what rates transitions looks at it."""
            turned = np.where(obs[..., :1] > 0, obs[..., ::-1] * [1, -1], obs).astype(np.float32)
            return Batch.of(obs, actions, turned)

        for _ in range(3):
            bonus.observe(transitions(around(often, 0.005)))
        half = transitions(np.concatenate([around(often)[:, :2], around(rare)[:, 2:]], axis=1))
        bonus.prepare(half)
        scores = bonus.score(half)
        assert scores[:, 2:].mean() > scores[:, :2].mean() + scores[:, :2].std()

    @pytest.mark.slow
    def test_14_more_environments_mean_the_same(self, name):
        """The same transitions as 100 x 4 or 200 x 2 give the same densities up to sampling noise."""
        batch = make_batch((VECTOR, CONTINUOUS), 100, 4, seed=5)

        def stacked(x):
            return torch.cat([x[:, :2], x[:, 2:]])

        fields = {f: stacked(getattr(batch, f)) for f in ("obs", "action", "next_obs", "truncated")}
        fields["truncated"][99] = True
        wide, long, tall = tuned(name), tuned(name), Batch.of(**fields)
        for _ in range(3):
            wide.observe(batch)
            long.observe(tall)
        one, other = stacked(wide.score(batch)).flatten(), long.score(tall).flatten()
        assert np.corrcoef(one, other)[0, 1] > 0.75
        assert abs(one.mean() - other.mean()) < 0.5 * one.std() + 0.1

    def test_no_bonus_before_enough_was_seen(self, name):
        if not issubclass(kind_of(name), DensityBonus):
            pytest.skip("holds no replay")
        pair = SPACES["vector-continuous"]
        bonus = build(name, pair, min_replay=200)
        assert (bonus.observe(make_batch(pair))[0] == 0).all()
        assert (bonus.observe(make_batch(pair))[0] == 0).all()
        assert bonus.observe(make_batch(pair))[0].std() > 0

    def test_13_bytes_stay_bytes(self, name):
        bonus = seen(name, SPACES["image"])
        if name in ("rnd", "icm", "vime", COMBINED):
            pytest.skip("holds no frames")
        assert bonus.replay.rows().dtype == torch.uint8


def fields(name: str) -> list[tuple[str, dataclasses.Field]]:
    """Every setting of a bonus as `make_bonus` takes it, and the field it is."""
    parts = [(part, f"{part}." if "+" in name else "") for part in name.split("+")]
    return [(front + field.name, field) for part, front in parts for field in dataclasses.fields(settings_type(part))]


def outside(field: dataclasses.Field) -> list:
    """Values just outside a field's bounds, and a word that it does not know."""
    limits = field.metadata["limits"]
    beyond = {"least": -1, "above": 0, "most": 1, "below": 0}
    numbers = [bound + beyond[limit] for limit, bound in limits.items()]
    words = ["nosuch"] if field.metadata["among"] else []
    return [*([number] if "tuple" in str(field.type) else number for number in numbers), *words]


@pytest.mark.parametrize("name", NAMES)
class TestSettingsOfEveryBonus:
    def test_help_and_signature_show_every_one(self, name):
        kind = kind_of(name)
        said = " ".join(pydoc.plain(pydoc.render_doc(kind)).replace("|", " ").split())
        taken = inspect.signature(kind).parameters
        for own, spelling, default, doc in describe(kind.Settings):
            assert doc, own
            words = f"{own}: {spelling} = {default}. {doc}".replace("|", " ")
            assert " ".join(words.split()) in said
            assert repr(taken[own].default) == default
            assert taken[own].annotation == hints(kind.Settings)[own]

    def test_what_cannot_be_is_named_in_one_sentence(self, name):
        wrong = [(own, value) for own, field in fields(name) for value in (object(), float("nan"), *outside(field))]
        for own, value in wrong:
            with pytest.raises(UsageError) as refused:
                make_bonus(name, VECTOR, CONTINUOUS, **{own: value})
            said = str(refused.value)
            assert own.split(".")[-1] in said
            assert "\n" not in said

    def test_unknown_names_are_refused_with_the_nearest(self, name):
        for own in setting_names(name):
            with pytest.raises(UsageError, match=f"did you mean '{own}'"):
                make_bonus(name, VECTOR, CONTINUOUS, **{f"{own}_": 1})

    def test_written_and_read_back(self, name):
        changed = {own: SMALL[own.split(".")[-1]] for own in setting_names(name) if own.split(".")[-1] in SMALL}
        changed |= {own: [0, 1] for own in setting_names(name) if own.split(".")[-1] == "entries"}
        for values in ({}, changed):
            settings = bonus_settings(name, values)
            assert isinstance(settings, settings_type(name))
            assert bonus_settings(name, settings.as_dict()) == settings
            assert bonus_settings(name, json.loads(json.dumps(settings.as_dict()))) == settings

    def test_settings_or_keywords_or_both(self, name):
        own, value = ("rnd.hidden", 8) if name == COMBINED else ("inputs", "next-state")
        own, value = (own, value) if own in setting_names(name) else ("entries", [1])
        settings = bonus_settings(name, {own: value})
        given = make_bonus(name, VECTOR, CONTINUOUS, settings)
        assert given.settings == settings
        assert make_bonus(name, VECTOR, CONTINUOUS, bonus_settings(name, {}), **{own: value}).settings == settings
        assert kind_of(name)(VECTOR, CONTINUOUS, settings).settings == settings
        with pytest.raises(dataclasses.FrozenInstanceError):
            given.settings.entries = None
        for wrong in ({own: value}, bonus_settings("icm" if name != "icm" else "vime", {})):
            with pytest.raises(UsageError, match="Settings"):
                make_bonus(name, VECTOR, CONTINUOUS, wrong)


def test_numbers_may_be_those_of_numpy():
    settings = bonus_settings("kde", {"subsample": np.int64(7), "bandwidth": np.float32(0.5), "entries": [np.int64(1)]})
    assert json.loads(json.dumps(settings.as_dict()))["subsample"] == 7
    assert settings.entries == (1,)


def test_settings_of_other_parts_are_refused():
    with pytest.raises(UsageError, match="setting of the bonus 'rnd\\+kde' 'simhash'"):
        make_bonus("rnd+kde", VECTOR, CONTINUOUS, bonus_settings("rnd+simhash", {}))


def test_a_bonus_of_ones_own_has_settings_of_its_own():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class OwnSettings(BonusSettings):
        much: float = setting(1.0, "how much everything counts", above=0.0)

    class Own(kind_of("none")):
        """Everything is new."""

        Settings = OwnSettings

        def score(self, batch):
            return torch.full(batch.shape, self.settings.much)

    bonus = Own(VECTOR, CONTINUOUS, much=2.0, inputs="next-state")
    assert (bonus.observe(make_batch((VECTOR, CONTINUOUS)))[0] == 2.0).all()
    assert "much: float = 1.0. how much everything counts" in Own.__doc__
    assert "much" in inspect.signature(Own).parameters
    with pytest.raises(UsageError, match="bonus 'Own' 'mutch': did you mean 'much'"):
        Own(VECTOR, CONTINUOUS, mutch=2.0)
