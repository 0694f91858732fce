"""DoomMyWayHome+ (paper, section 6 and appendix): find a vest, eight rooms away, through the player's eyes.

The map is ViZDoom's own `my_way_home`, in which the player begins in one of 17 places, facing anywhere. Here it always begins
in the room that is furthest from the vest, facing the same way (`ex2.tasks.doom_map`).

Each game is a process of its own (`ex2.tasks.doom_game`). A batch steps one game in each thread; a game whose process dies, or
does not answer within a time limit, is started anew, and its episode ends as truncated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.tasks.doom_game import ACTIONS, LOOKS, SIZE, TICS, Game, sweep
from ex2.tasks.doom_map import START, VEST, find_map, walls
from ex2.tasks.map import Map
from ex2.tasks.rules import check_actions, check_order, check_over, chosen, drawable, last_observations, metadata, seeds_for
from ex2.tasks.single import Single

EPISODE_TICS = 2_100
EPISODE_STEPS = EPISODE_TICS // TICS
FRAMES_PER_SECOND = 35 / TICS
LOST = np.full(3, np.nan)  # x, y and heading in a game that has died


class DoomVectorEnv(gymnasium.vector.VectorEnv[Array, Array, Array]):
    """Many games, stepped in parallel; by default, episodes that end begin anew in the same step (AutoresetMode.SAME_STEP).

    `infos["position"]` holds x, y and heading of each player, [N, 3], after the step and before any reset; `infos["died"]` says
    which games were started anew, `answer_seconds` how long one may take to answer before it is.
    """

    closed = True  # until it is made

    def __init__(
        self,
        num_envs: int = 1,
        threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        answer_seconds: float = 60.0,
    ) -> None:
        if num_envs < 1 or (threads is not None and threads < 1):
            raise UsageError(f"num_envs={num_envs} and threads={threads} must be at least 1.")
        if not answer_seconds > 0:
            raise UsageError(f"answer_seconds={answer_seconds} must be above 0.")
        self.metadata = metadata(FRAMES_PER_SECOND, autoreset_mode, render_mode)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._mode = self.metadata["autoreset_mode"]
        self.single_observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._answer_seconds = answer_seconds
        path = find_map()
        sweep()
        self._games = [Game(path) for _ in range(num_envs)]
        self._pool = ThreadPoolExecutor(min(threads or num_envs, num_envs), thread_name_prefix="doom")
        self._screens = np.zeros((num_envs, SIZE, SIZE, 3), np.uint8)
        self._elapsed = [0] * num_envs  # EPISODE_STEPS where an episode has ended and the next has not begun
        self._randoms = [np.random.default_rng() for _ in range(num_envs)]
        self._begun = False
        self.restarts = 0
        self.closed = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begins all episodes, or those in `options["reset_mask"]`. A seed s gives environment i the seed s + i."""
        check_order(self, "reset", begun=True)
        seeds = seeds_for(seed, self.num_envs)
        players = np.flatnonzero(chosen(options, self.num_envs, self._begun))
        for index in players:
            if seeds[index] is not None:
                self._randoms[index] = np.random.default_rng(seeds[index])
        positions = np.full((self.num_envs, 3), np.nan)
        for index, where in zip(players, self._all(self._begin, players), strict=True):
            positions[index] = where
        self._begun = True
        return self._screens.copy(), {"position": positions}

    def _all(self, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What `work` returns for each of the arguments, in threads; games that do not answer are killed meanwhile."""
        answers = [self._pool.submit(work, *each) for each in zip(*arguments, strict=True)]
        seconds = self._answer_seconds / LOOKS
        awaited = wait(answers, seconds).not_done
        while awaited:
            for game in self._games:
                game.look_after(seconds)
            awaited = wait(awaited, seconds).not_done
        return [answer.result() for answer in answers]

    def _begin(self, index: int) -> Array:
        self._elapsed[index] = 0
        return self._games[index].begin(int(self._randoms[index].integers(2**31)), self._screens[index])

    def _advance(self, index: int, action: int) -> tuple[float, bool, bool, Array | None, Array | None]:
        """One game's step, and its reset where the episode has ended; the last observation is returned then."""
        if self._elapsed[index] == EPISODE_STEPS:  # AutoresetMode.NEXT_STEP
            return 0.0, False, False, self._begin(index), None
        reward, terminated, where = self._games[index].step(action, self._screens[index])
        self._elapsed[index] += 1
        truncated = not terminated and (where is None or self._elapsed[index] >= EPISODE_STEPS)
        if not (terminated or truncated):
            return reward, False, False, where, None
        if self._mode is not AutoresetMode.SAME_STEP:
            self._elapsed[index] = EPISODE_STEPS
            return reward, terminated, truncated, where, None
        final = self._screens[index].copy()
        self._begin(index)
        return reward, terminated, truncated, where, final

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        check_order(self, "step", self._begun)
        actions = check_actions(actions, self.num_envs, len(ACTIONS))
        if self._mode is AutoresetMode.DISABLED:
            check_over(np.array(self._elapsed) == EPISODE_STEPS)
        done = self._all(self._advance, range(self.num_envs), actions.tolist())
        rewards, terminated, truncated, places, finals = zip(*done, strict=True)
        died = np.array([where is None for where in places])
        for index in np.flatnonzero(died):
            self.restarts += 1
            warnings.warn(
                f"The game of environment {index} died, or did not answer, and was started anew; its episode is truncated.",
                stacklevel=2,
            )
        infos: dict[str, Any] = {
            "position": np.array([LOST if where is None else where for where in places]),
            "died": died,
        }
        ends = np.array(terminated), np.array(truncated)
        if self._mode is AutoresetMode.SAME_STEP and (ends[0] | ends[1]).any():
            infos |= last_observations(finals, ends[0] | ends[1])
        return self._screens.copy(), np.array(rewards, np.float64), *ends, infos

    def render(self) -> tuple[Array, ...] | None:  # type: ignore[override]
        check_order(self, "render", self._begun)
        if self.render_mode is None:
            return None
        return tuple(game.screen for game in self._games)

    def close_extras(self, **kwargs: Any) -> None:
        for game in self._games:
            game.interrupt()
        for game in self._games:
            game.end()
        self._pool.shutdown(wait=False)  # it may be a thread of its own that has found nobody to use it any more


def make_map() -> Map:
    """The rooms as a map, by where the game says that the player is."""
    lines = walls()
    (left, bottom), (right, top) = lines.min(axis=(0, 1)).tolist(), lines.max(axis=(0, 1)).tolist()
    axes = ("x (map units)", "y (map units)")
    return Map(axes, lambda seen, infos: infos["position"][:, :2], (left, right, bottom, top), lines, START, VEST)


@drawable
def make_env(**settings: Any) -> Single:
    """The entry point of `gymnasium.make("ex2/DoomMyWayHomePlus-v0")`."""
    return Single(partial(DoomVectorEnv, 1, autoreset_mode=AutoresetMode.DISABLED, **settings))


def make_vector_env(num_envs: int = 1, **settings: Any) -> DoomVectorEnv:
    """The entry point of `gymnasium.make_vec("ex2/DoomMyWayHomePlus-v0", num_envs=...)`."""
    return DoomVectorEnv(num_envs, **settings)
