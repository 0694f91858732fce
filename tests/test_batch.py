from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from conftest import CONTINUOUS, IMAGE, TILES, VECTOR, make_batch
from ex2 import Batch, UsageError
from ex2.batch import Inputs


def test_2_groups_never_cross_an_episode_or_an_environment():
    steps, envs = 23, 3
    truncated, mask = torch.zeros(steps, envs, dtype=torch.bool), torch.ones(steps, envs, dtype=torch.bool)
    truncated[6, 0] = truncated[13, 1] = True
    mask[14, 1] = False
    obs = torch.zeros(steps, envs, 1)
    episode = torch.zeros(steps, envs, dtype=torch.long)
    for env in range(envs):
        number = 100 * env
        for step in range(steps):
            episode[step, env] = number
            number += int(truncated[step, env]) + 1000 * int(not mask[step, env])
    groups = Batch.of(obs, obs, obs, truncated=truncated, mask=mask).groups(5)
    flat = episode.flatten()[groups]
    assert (flat == flat[:, :1]).all()
    assert (torch.div(groups, envs, rounding_mode="floor").diff(dim=1) <= 1).all()
    members = [sorted(set(group)) for group in groups.tolist()]
    together = sorted(index for group in members for index in group)
    assert together == torch.nonzero(mask.flatten()).flatten().tolist()


def test_groups_of_one_are_the_states():
    batch = make_batch((VECTOR, CONTINUOUS))
    assert sorted(batch.groups(1).flatten().tolist()) == list(range(120))


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
    assert rows.shape == (30, 4, 16 * 16 * 3 + 3)
    with pytest.raises(UsageError, match="Discrete action space"):
        Inputs(IMAGE, CONTINUOUS, "state-action")


@pytest.mark.parametrize(
    ("space", "name"), [(spaces.Dict({"a": VECTOR}), "Dict"), (spaces.Tuple([VECTOR]), "Tuple"), (spaces.Text(3), "Text")]
)
def test_spaces_that_are_not_taken_are_named(space, name):
    with pytest.raises(UsageError, match=name):
        Inputs(space, CONTINUOUS)


def test_bounds_that_are_no_bounds_and_values_that_do_not_start_at_0():
    largest = np.finfo(np.float32).max
    rows = Inputs(spaces.Box(-largest, largest, (2,)), CONTINUOUS).encode(torch.tensor([[3.0, -2.0]]))
    assert rows.tolist() == [[3.0, -2.0]]
    rows = Inputs(spaces.MultiDiscrete([3, 3], start=[10, 10]), CONTINUOUS).encode(torch.tensor([[10, 12]]))
    assert rows.tolist() == [[-1.0, 1.0]]


def test_unknown_inputs_suggest_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'state-action'"):
        Inputs(VECTOR, CONTINUOUS, "state_action")


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(UsageError, match=r"\(5, 2, 3\)"):
        Batch.of(np.zeros((5, 2, 3)), np.zeros((5, 3, 1)), np.zeros((5, 2, 3)))
    with pytest.raises(UsageError, match="mask has shape"):
        Batch.of(np.zeros((5, 2, 3)), np.zeros((5, 2, 1)), np.zeros((5, 2, 3)), mask=np.ones(5))


def test_values_outside_a_discrete_space_are_named():
    with pytest.raises(UsageError, match="obs holds values outside"):
        Inputs(TILES, CONTINUOUS).rows(Batch.of(torch.tensor([[7]]), torch.zeros(1, 1, 2), torch.tensor([[0]])))
