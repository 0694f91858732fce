"""The maze's known answers."""

from __future__ import annotations

import numpy as np
import pytest

from ex2 import UsageError
from ex2.tasks import maze
from ex2.training.environments import vector_env


def state(x, y, vx=0.0, vy=0.0):
    return np.array([[0.0, x, y, vx, vy]])


def drive(env, steer, steps=200):
    """The return of one episode under a controller of positions."""
    observation, _ = env.reset(seed=0)
    total = 0.0
    for _ in range(steps):
        observation, reward, _, truncated, _ = env.step(steer(observation))
        total += reward[0]
    return total, truncated


def test_reward():
    task = maze.Maze()
    assert task.arrive(state(-0.15, -0.15))[1][0] == -1.0
    assert task.arrive(state(0.15, -0.15))[1][0] == pytest.approx(0.0)
    assert task.arrive(state(0.15, -0.0799))[1][0] == -1.0
    assert task.arrive(state(0.15, -0.0801))[1][0] == pytest.approx(-5 * 0.0699)
    assert task.arrive(state(0.05, -0.2))[1][0] == pytest.approx(-5 * 0.15)
    assert task.arrive(state(-0.001, -0.2))[1][0] == -1.0


def test_start_noise_and_episode_length():
    env = maze.make_vector_env(500)
    observation, _ = env.reset(seed=0)
    assert np.abs(observation - maze.START).max() <= maze.START_NOISE + 1e-6
    assert np.abs(observation - maze.START).max() > 0.9 * maze.START_NOISE
    for step in range(1, 201):
        _, _, terminated, truncated, _ = env.step(np.zeros((500, 2)))
        assert not terminated.any()
        assert truncated.all() == (step == 200)


def test_top_speed_is_half_a_metre_a_second():
    """Motors of 0.5 N against damping of 1 N s/m."""
    task = maze.Maze()
    env = maze.MujocoVectorEnv(task, 1)
    env.reset(seed=0)
    env.set_state(env.get_state() | {"states": state(-0.2, 0.2)})
    for _ in range(35):
        env.step(np.array([[1.0, 0.0]]))
    assert env.get_state()["states"][0, 3] == pytest.approx(0.5, abs=0.03)


def test_walls_hold():
    """Pushed any way for two episodes, the ball stays in the arena and never crosses the inner wall."""
    env = maze.make_vector_env(64)
    observation, _ = env.reset(seed=0)
    angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    for _ in range(199):
        before = observation
        observation, *_ = env.step(np.stack([np.cos(angles), np.sin(angles)], 1))
        assert np.abs(observation).max() < 0.26
        crossed = (before[:, 0] < 0) != (observation[:, 0] < 0)
        assert (observation[crossed, 1] > 0.05).all()


def test_a_straight_run_round_the_wall_is_worth_about_minus_65():
    def steer(position):
        x, y = position[0]
        if x < -0.03 and y < 0.07:
            return np.array([[0.35, 1.0]])
        if x < 0.05:
            return np.array([[1.0, 0.2 if y < 0.1 else -0.5]])
        return np.clip((maze.GOAL - position) * 20.0, -1, 1)

    total, truncated = drive(maze.make_vector_env(1), steer)
    assert truncated.all()
    assert -75 < total < -58


def test_standing_still_is_worth_minus_200():
    assert drive(maze.make_vector_env(1), lambda position: np.zeros((1, 2)))[0] == -200.0


def test_misuse_is_named():
    env = maze.make_vector_env(2)
    with pytest.raises(UsageError, match="before reset"):
        env.step(np.zeros((2, 2)))
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"shape \(3, 2\)"):
        env.step(np.zeros((3, 2)))
    with pytest.raises(UsageError, match="action of environment 1"):
        env.step(np.array([[0.0, 0.0], [np.nan, 0.0]]))
    with pytest.raises(UsageError, match="3 seeds for 2"):
        env.reset(seed=[1, 2, 3])


def test_the_sparse_maze_gives_1_at_the_goal_and_ends_there():
    task = maze.Maze(sparse=True)
    for place, there in (((-0.15, -0.15), False), ((0.15, -0.15), True), ((0.15, -0.101), True), ((0.15, -0.099), False)):
        _, reward, ended = task.arrive(state(*place))
        assert (reward[0], ended[0]) == (float(there), there)
    with pytest.raises(UsageError, match="sparse"):
        vector_env("sparse-maze", 2, sparse=False)
