"""SwimmerGather: objects, what is caught, what the sensors read, and that the integration is the original's motion."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from ex2.tasks import make_vector_env, swimmer_gather

task = swimmer_gather.SwimmerGather()
GREEN, RED = swimmer_gather.GREEN, swimmer_gather.RED
FAR = (100.0, 100.0)


def state(objects: dict[int, tuple[float, float]], heading: float = 0.0) -> np.ndarray:
    """A straight swimmer with its centre of mass at the origin, and these objects; the others are far away."""
    one = np.zeros(task._physics + 3 * (GREEN + RED))
    one[3] = heading
    one[1:3] -= task.centre_of_mass(one[None])[0, :2]
    places = np.full((GREEN + RED, 3), [*FAR, 1.0])
    for index, place in objects.items():
        places[index, :2] = place
    one[task._physics :] = places.ravel()
    return one[None]


def test_objects_lie_on_the_lattice():
    random = np.random.default_rng(0)
    for _ in range(50):
        objects = task.objects(task.initial_state(random)[None])[0]
        places = objects[:, :2]
        assert (places % 2 == 0).all()
        assert np.abs(places).max() <= 6
        assert np.linalg.norm(places, axis=1).min() >= 2
        assert len(np.unique(places, axis=0)) == 16
        assert (objects[:, 2] == 1).all()


@pytest.mark.parametrize(("index", "expected"), [(0, 1.0), (GREEN, -1.0)])
def test_an_object_is_caught_at_distance_one_and_gone_after(index, expected):
    before = state({index: (0.0, 1.001)})
    _, reward, _ = task.arrive(before.copy())
    assert reward.tolist() == [0.0]
    after = state({index: (0.0, 0.999)})
    _, reward, ended = task.arrive(after)
    assert reward.tolist() == [expected]
    assert not ended.any()
    assert task.objects(after)[0, index, 2] == 0
    assert task.arrive(after)[1].tolist() == [0.0]
    assert not task.sensors(after).any()


def test_green_and_red_at_once():
    assert task.arrive(state({0: (0.5, 0.0), 1: (-0.5, 0.0), GREEN: (0.0, 0.5)}))[1].tolist() == [1.0]


def test_the_episode_ends_when_nothing_is_left():
    one = state({3: (0.0, 0.5)})
    objects = task.objects(one)
    objects[0, :, 2] = 0.0
    objects[0, 3, 2] = 1.0
    _, reward, ended = task.arrive(one)
    assert reward.tolist() == [1.0]
    assert ended.tolist() == [True]


@pytest.mark.parametrize("heading", [0.0, 1.0, -3.0])
@pytest.mark.parametrize(
    ("degrees", "bin_"), [(-89.9, 0), (-81.0, 0), (-9.0, 4), (-0.1, 4), (0.1, 5), (9.0, 5), (81.0, 9), (89.9, 9)]
)
def test_sensor_bins_at_known_angles(degrees, bin_, heading):
    angle = np.radians(degrees) + heading
    place = (3 * np.cos(angle), 3 * np.sin(angle))
    for index, offset in ((0, 0), (GREEN, swimmer_gather.BINS)):
        readings = task.sensors(state({index: place}, heading))[0]
        assert readings[offset + bin_] == pytest.approx(0.5)
        assert readings.sum() == pytest.approx(0.5)


def test_sensors_see_the_nearest_and_not_behind_and_not_beyond():
    assert task.sensors(state({0: (3.0, 0.1), 1: (2.0, 0.1)})).max() == pytest.approx(1 - np.hypot(2.0, 0.1) / 6)
    assert not task.sensors(state({0: (-3.0, 0.1)})).any()
    assert not task.sensors(state({0: (6.1, 0.0)})).any()


def test_the_observation():
    observation = task.observation(np.stack([task.initial_state(np.random.default_rng(seed)) for seed in range(3)]))
    assert observation.shape == (3, 33)
    assert observation.dtype == np.float32


def test_a_batch_keeps_its_objects_apart():
    env = make_vector_env("gather", 2)
    env.reset(seed=0)
    states = env.unwrapped._states
    centre = task.centre_of_mass(states)[0, :2]
    task.objects(states)[0, 0, :2] = centre
    _, reward, *_ = env.step(np.zeros((2, 2)))
    assert reward.tolist() == [1.0, 0.0]
    assert task.objects(env.unwrapped._states)[:, 0, 2].tolist() == [0.0, 1.0]


def integrated(integrator: mujoco.mjtIntegrator, timestep: float) -> mujoco.MjModel:
    """The same body under another integration."""
    model = swimmer_gather.SwimmerGather().model
    model.opt.timestep = timestep
    model.opt.integrator = integrator
    return model


def test_the_motion_is_the_original_s():
    """From states along the original's own path, by 1 and 20 actions of it (0.05 s and 1 s).

    Of 100 such moves 95 end within 0.001 and 0.015 m or rad of where rllab's 50 Euler steps of 0.001 s lead, and that
    itself is 0.0005 and 0.004 from the exact motion. Over whole episodes all of them part ways: the joints hit their stops.
    """
    original = integrated(mujoco.mjtIntegrator.mjINT_EULER, 0.001)
    exact = integrated(mujoco.mjtIntegrator.mjINT_RK4, 0.0005)
    random = np.random.default_rng(0)
    actions = 50 * random.uniform(-1, 1, (800, 2))
    actions[400:] = 50 * np.sin(np.arange(400)[:, None] * 0.2 + [0.0, 1.2])

    def move(model: mujoco.MjModel, begin: np.ndarray, some: np.ndarray) -> np.ndarray:
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = begin[:5], begin[5:]
        for action in some:
            data.ctrl[:] = action
            mujoco.mj_step(model, data, round(0.05 / model.opt.timestep))
        return np.concatenate([data.qpos, data.qvel])

    path = [np.zeros(10)]
    for action in actions:
        path.append(move(original, path[-1], [action]))
    for horizon, tolerance in ((1, 0.001), (20, 0.015)):
        ends = {name: [] for name in ("begin", "original", "exact", "ours")}
        for begin in range(0, 780, 12):
            some = actions[begin : begin + horizon]
            ends["begin"].append(path[begin])
            for name, model in (("original", original), ("exact", exact), ("ours", task.model)):
                ends[name].append(move(model, path[begin], some))

        def apart(one: str, other: str) -> float:
            return np.quantile(np.abs(np.array(ends[one]) - np.array(ends[other]))[:, :5].max(1), 0.95)  # noqa: B023

        assert apart("ours", "original") < tolerance
        assert apart("ours", "exact") < 3 * apart("original", "exact")
        assert apart("begin", "original") > 20 * tolerance
