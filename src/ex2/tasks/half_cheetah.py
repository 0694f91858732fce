"""SparseHalfCheetah (paper, section 6; VIME): a planar cheetah is rewarded only once it is 5 m away from where it began.

The body is Gymnasium's half-cheetah with ONE physics step of 0.01 s for each action, as in rllab, so an episode of 500 steps
lasts 5 s. The variant with 5 physics steps for each action is `ex2/SparseHalfCheetah5Steps-v0`; their scores do not compare.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import gymnasium
import mujoco
import numpy as np

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.tasks.drawing import Screen
from ex2.tasks.map import Map
from ex2.tasks.mujoco_batch import MujocoTask, MujocoVectorEnv, PlanarBody, single
from ex2.tasks.rules import drawable
from ex2.tasks.single import Single

THRESHOLD = 5.0  # m of the centre of mass from the origin, either way
EPISODE_STEPS = 500
PHYSICS_STEPS = 1  # of 0.01 s
POSITION_NOISE, VELOCITY_NOISE = 0.01, 0.1  # standard deviations at the start, in m and rad, and per second
TOTAL_MASS = 14.0  # kg
HINGES_TURN = -1  # about the y axis: from z towards x
X, Z = 0, 2


class SparseHalfCheetah(MujocoTask):
    """The cheetah's start, observation and reward, for one environment or a batch.

    Observation (20): positions without the root's x (8), velocities (9), centre of mass of the whole body (3).
    """

    episode_steps = EPISODE_STEPS
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (20,), np.float32)

    def __init__(self, physics_steps: int = PHYSICS_STEPS) -> None:
        if physics_steps < 1:
            raise UsageError(f"physics_steps={physics_steps} must be at least 1.")
        self.physics_steps = physics_steps
        self.frames_per_second = max(100 // physics_steps, 1)
        body = files("gymnasium") / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
        text, found = re.subn(r'\s+settotalmass="[^"]*"', "", body.read_text())  # MuJoCo is about to drop the attribute
        assert found == 1
        self.model = mujoco.MjModel.from_xml_string(text)
        mujoco.mj_setTotalmass(self.model, TOTAL_MASS)
        mujoco.mj_setConst(self.model, mujoco.MjData(self.model))
        self._body = PlanarBody(self.model, (X, Z), HINGES_TURN)
        self._screen: Screen | None = None

    def initial_state(self, random: np.random.Generator) -> Array:
        position = self.model.qpos0 + POSITION_NOISE * random.standard_normal(self.model.nq)
        velocity = VELOCITY_NOISE * random.standard_normal(self.model.nv)
        return np.concatenate([[0.0], position, velocity])

    def centre_of_mass(self, states: Array) -> Array:
        """[N, S] -> [N, 3]."""
        return self._body.centre_of_mass(states[:, 1 : 1 + self.model.nq])

    def observation(self, states: Array) -> Array:
        return self._observed(states, self.centre_of_mass(states))

    def arrive(self, states: Array) -> tuple[Array, Array, Array]:
        centre = self.centre_of_mass(states)
        far = np.abs(centre[:, X]) > THRESHOLD
        return self._observed(states, centre), far.astype(np.float64), np.zeros(len(states), bool)

    def _observed(self, states: Array, centre: Array) -> Array:
        return np.concatenate([states[:, 2:], centre], axis=1, dtype=np.float32)

    def draw(self, state: Array) -> Array:
        """The cheetah by MuJoCo's renderer, which needs OpenGL."""
        if self._screen is None:
            self._screen = Screen(self.model, "track")
        return self._screen.draw(state)


def make_map() -> Map:
    """The way as a map."""
    return Map(("x of the centre of mass (m)",), lambda seen, infos: seen[:, 17:18], goal=(-THRESHOLD, THRESHOLD))


@drawable
def make_env(physics_steps: int = PHYSICS_STEPS, **settings: Any) -> Single:
    """The entry point of `gymnasium.make("ex2/SparseHalfCheetah-v0")`."""
    return single(SparseHalfCheetah(physics_steps), **settings)


def make_vector_env(num_envs: int = 1, physics_steps: int = PHYSICS_STEPS, **settings: Any) -> MujocoVectorEnv:
    """The entry point of `gymnasium.make_vec("ex2/SparseHalfCheetah-v0", num_envs=...)`."""
    return MujocoVectorEnv(SparseHalfCheetah(physics_steps), num_envs, **settings)
