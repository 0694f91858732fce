from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from conftest import CONTINUOUS, IMAGE, TILES, VECTOR, make_batch
from ex2 import Batch, UsageError
from ex2.inputs import Inputs


def test_actions_are_clipped_and_scaled_beside_states():
    inputs = Inputs(VECTOR, spaces.Box(-2.0, 2.0, (1,)), "state-action", action_scale=0.5)
    batch = Batch.of(torch.tensor([[[0.5, -1.0]]]), torch.tensor([[[7.0]]]), torch.zeros(1, 1, 2))
    assert inputs.rows(batch).tolist() == [[[0.5, -1.0, 0.5]]]


def test_entries_are_all_that_counts_of_a_vector():
    inputs = Inputs(spaces.Box(0.0, 4.0, (3,)), CONTINUOUS, "state-action", entries=[2, 0])
    batch = Batch.of(torch.tensor([[[0.0, 1.0, 3.0]]]), torch.tensor([[[0.5, -0.5]]]), torch.zeros(1, 1, 3))
    assert inputs.width == 4
    assert inputs.rows(batch).tolist() == [[[0.5, -1.0, 0.5, -0.5]]]


@pytest.mark.parametrize(("space", "entries"), [(VECTOR, [2]), (VECTOR, []), (VECTOR, [0.5]), (IMAGE, [0]), (TILES, [0])])
def test_entries_that_are_not_there_are_refused(space, entries):
    with pytest.raises(UsageError, match="entries"):
        Inputs(space, CONTINUOUS, entries=entries)


def test_discrete_states_are_one_hot():
    rows = Inputs(TILES, CONTINUOUS).rows(Batch.of(torch.tensor([[3]]), torch.zeros(1, 1, 2), torch.tensor([[0]])))
    assert rows.tolist() == [[[0, 0, 0, 1, 0]]]


def test_images_with_discrete_actions_are_bytes_with_one_hot_bytes():
    pair = (IMAGE, spaces.Discrete(3))
    rows = Inputs(*pair, "state-action").rows(make_batch(pair))
    assert rows.dtype == torch.uint8
    assert rows.shape == (30, 4, 16 * 16 * 3 + 4 * 3)
    batch = make_batch(pair, seed=2)
    pictures, numbers = Inputs(*pair, "state-action").split(Inputs(*pair, "state-action").rows(batch).flatten(0, 1))
    assert torch.equal(pictures[0].permute(0, 2, 3, 1), batch.obs.flatten(0, 1))
    assert torch.equal(numbers.argmax(1), batch.action.flatten())


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (spaces.Text(3), "Text"),
        (spaces.Dict({"a": VECTOR, "b": spaces.Text(3)}), r"observation\['b'\] space is Text.*entries"),
        (spaces.Box(0, 1, (0,)), "no numbers"),
        (spaces.Dict({}), "entries"),
    ],
)
def test_spaces_that_are_not_taken_are_named(space, name):
    with pytest.raises(UsageError, match=name):
        Inputs(space, CONTINUOUS)


MIXED = spaces.Dict(
    {
        "place": spaces.Box(0.0, 4.0, (2,)),
        "view": spaces.Box(0, 255, (12, 12, 3), np.uint8),
        "more": spaces.Tuple([spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (1,))]),
    }
)


def mixed_observations(steps, envs, seed=0):
    random = np.random.default_rng(seed)
    return {
        "place": random.uniform(0, 4, (steps, envs, 2)).astype(np.float32),
        "view": random.integers(0, 256, (steps, envs, 12, 12, 3)).astype(np.uint8),
        "more": (random.integers(3, size=(steps, envs)), random.normal(size=(steps, envs, 1)).astype(np.float32)),
    }


def test_all_parts_of_a_dict_count_and_come_back():
    obs = mixed_observations(5, 2)
    inputs = Inputs(MIXED, CONTINUOUS)
    batch = Batch.of(obs, np.zeros((5, 2, 2)), obs)
    assert batch.shape == (5, 2)
    assert batch.environments(slice(0, 1)).shape == (5, 1)
    rows = inputs.rows(batch)
    assert rows.dtype == torch.uint8
    (view,), numbers = inputs.split(rows.flatten(0, 1))
    assert np.array_equal(view.permute(0, 2, 3, 1), obs["view"].reshape(10, 12, 12, 3))
    tiles, heat, place = numbers.split([3, 1, 2], dim=1)  # dicts by their keys in order
    assert np.array_equal(tiles.argmax(1), obs["more"][0].reshape(10))
    assert np.array_equal(heat, obs["more"][1].reshape(10, 1))
    assert np.allclose(place, obs["place"].reshape(10, 2) / 2 - 1, atol=1e-6)


def test_parts_of_a_dict_can_be_chosen():
    obs = mixed_observations(5, 2)
    inputs = Inputs(MIXED, CONTINUOUS, entries=["place"])
    assert inputs.dtype == torch.float32
    assert inputs.width == 2
    inputs.rows(Batch.of(obs, np.zeros((5, 2, 2)), obs))
    with pytest.raises(UsageError, match=r"\['more', 'place', 'view'\]"):
        Inputs(MIXED, CONTINUOUS, entries=["position"])


def test_small_pictures_are_vectors_and_pictures_of_numbers_become_bytes():
    small = Inputs(spaces.Box(0, 255, (7, 7, 3), np.uint8), CONTINUOUS)
    assert (small.pictures, small.numbers) == ([], 147)
    floats = Inputs(spaces.Box(0.0, 1.0, (12, 12, 3)), CONTINUOUS)
    obs = np.random.default_rng(0).random((2, 1, 12, 12, 3)).astype(np.float32)
    rows = floats.rows(Batch.of(obs, np.zeros((2, 1, 2)), obs))
    assert rows.dtype == torch.uint8
    assert np.abs(rows.numpy().reshape(obs.shape) / 255.0 - obs).max() < 0.003


def test_many_places_are_written_in_bits():
    inputs = Inputs(spaces.Discrete(10**6, start=5), CONTINUOUS)
    assert inputs.width == 20
    place = torch.tensor([[5 + 999_999, 5 + 3]])
    rows = inputs.rows(Batch.of(place, torch.zeros(1, 2, 2), place)).long()
    assert (rows * 2 ** torch.arange(20)).sum(-1).tolist() == [[999_999, 3]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([[["a", "b"]]]), "array of <U1"),
        (np.array([[[None, 1.0]]], object), "array of object"),
        ([[[1.0], [1.0, 2.0]]], "one array of one shape"),
        (np.zeros((0, 1, 2)), "empty"),
        (np.full((1, 1, 2), 1e39), "float32"),
    ],
)
def test_what_is_no_batch_of_numbers_is_named(values, message):
    with pytest.raises(UsageError, match=message):
        Inputs(VECTOR, CONTINUOUS).rows(Batch.of(values, np.zeros((len(values), 1, 2)), values))


def test_bounds_that_are_no_bounds_and_values_that_do_not_start_at_0():
    largest = np.finfo(np.float32).max
    rows = Inputs(spaces.Box(-largest, largest, (2,)), CONTINUOUS).encode(torch.tensor([[3.0, -2.0]]))
    assert rows.tolist() == [[3.0, -2.0]]
    rows = Inputs(spaces.MultiDiscrete([3, 3], start=[10, 10]), CONTINUOUS).encode(torch.tensor([[10, 12]]))
    assert rows.tolist() == [[-1.0, 1.0]]


def test_unknown_inputs_suggest_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'state-action'"):
        Inputs(VECTOR, CONTINUOUS, "state_action")


def test_values_outside_a_discrete_space_are_named():
    with pytest.raises(UsageError, match="obs holds values outside"):
        Inputs(TILES, CONTINUOUS).rows(Batch.of(torch.tensor([[7]]), torch.zeros(1, 1, 2), torch.tensor([[0]])))
