from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import CONTINUOUS, VECTOR, make_batch
from ex2 import Batch, UsageError


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


def test_views_of_any_kind_are_taken():
    obs = np.arange(12.0, dtype=np.float32).reshape(3, 2, 2)
    longer = obs.astype(np.longdouble)
    swapped = longer.astype(longer.dtype.newbyteorder())
    for view in (obs[::-1], obs[:, ::-1, ::-1], obs.astype(">f4"), np.asfortranarray(obs), longer, swapped):
        assert np.array_equal(Batch.of(view, np.zeros((3, 2, 1)), view).obs, view)


def test_half_precision_is_taken():
    """NumPy does not know bfloat16, and what is held of a batch is arrays."""
    values = torch.ones(3, 2, 1, dtype=torch.bfloat16)
    assert Batch.of(values, values, values).obs.numpy().dtype == np.float32


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(UsageError, match=r"\(5, 2, 3\)"):
        Batch.of(np.zeros((5, 2, 3)), np.zeros((5, 3, 1)), np.zeros((5, 2, 3)))
    with pytest.raises(UsageError, match="mask has shape"):
        Batch.of(np.zeros((5, 2, 3)), np.zeros((5, 2, 1)), np.zeros((5, 2, 3)), mask=np.ones(5))
