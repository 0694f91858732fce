"""SwimmerGather (paper, section 6; rllab): a three-link swimmer collects green objects and avoids red ones.

Nothing but touching an object is rewarded, and an object is far away in wriggles: the agent has to learn to swim first.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import gymnasium
import mujoco
import numpy as np

from ex2.arrays import Array
from ex2.tasks.drawing import Canvas
from ex2.tasks.map import Map
from ex2.tasks.mujoco_batch import MujocoTask, MujocoVectorEnv, PlanarBody, single
from ex2.tasks.rules import drawable
from ex2.tasks.single import Single

GREEN, RED = 8, 8  # objects of each colour
RANGE = 6.0  # m, of the lattice to each side of the start
SPACING = 2.0  # m, of the lattice, and between the start and the nearest object
CATCH = 1.0  # m from the swimmer's centre of mass
BINS = 10  # of each colour's sensor ...
SPAN = np.pi  # rad, ... over the half circle ahead
SIGHT = 6.0  # m
EPISODE_STEPS = 500
PHYSICS_STEPS = 5  # of 0.01 s
POSITION_NOISE, VELOCITY_NOISE = 0.01, 0.1  # standard deviations at the start, in m and rad, and per second
HINGES_TURN = 1  # about the z axis: from x towards y
LINKS = ((0.0, 0.5, 1.5), (0.5, -1.0, 0.0), (-1.0, -1.0, 0.0))  # m: the joint along the link before, the link's two ends
EDGE = RANGE + 1.1  # m, from the start to each wall
CORNERS = EDGE * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
LINK_RADIUS = 0.1  # m
PICTURE_SIZE = 320  # pixels
OBJECT_RADIUS = 0.25  # m, in pictures: there is nothing to bump into
COLOURS = {"water": (234, 243, 247), "wall": (64, 69, 82), "link": (217, 150, 66), "head": (176, 98, 38)}
OBJECT_COLOURS = np.array([(46, 160, 67)] * GREEN + [(207, 63, 59)] * RED)

LATTICE = SPACING * np.stack(np.meshgrid(np.arange(-3, 4), np.arange(-3, 4)), axis=-1).reshape(-1, 2)
LATTICE = LATTICE[np.linalg.norm(LATTICE, axis=1) >= SPACING]  # m, [48, 2]
REWARDS = np.repeat([1.0, -1.0], [GREEN, RED])  # for each object
SENSOR = np.repeat([0, BINS], [GREEN, RED])  # where the readings of its colour begin


class SwimmerGather(MujocoTask):
    """The swimmer, its objects and its sensors, for one environment or a batch.

    Behind the physics, a state holds the objects: x, y and whether it is still there, [16, 3], the green ones first.
    Observation (33): positions (5), velocities (5), centre of mass (3), the green sensor (10), the red one (10).
    """

    physics_steps = PHYSICS_STEPS
    episode_steps = EPISODE_STEPS
    frames_per_second = 20
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (33,), np.float32)

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_string((files("ex2.tasks") / "assets" / "swimmer_gather.xml").read_text())
        self._physics = 1 + self.model.nq + self.model.nv
        self._body = PlanarBody(self.model, (0, 1), HINGES_TURN)

    def initial_state(self, random: np.random.Generator) -> Array:
        position = self.model.qpos0 + POSITION_NOISE * random.standard_normal(self.model.nq)
        velocity = VELOCITY_NOISE * random.standard_normal(self.model.nv)
        places = random.choice(LATTICE, GREEN + RED, replace=False)
        objects = np.concatenate([places, np.ones((GREEN + RED, 1))], axis=1)
        return np.concatenate([[0.0], position, velocity, objects.ravel()])

    def objects(self, states: Array) -> Array:
        """[N, S] -> [N, 16, 3], a view: x, y, and 1 while it is there."""
        return states[:, self._physics :].reshape(len(states), GREEN + RED, 3)

    def centre_of_mass(self, states: Array) -> Array:
        """[N, S] -> [N, 3]."""
        return self._body.centre_of_mass(states[:, 1 : 1 + self.model.nq])

    def sensors(self, states: Array) -> Array:
        """[N, S] -> [N, 2 * BINS]: 1 - distance / SIGHT of the nearest object in each bin, the rightmost bin first."""
        return self._sensed(states, *self._apart(states, self.centre_of_mass(states)))

    def _apart(self, states: Array, centre: Array) -> tuple[Array, Array]:
        """The way from the centre of mass to each object, [N, 16, 2], and its length, [N, 16]."""
        apart = self.objects(states)[..., :2] - centre[:, None, :2]
        return apart, np.hypot(apart[..., 0], apart[..., 1])

    def _sensed(self, states: Array, apart: Array, distance: Array) -> Array:
        angle = np.arctan2(apart[..., 1], apart[..., 0]) - states[:, 3, None]
        angle = (angle + np.pi) % (2.0 * np.pi) - np.pi  # straight ahead is 0, to the left is above 0
        seen = (self.objects(states)[..., 2] > 0) & (distance <= SIGHT) & (np.abs(angle) <= SPAN / 2)
        env, index = np.nonzero(seen)
        bins = np.minimum(((angle[seen] + SPAN / 2) / (SPAN / BINS)).astype(int), BINS - 1)
        readings = np.zeros((len(states), 2 * BINS))
        np.maximum.at(readings, (env, bins + SENSOR[index]), 1.0 - distance[seen] / SIGHT)
        return readings

    def observation(self, states: Array) -> Array:
        centre = self.centre_of_mass(states)
        return self._observed(states, centre, *self._apart(states, centre))

    def _observed(self, states: Array, centre: Array, apart: Array, distance: Array) -> Array:
        parts = [states[:, 1 : self._physics], centre, self._sensed(states, apart, distance)]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def arrive(self, states: Array) -> tuple[Array, Array, Array]:
        centre = self.centre_of_mass(states)
        apart, distance = self._apart(states, centre)
        there = self.objects(states)[..., 2]
        caught = (there > 0) & (distance < CATCH)
        there[caught] = 0.0
        return self._observed(states, centre, apart, distance), caught @ REWARDS, np.asarray((there == 0).all(axis=1))

    def draw(self, state: Array) -> Array:
        """The pool from above."""
        canvas = Canvas(PICTURE_SIZE, RANGE + 1.2, COLOURS["water"])
        for begin, end in zip(CORNERS, np.roll(CORNERS, 1, axis=0), strict=True):
            canvas.line(begin, end, 0.1, COLOURS["wall"])
        for (x, y, there), colour in zip(self.objects(state[None])[0], OBJECT_COLOURS, strict=True):
            if there:
                canvas.disc(np.array([x, y]), OBJECT_RADIUS, colour)
        joint, heading, along = state[1:3], 0.0, np.array([1.0, 0.0])
        for turn, (offset, tail, head) in zip(state[3:6], LINKS, strict=True):
            joint = joint + offset * along
            heading += turn
            along = np.array([np.cos(heading), np.sin(heading)])
            canvas.line(joint + tail * along, joint + head * along, LINK_RADIUS, COLOURS["link"])
        canvas.disc(state[1:3] + 1.5 * np.array([np.cos(state[3]), np.sin(state[3])]), 1.5 * LINK_RADIUS, COLOURS["head"])
        return canvas.picture()


def make_map() -> Map:
    """The pool as a map, by the swimmer's centre of mass."""
    walls = np.stack([CORNERS, np.roll(CORNERS, 1, axis=0)], axis=1)
    return Map(("x (m)", "y (m)"), lambda seen, infos: seen[:, 10:12], (-EDGE, EDGE, -EDGE, EDGE), walls, (0.0, 0.0))


@drawable
def make_env(**settings: Any) -> Single:
    """The entry point of `gymnasium.make("ex2/SwimmerGather-v0")`."""
    return single(SwimmerGather(), **settings)


def make_vector_env(num_envs: int = 1, **settings: Any) -> MujocoVectorEnv:
    """The entry point of `gymnasium.make_vec("ex2/SwimmerGather-v0", num_envs=...)`."""
    return MujocoVectorEnv(SwimmerGather(), num_envs, **settings)
