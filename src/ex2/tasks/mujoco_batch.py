"""MuJoCo tasks, one environment or many, from one definition.

A task is a `MujocoTask`: a model and array functions over a batch of states. `MujocoVectorEnv` steps the batch in C++ threads
with `mujoco.rollout`; `single` is a batch of one behind the ordinary Gymnasium interface. Every call to the physics starts from
the full state with a cold solver, so a step is a pure function of (state, action): the same in a batch of any size, on any
number of threads, before and after a checkpoint.
"""

from __future__ import annotations

import abc
import sys
from functools import partial
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from mujoco.rollout import Rollout

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.tasks.cores import cores
from ex2.tasks.rules import check_order, check_over, chosen, last_observations, metadata, seeds_for
from ex2.tasks.single import Single

CONTROL = mujoco.mjtState.mjSTATE_CTRL.value
THREAD_WORK = 128  # evaluations of the physics: with fewer, waking a thread costs more than it saves


class MujocoTask(abc.ABC):
    """What makes one task: its model, how episodes begin, what is observed and what is rewarded.

    States are rows of MuJoCo's full physics state, 1 + nq + nv numbers (time, positions, velocities), and behind them whatever
    else a task has to know of an episode: [N, S].
    """

    model: mujoco.MjModel
    physics_steps: int
    """Physics steps for each action of the agent."""
    episode_steps: int
    observation_space: gymnasium.spaces.Box
    frames_per_second: int

    @property
    def action_space(self) -> gymnasium.spaces.Box:
        """Actions are in [-1, 1] whatever the motors' range is."""
        return gymnasium.spaces.Box(-1.0, 1.0, (self.model.nu,), np.float32)

    @abc.abstractmethod
    def initial_state(self, random: np.random.Generator) -> Array:
        """The state that an episode begins in, [S]."""

    @abc.abstractmethod
    def observation(self, states: Array) -> Array:
        """[N, S] -> [N, ...] as `observation_space` has it."""

    @abc.abstractmethod
    def arrive(self, states: Array) -> tuple[Array, Array, Array]:
        """What it means that the physics led to states [N, S]: observations as above, rewards [N], episodes ended [N].

        What happens on arrival, behind the physics, is written into the states.
        """

    @abc.abstractmethod
    def draw(self, state: Array) -> Array:
        """A picture of one state, uint8 [height, width, 3]."""


class PlanarBody:
    """The centre of mass of a tree of links that turn in a plane, for a batch of positions.

    A link at the absolute angle a, a sum of joint angles, adds a vector that turns with it. With the plane as complex numbers
    the centre of mass is root + sum_b c_b exp(i a_b), where c_b holds what link b carries: its own mass at its own centre, and
    the mass beyond each of its joints at that joint. The c_b are constants of the model.

    Args:
        model: its first body is the root, on two slide joints and a hinge; every other body has one hinge, at its origin.
        plane: the two axes of the plane.
        turn: 1 where hinges turn the first axis towards the second, -1 where the other way.
    """

    def __init__(self, model: mujoco.MjModel, plane: tuple[int, int], turn: int) -> None:
        bodies = range(1, model.nbody)
        self._hinges = np.zeros((model.nq, model.nbody))  # [nq, nbody], sums joint angles into absolute ones
        carried = np.zeros(model.nbody, complex)
        on_plane = np.array([1.0, 1.0j])
        total = model.body_subtreemass[1]
        for body in bodies:
            parent = model.body_parentid[body]
            self._hinges[:, body] = self._hinges[:, parent]
            hinge = model.body_jntadr[body] + model.body_jntnum[body] - 1
            self._hinges[hinge, body] = turn
            carried[body] += model.body_mass[body] * (model.body_ipos[body, plane] @ on_plane) / total
            carried[parent] += model.body_subtreemass[body] * (model.body_pos[body, plane] @ on_plane) / total
        self._carried, self._plane = carried, plane

    def centre_of_mass(self, positions: Array) -> Array:
        """[N, nq] -> [N, 3]."""
        centre = np.exp(1j * (positions @ self._hinges)) @ self._carried
        result = np.zeros((len(positions), 3))
        first, second = self._plane
        result[:, first] = positions[:, 0] + centre.real
        result[:, second] = positions[:, 1] + centre.imag
        return result


class Stepper:
    """Advances a batch of states of one model, in `threads` C++ threads."""

    def __init__(self, task: MujocoTask, num_envs: int, threads: int | None = None) -> None:
        runge_kutta = task.model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
        work = num_envs * task.physics_steps * (4 if runge_kutta else 1)
        threads = threads or min(cores(), -(-work // THREAD_WORK))
        self.task = task
        self._pool = Rollout(nthread=threads if threads > 1 else 0)
        self._models = [task.model] * num_envs
        self._data = [mujoco.MjData(task.model) for _ in range(threads)]
        self._size = mujoco.mj_stateSize(task.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._states = np.zeros((num_envs, task.physics_steps, self._size))
        self._sensors = np.zeros((num_envs, task.physics_steps, task.model.nsensordata))
        self._control = np.zeros((num_envs, task.physics_steps, task.model.nu))
        self._low, high = task.model.actuator_ctrlrange.T.copy()
        self._span = high - self._low

    def __call__(self, states: Array, actions: Array) -> Array:
        """The states that actions [N, nu] lead to from states [N, S]; what lies behind the physics stays as it is."""
        expected = (len(self._models), self.task.model.nu)
        if actions.shape != expected:
            raise UsageError(f"step got actions of shape {actions.shape}, expected {expected}.")
        if not np.isfinite(actions).all():
            first = int(np.flatnonzero(~np.isfinite(actions).all(axis=1))[0])
            raise UsageError(f"The action of environment {first} is {actions[first]}: actions must be finite numbers.")
        control = self._low + (np.minimum(np.maximum(actions, -1.0), 1.0) + 1.0) * 0.5 * self._span
        self._control[:] = control[:, None]
        self._pool.rollout(
            self._models,
            self._data,
            np.ascontiguousarray(states[:, : self._size]),
            self._control,
            nstep=self.task.physics_steps,
            state=self._states,
            sensordata=self._sensors,
            control_spec=CONTROL,
            skip_checks=True,
        )
        after = states.copy()
        after[:, : self._size] = self._states[:, -1]
        return after

    def close(self) -> None:
        self._pool.close()


class MujocoVectorEnv(gymnasium.vector.VectorEnv[Array, Array, Array]):
    """Many environments of one task; by default, episodes that end begin anew in the same step (AutoresetMode.SAME_STEP)."""

    closed = True  # until it is made

    def __init__(
        self,
        task: MujocoTask,
        num_envs: int,
        max_episode_steps: int | None = None,
        threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1 or (threads is not None and threads < 1) or (max_episode_steps is not None and max_episode_steps < 1):
            raise UsageError(
                f"num_envs={num_envs}, threads={threads} and max_episode_steps={max_episode_steps} must be at least 1."
            )
        self.metadata = metadata(task.frames_per_second, autoreset_mode, render_mode)
        self.task = task
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = task.observation_space
        self.single_action_space = task.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.episode_steps = max_episode_steps or task.episode_steps
        self._mode = self.metadata["autoreset_mode"]
        self._stepper = Stepper(task, num_envs, threads)
        self._states: Array | None = None
        self._elapsed = np.zeros(num_envs, np.int64)  # episode_steps where an episode has ended and the next has not begun
        self._randoms = [np.random.default_rng() for _ in range(num_envs)]
        self.closed = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begins all episodes, or those in `options["reset_mask"]`. A seed s gives environment i the seed s + i."""
        check_order(self, "reset", begun=True)
        seeds = seeds_for(seed, self.num_envs)
        mask = chosen(options, self.num_envs, self._states is not None)
        for index in np.flatnonzero(mask):
            if seeds[index] is not None:
                self._randoms[index] = np.random.default_rng(seeds[index])
        if self._states is None:
            self._states = np.zeros((self.num_envs, len(self.task.initial_state(np.random.default_rng(0)))))
        self._begin(mask)
        return self.task.observation(self._states), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        check_order(self, "step", self._states is not None)
        assert self._states is not None
        over = self._elapsed >= self.episode_steps
        if self._mode is AutoresetMode.DISABLED:
            check_over(over)
        self._states = self._stepper(self._states, np.asarray(actions, np.float64))
        observation, reward, terminated = self.task.arrive(self._states)
        self._elapsed += 1
        if self._mode is AutoresetMode.NEXT_STEP and over.any():
            self._begin(over)
            observation, reward[over], terminated[over] = self.task.observation(self._states), 0.0, False
        truncated = ~terminated & (self._elapsed >= self.episode_steps)
        done = terminated | truncated
        if not done.any():
            return observation, reward, terminated, truncated, {}
        if self._mode is not AutoresetMode.SAME_STEP:
            self._elapsed[done] = self.episode_steps
            return observation, reward, terminated, truncated, {}
        self._begin(done)
        return self.task.observation(self._states), reward, terminated, truncated, last_observations(observation, done)

    def _begin(self, mask: Array) -> None:
        assert self._states is not None
        for index in np.flatnonzero(mask):
            self._states[index] = self.task.initial_state(self._randoms[index])
        self._elapsed[mask] = 0

    def get_state(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "states": None if self._states is None else self._states.copy(),
            "elapsed": self._elapsed.copy(),
            "randoms": [random.bit_generator.state for random in self._randoms],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from where `get_state` was called."""
        self._states = None if state["states"] is None else np.array(state["states"])
        self._elapsed = np.array(state["elapsed"])
        for random, value in zip(self._randoms, state["randoms"], strict=True):
            random.bit_generator.state = value

    def render(self) -> tuple[Array, ...] | None:  # type: ignore[override]
        check_order(self, "render", self._states is not None)
        if self.render_mode is None or self._states is None:
            return None
        return tuple(self.task.draw(state) for state in self._states)

    def draw(self, index: int) -> Array:
        """What one of the environments shows."""
        assert self._states is not None
        return self.task.draw(self._states[index])

    def close_extras(self, **kwargs: Any) -> None:
        self._stepper.close()


def single(task: MujocoTask, render_mode: str | None = None) -> Single:
    """One environment of a task. The time limit is Gymnasium's own wrapper, from the registration."""
    one = partial(MujocoVectorEnv, task, 1, sys.maxsize, autoreset_mode=AutoresetMode.DISABLED, render_mode=render_mode)
    return Single(one)
