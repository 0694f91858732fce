"""What of an observation a bonus sees."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from ex2 import UsageError
from ex2.adapters.gymnasium import BonusWrapper
from ex2.view import View

DICT = spaces.Dict(
    {"image": spaces.Box(0, 255, (3, 16, 16), np.uint8), "place": spaces.Box(-1.0, 1.0, (4,)), "note": spaces.Text(9)}
)


def seen(count=5):
    return {"image": np.zeros((count, 3, 16, 16), np.uint8), "place": np.ones((count, 4), np.float32), "note": ("a",) * count}


def test_keys_choose_parts_of_a_dict():
    one, several = View(DICT, "place"), View(DICT, ["place", "image"])
    assert one.space == DICT["place"]
    assert one(seen()).shape == (5, 4)
    assert set(several(seen())) == {"place", "image"}
    assert set(several.space.spaces) == {"place", "image"}


def test_a_function_is_asked_what_it_makes():
    view = View(DICT, lambda obs: obs["place"][:, :2])
    assert view.space.shape == (2,)
    assert view.space.dtype == np.float32
    assert view(seen()).shape == (5, 2)
    pictures = View(DICT, lambda obs: obs["image"][:, :1])
    assert pictures.space == spaces.Box(0, 255, (1, 16, 16), np.uint8)


@pytest.mark.parametrize(
    "see", [torch.as_tensor, lambda obs: (2.0 * obs).tolist(), lambda obs: {"half": torch.as_tensor(obs) / 2}]
)
def test_a_function_may_give_tensors_and_lists(see):
    space = spaces.Box(-1.0, 1.0, (4,))
    view = View(space, see)
    made = view(np.ones((5, 4), np.float32))
    made, place = (made["half"], view.space["half"]) if isinstance(made, dict) else (made, view.space)
    assert isinstance(made, np.ndarray)
    assert (made.shape, place.shape) == ((5, 4), (4,))
    env = BonusWrapper(gymnasium.make("ex2/Maze-v0"), "rnd", see=see)
    env.reset(seed=0)
    env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("see", "sentence"),
    [
        ("imag", "There is no part of the observations 'imag': did you mean 'image'"),
        ([], "leaves nothing to see"),
        (lambda obs: obs["place"].sum(), "must keep the first dimension"),
        (lambda obs: obs["place"].astype(int), "must give floating point numbers"),
        (lambda obs: obs["plaice"], r"see failed on two observations of Dict.*KeyError: 'plaice'"),
    ],
)
def test_what_cannot_be_seen_is_named(see, sentence):
    with pytest.raises(UsageError, match=sentence):
        View(DICT, see)


def test_what_is_no_key_is_refused():
    with pytest.raises(UsageError, match="see=3 must be a key of"):
        View(DICT, 3)


def test_keys_are_of_dicts():
    with pytest.raises(UsageError, match="see='place' is for Dict observations"):
        View(spaces.Box(-1.0, 1.0, (4,)), "place")


@pytest.mark.parametrize(
    ("shape", "last_frame", "left"),
    [
        ((4, 42, 42), True, (1, 42, 42)),
        ((42, 42, 4), True, (42, 42, 1)),
        ((12, 42, 42), 3, (3, 42, 42)),
        ((42, 42, 12), 3, (42, 42, 3)),
        ((3, 42, 42), 1, (1, 42, 42)),
    ],
)
def test_the_last_frame_is_the_newest_channels(shape, last_frame, left):
    view = View(spaces.Box(0, 255, shape, np.uint8), last_frame=last_frame)
    frames = np.random.default_rng(0).integers(0, 256, (2, *shape)).astype(np.uint8)
    assert view.space.shape == left
    assert view(frames).shape == (2, *left)
    assert np.array_equal(view(frames), frames[:, -left[0] :] if left[0] < 42 else frames[..., -left[2] :])


@pytest.mark.parametrize(
    ("shape", "last_frame", "sentence"),
    [
        ((4,), True, "last_frame is for stacks of frames"),
        ((12, 42, 42), True, "may be a colour: say how many"),
        ((3, 42, 42), True, "may be a colour"),
        ((4, 42, 42), 3, "it must divide them"),
        ((4, 42, 42), 0, "it must divide them"),
        ((4, 42, 42), "yes", "last_frame='yes' must be True, or how many channels a frame has"),
    ],
)
def test_what_is_no_stack_of_frames_is_refused(shape, last_frame, sentence):
    with pytest.raises(UsageError, match=sentence):
        View(spaces.Box(0, 255, shape, np.uint8), last_frame=last_frame)
