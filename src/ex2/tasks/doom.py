"""DoomMyWayHome+ (paper, section 6 and appendix): find a vest, eight rooms away, through the player's eyes.

The map is ViZDoom's own `my_way_home`, in which the player begins in one of 17 places, facing anywhere. Here it always begins
in the room that is furthest from the vest, facing the same way (`ex2.tasks.doom_map`).

Each game is played in a process of its own (`ex2.tasks.doom_game`, which `ex2.tasks.doom_player` speaks to). A batch asks all
of them at once; a game that dies, or does not answer within a time limit, is started anew, and its episode ends as truncated.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.tasks.doom_game import ACTIONS, ANSWER, BEGIN, LOOK, SCREEN, SIZE, STEP, TICS
from ex2.tasks.doom_map import START, VEST, find_map, walls
from ex2.tasks.doom_player import Folder, Player, sweep
from ex2.tasks.map import Map
from ex2.tasks.rules import check_actions, check_order, check_over, chosen, drawable, last_observations, metadata, seeds_for
from ex2.tasks.single import Single

EPISODE_TICS = 2_100
EPISODE_STEPS = EPISODE_TICS // TICS
FRAMES_PER_SECOND = 35 / TICS
LOST = np.full(3, np.nan)  # x, y and heading in a game that has died
STARTS = 3  # of a game that does not come up


class DoomVectorEnv(gymnasium.vector.VectorEnv[Array, Array, Array]):
    """Many games, stepped in parallel; by default, episodes that end begin anew in the same step (AutoresetMode.SAME_STEP).

    `infos["position"]` holds x, y and heading of each player, [N, 3], after the step and before any reset; `infos["died"]` says
    which games were started anew. A game may take `answer_seconds` for a step.
    """

    closed = True  # until it is made

    def __init__(
        self,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        answer_seconds: float = 60.0,
    ) -> None:
        if num_envs < 1:
            raise UsageError(f"num_envs={num_envs} must be at least 1.")
        if not 1 <= answer_seconds < float("inf"):
            raise UsageError(f"answer_seconds={answer_seconds} must be at least 1, and finite.")
        self.metadata = metadata(FRAMES_PER_SECOND, autoreset_mode, render_mode)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._mode = self.metadata["autoreset_mode"]
        self.single_observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        scenario = find_map()
        sweep()
        self._folder = Folder()
        self._own = os.getpid()
        self._players = [Player(self._folder, scenario, answer_seconds) for _ in range(num_envs)]
        self._screens = np.zeros((num_envs, SIZE, SIZE, 3), np.uint8)
        self._elapsed = np.zeros(num_envs, int)  # EPISODE_STEPS where an episode has ended and the next has not begun
        self._randoms = [np.random.default_rng() for _ in range(num_envs)]
        self._seeds = [0] * num_envs  # of the episodes
        self._begun = False
        self.restarts = 0
        self.closed = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begins all episodes, or those in `options["reset_mask"]`. A seed s gives environment i the seed s + i."""
        check_order(self, "reset", begun=True)
        self._check_process()
        seeds = seeds_for(seed, self.num_envs)
        players = np.flatnonzero(chosen(options, self.num_envs, self._begun))
        for index in players:
            if seeds[index] is not None:
                self._randoms[index] = np.random.default_rng(seeds[index])
        positions = np.full((self.num_envs, 3), np.nan)
        positions[players] = self._begin(players)
        self._begun = True
        return self._screens.copy(), {"position": positions}

    def _begin(self, players: Array) -> Array:
        """Begins episodes; returns x, y and heading, [M, 3]."""
        for index in players.tolist():
            self._ask_to_begin(index)
        return np.array([self._has_begun(index) for index in players.tolist()]).reshape(-1, 3)

    def _ask_to_begin(self, index: int) -> None:
        self._seeds[index] = int(self._randoms[index].integers(2**31))
        self._players[index].ask(BEGIN, self._seeds[index])

    def _has_begun(self, index: int) -> Array:
        for attempt in range(STARTS):
            if attempt:
                self._players[index].ask(BEGIN, self._seeds[index])
            seen = self._look(index)
            if seen is not None:
                self._elapsed[index] = 0
                return seen[2]
        raise UsageError(f"A game of Doom does not start: install vizdoom anew. {self._players[index].trouble}".strip())

    def _look(self, index: int) -> tuple[float, bool, Array] | None:
        """Takes a game's answer: its picture is put in its place, and reward, whether the vest was taken, x, y and heading are
        returned. None where it has died."""
        came = self._players[index].answer(ANSWER.size + self._screens[index].nbytes)
        if came is None:
            return None
        reward, over, *where = ANSWER.unpack_from(came)
        self._screens[index] = np.frombuffer(came, np.uint8, offset=ANSWER.size).reshape(SIZE, SIZE, 3)
        return reward, over, np.array([*VEST, 0.0] if over else where)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        check_order(self, "step", self._begun)
        self._check_process()
        actions = check_actions(actions, self.num_envs, len(ACTIONS))
        over = self._elapsed == EPISODE_STEPS
        if self._mode is AutoresetMode.DISABLED:
            check_over(over)
        for index, action in enumerate(actions.tolist()):
            if over[index]:  # AutoresetMode.NEXT_STEP
                self._ask_to_begin(index)
            else:
                self._players[index].ask(STEP, action)
        rewards, positions = np.zeros(self.num_envs), np.empty((self.num_envs, 3))
        terminated, truncated, died = (np.zeros(self.num_envs, bool) for _ in range(3))
        finals: list[Array | None] = [None] * self.num_envs
        for index in range(self.num_envs):
            if over[index]:
                positions[index] = self._has_begun(index)
                continue
            seen = self._look(index)
            died[index] = seen is None
            rewards[index], terminated[index], positions[index] = (0.0, False, LOST) if seen is None else seen
            self._elapsed[index] += 1
            truncated[index] = not terminated[index] and (died[index] or self._elapsed[index] == EPISODE_STEPS)
            if terminated[index] or truncated[index]:
                self._elapsed[index] = EPISODE_STEPS
                if self._mode is AutoresetMode.SAME_STEP:
                    finals[index] = self._screens[index].copy()
                    self._ask_to_begin(index)  # while the others are listened to
        infos: dict[str, Any] = {"position": positions, "died": died}
        ends = terminated | truncated
        if self._mode is AutoresetMode.SAME_STEP and ends.any():
            for index in np.flatnonzero(ends).tolist():
                self._has_begun(index)
            infos |= last_observations(finals, ends)
        for index in np.flatnonzero(died).tolist():
            self.restarts += 1
            warnings.warn(
                f"The game of environment {index} died, or did not answer, and was started anew; its episode is truncated.",
                stacklevel=2,
            )
        return self._screens.copy(), rewards, terminated, truncated, infos

    def render(self) -> tuple[Array, ...] | None:  # type: ignore[override]
        check_order(self, "render", self._begun)
        self._check_process()
        if self.render_mode is None:
            return None
        for player in self._players:
            player.ask(LOOK)
        screens = [player.answer(int(np.prod(SCREEN))) for player in self._players]
        return tuple(
            np.zeros(SCREEN, np.uint8) if came is None else np.frombuffer(came, np.uint8).reshape(SCREEN).copy()
            for came in screens
        )

    def _check_process(self) -> None:
        if os.getpid() != self._own:
            raise UsageError("A batch of Doom is played by the process that made it: make another one in this fork of it.")

    def __reduce__(self) -> Any:
        raise UsageError("Games of Doom cannot be copied or pickled: make another batch.")

    def close_extras(self, **kwargs: Any) -> None:
        if os.getpid() != self._own:  # a fork's copy
            return
        for player in self._players:
            player.leave()
        for player in self._players:
            player.end()
        self._folder.remove()


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
