"""DoomMyWayHome+ (paper, section 6 and appendix): find a vest, eight rooms away, through the player's eyes.

The map is ViZDoom's own `my_way_home`, in which the player begins in one of 17 places, facing anywhere. Here it always begins
in the room that is furthest from the vest, facing the same way (`ex2.tasks.doom_map`).

Each game is a process of its own. A batch steps one game in each thread; a game whose process dies is started anew, and its
episode ends as truncated.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import vizdoom
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from PIL import Image

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.tasks.doom_map import START, VEST, find_map, walls
from ex2.tasks.map import Map
from ex2.tasks.rules import check_actions, check_order, check_over, chosen, drawable, last_observations, metadata, seeds_for
from ex2.tasks.single import Single

TICS = 10  # of 1/35 s for each action
EPISODE_TICS = 2_100
EPISODE_STEPS = EPISODE_TICS // TICS
SIZE = 32  # pixels a side of an observation
FRAMES_PER_SECOND = 35 / TICS
BUTTONS = (vizdoom.Button.MOVE_FORWARD, vizdoom.Button.TURN_RIGHT, vizdoom.Button.TURN_LEFT)
ACTIONS = ([1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0])
"""One button at a time, or none."""
WHERE = (vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y, vizdoom.GameVariable.ANGLE)
LOST = np.full(3, np.nan)  # x, y and heading in a game that has died
FIRST_TIC = 10  # of an episode: the ones before raise the weapon
DEAD = (
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.ViZDoomErrorException,
)


class Game:
    """One game process: an action in, a small picture out.

    A game writes a folder `_vizdoom` and a configuration to where it is started, and dies where it cannot. So it is started by
    a script that first goes to a temporary folder, in the game's process and no other.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = tempfile.TemporaryDirectory(prefix="ex2-doom-")
        self._starter = Path(self._folder.name) / "start"
        program = Path(vizdoom.__file__).parent / "vizdoom"
        self._starter.write_text(f'#!/bin/sh\ncd {shlex.quote(self._folder.name)} && exec {shlex.quote(str(program))} "$@"\n')
        self._starter.chmod(0o700)
        if not os.access(program, os.X_OK):  # where a program cannot be run, vizdoom takes our process with it
            raise UsageError(f"The game {program} cannot be run: install vizdoom anew.")
        if not os.access(self._starter, os.X_OK):
            folder = self._folder.name
            raise UsageError(
                f"No program can be run from {folder}: name a folder where that is allowed in the variable TMPDIR."
            )
        self._game: vizdoom.DoomGame | None = None

    def _start(self) -> vizdoom.DoomGame:
        game = vizdoom.DoomGame()
        game.set_vizdoom_path(str(self._starter))
        game.set_doom_scenario_path(str(self._path))
        game.set_doom_config_path(str(Path(self._folder.name) / "vizdoom.ini"))
        game.set_doom_map("map01")
        game.set_doom_skill(5)
        game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        for hide in ("hud", "weapon", "crosshair", "decals", "particles"):
            getattr(game, f"set_render_{hide}")(False)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        game.set_console_enabled(False)
        game.set_available_buttons(list(BUTTONS))
        game.set_available_game_variables(list(WHERE))
        game.set_mode(vizdoom.Mode.PLAYER)
        game.set_living_reward(0.0)
        game.set_episode_start_time(FIRST_TIC)
        game.set_episode_timeout(0)  # steps are counted outside
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the training, not for its games
        try:
            game.init()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return game

    def begin(self, seed: int, out: Array) -> Array:
        """A new episode: its first picture goes to `out` [SIZE, SIZE, 3]; returns x, y and heading."""
        for attempt in range(3):
            try:
                if self._game is None:
                    self._game = self._start()
                self._game.set_seed(seed)
                self._game.new_episode()
                return self._look(out)
            except DEAD:
                self.close()
                if attempt == 2:
                    raise UsageError("A game of Doom does not start: install vizdoom anew.") from None
        raise AssertionError

    def step(self, action: int, out: Array) -> tuple[float, bool, Array | None]:
        """Reward, whether the vest was taken, and x, y and heading. The last is None where the game has died.

        A game draws nothing any more once the vest is taken: `out` then stays as it was, the picture before the last action.
        """
        try:
            if self._game is None:
                return 0.0, False, None
            reward = self._game.make_action(ACTIONS[action], TICS)
            if self._game.is_episode_finished():
                return reward, True, np.array([*VEST, 0.0])
            return reward, False, self._look(out)
        except DEAD:
            self.close()
            return 0.0, False, None

    def _look(self, out: Array) -> Array:
        assert self._game is not None
        state = self._game.get_state()
        self.screen = state.screen_buffer
        out[:] = Image.fromarray(self.screen).resize((SIZE, SIZE), Image.Resampling.BOX)
        assert state.game_variables is not None
        return state.game_variables

    def close(self) -> None:
        game, self._game = self._game, None
        if game is not None:
            with contextlib.suppress(*DEAD):
                game.close()

    def end(self) -> None:
        """Closes the game for good."""
        self.close()
        self._folder.cleanup()


class DoomVectorEnv(gymnasium.vector.VectorEnv[Array, Array, Array]):
    """Many games, stepped in parallel; by default, episodes that end begin anew in the same step (AutoresetMode.SAME_STEP).

    `infos["position"]` holds x, y and heading of each player, [N, 3], after the step and before any reset; `infos["died"]` says
    which games were started anew.
    """

    closed = True  # until it is made

    def __init__(
        self,
        num_envs: int = 1,
        threads: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1 or (threads is not None and threads < 1):
            raise UsageError(f"num_envs={num_envs} and threads={threads} must be at least 1.")
        self.metadata = metadata(FRAMES_PER_SECOND, autoreset_mode, render_mode)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._mode = self.metadata["autoreset_mode"]
        self.single_observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        path = find_map()
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
        for index, where in zip(players, self._pool.map(self._begin, players), strict=True):
            positions[index] = where
        self._begun = True
        return self._screens.copy(), {"position": positions}

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
        done = list(self._pool.map(self._advance, range(self.num_envs), actions.tolist()))
        rewards, terminated, truncated, places, finals = zip(*done, strict=True)
        died = np.array([where is None for where in places])
        for index in np.flatnonzero(died):
            self.restarts += 1
            warnings.warn(f"The game of environment {index} died and was started anew; its episode is truncated.", stacklevel=2)
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
        list(self._pool.map(Game.end, self._games))
        self._pool.shutdown()


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
