"""The 2D maze (paper, section 6 and appendix): reach the goal behind a wall, with the position as the only observation.

Every step costs 1, except in the corner of the goal, where it costs 5 times the city-block distance to the goal. A straight
run round the wall takes 65 to 75 steps, so an episode of 200 steps returns about -65 to -70 at best and -200 for an agent
that never finds the goal.

The sparse maze is the same arena without any hint: 1 at the goal, where the episode ends, and 0 elsewhere. Not of the paper.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import gymnasium
import mujoco
import numpy as np

from ex2.arrays import Array
from ex2.tasks.drawing import Canvas, segment_distance
from ex2.tasks.map import Map
from ex2.tasks.mujoco_batch import MujocoTask, MujocoVectorEnv, single
from ex2.tasks.rules import drawable
from ex2.tasks.single import Single

HALF_WIDTH = 0.3  # m, from the centre of the arena to the middle of its outer walls
WALL_RADIUS = 0.02  # m
BALL_RADIUS = 0.03  # m
START = np.array([-0.15, -0.15])  # m
GOAL = np.array([0.15, -0.15])  # m
START_NOISE = 0.01  # m and m/s, uniform to both sides
GOAL_REGION_X = 0.0  # m, the goal's corner is x > 0 ...
GOAL_REGION_Y = -0.08  # m, ... and y < -0.08
GOAL_SLOPE = 5.0  # reward lost per metre from the goal, inside its corner
GOAL_RADIUS = 0.05  # m, how near to the goal the sparse maze ends
EPISODE_STEPS = 200
PHYSICS_STEPS = 2  # of 0.01 s
WALLS = np.array(  # m, (x, y) of both ends of each wall's middle line, the inner wall last
    [
        [[-0.3, -0.3], [-0.3, 0.3]],
        [[0.3, -0.3], [0.3, 0.3]],
        [[-0.3, -0.3], [0.3, -0.3]],
        [[-0.3, 0.3], [0.3, 0.3]],
        [[0.0, -0.3], [0.0, 0.05]],
    ]
)
PICTURE_SIZE = 256  # pixels
COLOURS = {
    "floor": (246, 246, 242),
    "region": (223, 240, 223),
    "wall": (64, 69, 82),
    "start": (200, 200, 196),
    "goal": (46, 160, 67),
    "ball": (51, 115, 217),
}


def in_goal_region(positions: Array) -> Array:
    """[..., 2] -> bool [...]: where the reward leads to the goal."""
    return (positions[..., 0] > GOAL_REGION_X) & (positions[..., 1] < GOAL_REGION_Y)


def reachable(cells: int) -> Array:
    """bool [cells, cells], y first: where the middle of the ball can be."""
    middle = ((np.arange(cells) + 0.5) / cells * 2 - 1) * HALF_WIDTH
    points = np.stack(np.meshgrid(middle, middle), axis=-1)
    distance: Array = np.min([segment_distance(points, *wall) for wall in WALLS], axis=0)
    return distance > BALL_RADIUS + WALL_RADIUS - HALF_WIDTH / cells


class Maze(MujocoTask):
    """The maze's dynamics, observation and reward, for one environment or a batch."""

    physics_steps = PHYSICS_STEPS
    episode_steps = EPISODE_STEPS
    frames_per_second = 50
    observation_space = gymnasium.spaces.Box(-HALF_WIDTH, HALF_WIDTH, (2,), np.float32)

    def __init__(self, sparse: bool = False) -> None:
        self.sparse = sparse
        self.model = mujoco.MjModel.from_xml_string((files("ex2.tasks") / "assets" / "maze.xml").read_text())

    def initial_state(self, random: np.random.Generator) -> Array:
        noise = random.uniform(-START_NOISE, START_NOISE, 4)
        return np.concatenate([[0.0], START + noise[:2], noise[2:]])

    def observation(self, states: Array) -> Array:
        return states[:, 1:3].astype(np.float32)

    def arrive(self, states: Array) -> tuple[Array, Array, Array]:
        positions = states[:, 1:3]
        if self.sparse:
            there = np.linalg.norm(positions - GOAL, axis=1) < GOAL_RADIUS
            return self.observation(states), there.astype(np.float64), there
        apart = np.abs(positions - GOAL)
        reward = np.where(in_goal_region(positions), -GOAL_SLOPE * (apart[:, 0] + apart[:, 1]), -1.0)
        return self.observation(states), reward, np.zeros(len(states), bool)

    def draw(self, state: Array) -> Array:
        """The arena from above."""
        canvas = Canvas(PICTURE_SIZE, HALF_WIDTH + 2 * WALL_RADIUS, COLOURS["floor"])
        inside = (np.abs(canvas.points) < HALF_WIDTH).all(axis=-1)
        if self.sparse:
            canvas.disc(GOAL, GOAL_RADIUS, COLOURS["region"])
        else:
            canvas.fill(in_goal_region(canvas.points) & inside, COLOURS["region"])
        canvas.disc(START, BALL_RADIUS, COLOURS["start"])
        canvas.disc(GOAL, BALL_RADIUS, COLOURS["goal"])
        for begin, end in WALLS:
            canvas.line(begin, end, WALL_RADIUS, COLOURS["wall"])
        canvas.disc(state[1:3], BALL_RADIUS, COLOURS["ball"])
        return canvas.picture()


def make_map() -> Map:
    """The arena as a map, by the ball's position."""
    extent = (-HALF_WIDTH, HALF_WIDTH, -HALF_WIDTH, HALF_WIDTH)
    return Map(("x (m)", "y (m)"), lambda seen, infos: seen, extent, WALLS, tuple(START), tuple(GOAL), reachable)


@drawable
def make_env(sparse: bool = False, **settings: Any) -> Single:
    """The entry point of `gymnasium.make("ex2/Maze-v0")` and of "ex2/SparseMaze-v0"."""
    return single(Maze(sparse), **settings)


def make_vector_env(num_envs: int = 1, sparse: bool = False, **settings: Any) -> MujocoVectorEnv:
    """The entry point of `gymnasium.make_vec("ex2/Maze-v0", num_envs=...)` and of "ex2/SparseMaze-v0"."""
    return MujocoVectorEnv(Maze(sparse), num_envs, **settings)
