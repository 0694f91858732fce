"""Freeway, Frostbite and Venture (paper, section 6) on ALE's own vector environment, with the paper's preprocessing.

An observation is the last four frames, grey, 42x42; each action is held for four frames of the game. Rewards are the game's
own: clipping them is the learner's business. A lost life does not end an episode; 4,500 actions do. Actions are not repeated at
random (sticky) unless asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from ex2.errors import UsageError
from ex2.tasks.seeding import seeds_for
from ex2.tasks.single import Single

Array = np.ndarray
SIZE = 42  # pixels a side of a frame
STACK = 4  # frames in an observation, the newest last
FRAMES = 4  # of the game for each action
EPISODE_STEPS = 4_500
NOOPS = 30  # an episode begins after up to so many actions that do nothing
FRAMES_PER_SECOND = 60 / FRAMES
PICTURE = 5  # times as large as an observation is a rendered frame


class Atari(AtariVectorEnv):
    """A batch of games, stepped in C++ threads; episodes that end begin anew in the same step (AutoresetMode.SAME_STEP)."""

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        sticky: float = 0.0,
        threads: int = 0,
        episode_steps: int = EPISODE_STEPS,
        noops: int = NOOPS,
        render_mode: str | None = None,
    ) -> None:
        if not 0.0 <= sticky <= 1.0 or episode_steps < 1 or min(threads, noops) < 0 or num_envs < 1:
            raise UsageError(
                f"sticky={sticky} must be from 0 to 1, episode_steps={episode_steps} and num_envs={num_envs} at least 1, "
                f"threads={threads} and noops={noops} at least 0."
            )
        super().__init__(
            game,
            num_envs,
            num_threads=threads,
            max_num_frames_per_episode=episode_steps * FRAMES,
            repeat_action_probability=sticky,
            autoreset_mode=AutoresetMode.SAME_STEP,
            img_height=SIZE,
            img_width=SIZE,
            stack_num=STACK,
            frameskip=FRAMES,
            noop_max=noops,
            use_fire_reset=False,
            reward_clipping=False,
        )
        self.metadata = self.metadata | {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}
        self.render_mode = render_mode
        self._seen: Array | None = None

    def reset(  # type: ignore[override]
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begins all episodes, or those in `options["reset_mask"]`. A seed s gives environment i the seed s + i."""
        chosen = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        seeds = np.array([-1 if one is None else one % 2**31 for one in seeds_for(seed, self.num_envs)])  # -1: ALE's own
        observation: Any
        observation, infos = super().reset(seed=seeds[chosen], options=options)
        self._seen = observation
        return observation.copy(), infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        if self._seen is None:
            raise UsageError("step was called before reset: call reset() once first.")
        actions = np.asarray(actions)
        known = int(self.single_action_space.n)  # type: ignore[attr-defined]
        if actions.shape != (self.num_envs,) or not np.isin(actions, range(known)).all():
            raise UsageError(f"step got actions {actions.tolist()}: expected {self.num_envs} numbers from 0 to {known - 1}.")
        observation, reward, terminated, truncated, infos = super().step(actions.astype(np.int32))
        truncated = truncated & ~terminated
        self._seen = observation
        if "final_obs" in infos:
            infos["_final_obs"] = terminated | truncated
        return observation.copy(), reward.astype(np.float64), terminated, truncated, infos

    def render(self) -> tuple[Array, ...] | None:  # type: ignore[override]
        """What the agent sees of the newest frame, enlarged."""
        if self.render_mode is None or self._seen is None:
            return None
        large = self._seen[:, -1].repeat(PICTURE, axis=1).repeat(PICTURE, axis=2)
        return tuple(np.stack([frame] * 3, axis=-1) for frame in large)


def make_env(game: str, render_mode: str | None = None, **settings: Any) -> Single:
    """The entry point of `gymnasium.make("ex2/Venture-v0")` and its like."""
    return Single(Atari(game, 1, render_mode=render_mode, **settings), render_mode)


def make_vector_env(num_envs: int = 1, game: str = "venture", **settings: Any) -> Atari:
    """The entry point of `gymnasium.make_vec("ex2/Venture-v0", num_envs=...)` and its like."""
    return Atari(game, num_envs, **settings)
