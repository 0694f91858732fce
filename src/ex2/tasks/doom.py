"""DoomMyWayHome+ (paper, section 6 and appendix): find a vest, eight rooms away, through the player's eyes.

The map is ViZDoom's own `my_way_home`, in which the player begins in one of 17 places, facing anywhere. Here it always begins
in the room that is furthest from the vest, facing the same way (`ex2.tasks.doom_map`).

Each game is a process of its own. A batch steps one game in each thread; a game whose process dies is started anew, and its
episode ends as truncated.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import vizdoom
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from PIL import Image

from ex2.errors import UsageError
from ex2.tasks.doom_map import START, VEST, find_map, walls
from ex2.tasks.map import Map
from ex2.tasks.seeding import seeds_for
from ex2.tasks.single import Single

Array = np.ndarray
TICS = 10  # of 1/35 s for each action
EPISODE_TICS = 2_100
EPISODE_STEPS = EPISODE_TICS // TICS
SIZE = 32  # pixels a side of an observation
FRAMES_PER_SECOND = 35 / TICS
BUTTONS = (vizdoom.Button.MOVE_FORWARD, vizdoom.Button.TURN_RIGHT, vizdoom.Button.TURN_LEFT)
ACTIONS = ([1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0])
"""One button at a time, or none."""
WHERE = (vizdoom.GameVariable.POSITION_X, vizdoom.GameVariable.POSITION_Y, vizdoom.GameVariable.ANGLE)
FIRST_TIC = 10  # of an episode: the ones before raise the weapon
DEAD = (
    vizdoom.ViZDoomUnexpectedExitException,
    vizdoom.ViZDoomIsNotRunningException,
    vizdoom.ViZDoomErrorException,
)


class Game:
    """One game process: an action in, a small picture out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = tempfile.TemporaryDirectory(prefix="ex2-doom-")
        self._game: vizdoom.DoomGame | None = None

    def _start(self) -> vizdoom.DoomGame:
        game = vizdoom.DoomGame()
        game.set_doom_scenario_path(str(self._path))
        game.set_doom_config_path(str(Path(self._folder.name) / "vizdoom.ini"))  # else it is written where the game is started
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
        Path("_vizdoom").mkdir(exist_ok=True)  # every game makes it where it is started, and dies if another is just doing so
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
            except OSError as error:
                raise UsageError(
                    f"A game of Doom cannot write to the current folder ({error.strerror}): start it in another one."
                ) from None
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
    """Many games, stepped in parallel; episodes that end begin anew in the same step (AutoresetMode.SAME_STEP).

    `infos["position"]` holds x, y and heading of each player, [N, 3], after the step and before any reset; `infos["died"]` says
    which games were started anew.
    """

    def __init__(self, num_envs: int = 1, threads: int | None = None, render_mode: str | None = None) -> None:
        if num_envs < 1 or (threads is not None and threads < 1):
            raise UsageError(f"num_envs={num_envs} and threads={threads} must be at least 1.")
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": FRAMES_PER_SECOND,
            "autoreset_mode": AutoresetMode.SAME_STEP,
        }
        self.single_observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        path = find_map()
        self._games = [Game(path) for _ in range(num_envs)]
        self._pool = ThreadPoolExecutor(min(threads or num_envs, num_envs), thread_name_prefix="doom")
        self._screens = np.zeros((num_envs, SIZE, SIZE, 3), np.uint8)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._randoms = [np.random.default_rng() for _ in range(num_envs)]
        self._begun = False
        self.restarts = 0

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begins all episodes, or those in `options["reset_mask"]`. A seed s gives environment i the seed s + i."""
        seeds = seeds_for(seed, self.num_envs)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for index in np.flatnonzero(mask):
            if seeds[index] is not None:
                self._randoms[index] = np.random.default_rng(seeds[index])
        positions = np.full((self.num_envs, 3), np.nan)
        for index, where in zip(np.flatnonzero(mask), self._pool.map(self._begin, np.flatnonzero(mask)), strict=True):
            positions[index] = where
        self._begun = True
        return self._screens.copy(), {"position": positions}

    def _begin(self, index: int) -> Array:
        self._elapsed[index] = 0
        return self._games[index].begin(int(self._randoms[index].integers(2**31)), self._screens[index])

    def _advance(self, index: int, action: int) -> tuple[float, bool, bool, Array | None, Array | None]:
        """One game's step, and its reset where the episode has ended; the last observation is returned then."""
        reward, terminated, where = self._games[index].step(action, self._screens[index])
        self._elapsed[index] += 1
        truncated = not terminated and (where is None or self._elapsed[index] >= EPISODE_STEPS)
        if not (terminated or truncated):
            return reward, False, False, where, None
        final = self._screens[index].copy()
        self._begin(index)
        return reward, terminated, truncated, where, final

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        if not self._begun:
            raise UsageError("step was called before reset: call reset() once first.")
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or not np.isin(actions, range(len(ACTIONS))).all():
            raise UsageError(
                f"step got actions {actions.tolist()}: expected {self.num_envs} numbers from 0 to {len(ACTIONS) - 1}."
            )
        done = list(self._pool.map(self._advance, range(self.num_envs), actions.tolist()))
        rewards, terminated, truncated, places, finals = zip(*done, strict=True)
        positions = np.full((self.num_envs, 3), np.nan)
        for index, where in enumerate(places):
            if where is None:
                self.restarts += 1
                warnings.warn(
                    f"The game of environment {index} died and was started anew; its episode is truncated.", stacklevel=2
                )
            else:
                positions[index] = where
        infos: dict[str, Any] = {"position": positions, "died": np.array([where is None for where in places])}
        ended = np.array(terminated) | np.array(truncated)
        if ended.any():
            last = np.full(self.num_envs, None, dtype=object)
            for player in np.flatnonzero(ended):
                last[player] = finals[player]
            infos |= {"final_obs": last, "_final_obs": ended}
        return self._screens.copy(), np.array(rewards, np.float64), np.array(terminated), np.array(truncated), infos

    def render(self) -> tuple[Array, ...] | None:  # type: ignore[override]
        if self.render_mode is None or not self._begun:
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


def make_env(render_mode: str | None = None, **settings: Any) -> Single:
    """The entry point of `gymnasium.make("ex2/DoomMyWayHomePlus-v0")`."""
    return Single(DoomVectorEnv(1, render_mode=render_mode, **settings), render_mode)


def make_vector_env(num_envs: int = 1, **settings: Any) -> DoomVectorEnv:
    """The entry point of `gymnasium.make_vec("ex2/DoomMyWayHomePlus-v0", num_envs=...)`."""
    return DoomVectorEnv(num_envs, **settings)
