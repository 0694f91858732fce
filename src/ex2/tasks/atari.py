"""Freeway, Frostbite and Venture (paper, section 6) on ALE's own vector environment, with the paper's preprocessing.

An observation is the last four frames, grey, 42x42; each action is held for four frames of the game. Rewards are the game's
own: clipping them is the learner's business. A lost life does not end an episode; 4,500 actions do. Actions are not repeated at
random (sticky) unless asked for.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.tasks.cores import cores
from ex2.tasks.rules import check_actions, check_order, check_over, chosen, drawable, metadata, seeds_for
from ex2.tasks.single import Single

SIZE = 42  # pixels a side of a frame
STACK = 4  # frames in an observation, the newest last
FRAMES = 4  # of the game for each action
EPISODE_STEPS = 4_500
NOOPS = 30  # an episode begins after up to so many actions that do nothing
FRAMES_PER_SECOND = 60 / FRAMES
PICTURE = 5  # times as large as an observation is a rendered frame


class Atari(AtariVectorEnv):
    """A batch of games, stepped in C++ threads; by default, episodes that end begin anew in the same step
    (AutoresetMode.SAME_STEP).

    ALE has no DISABLED: it is NEXT_STEP here, with the step refused that would begin an episode.
    """

    closed = True  # until it is made

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        sticky: float = 0.0,
        threads: int = 0,
        episode_steps: int = EPISODE_STEPS,
        noops: int = NOOPS,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
    ) -> None:
        if not 0.0 <= sticky <= 1.0 or episode_steps < 1 or min(threads, noops) < 0 or num_envs < 1:
            raise UsageError(
                f"sticky={sticky} must be from 0 to 1, episode_steps={episode_steps} and num_envs={num_envs} at least 1, "
                f"threads={threads} and noops={noops} at least 0."
            )
        about = metadata(FRAMES_PER_SECOND, autoreset_mode, render_mode)
        same_step = about["autoreset_mode"] is AutoresetMode.SAME_STEP
        super().__init__(
            game,
            num_envs,
            num_threads=threads or min(num_envs, cores()),
            max_num_frames_per_episode=episode_steps * FRAMES,
            repeat_action_probability=sticky,
            autoreset_mode=AutoresetMode.SAME_STEP if same_step else AutoresetMode.NEXT_STEP,
            img_height=SIZE,
            img_width=SIZE,
            stack_num=STACK,
            frameskip=FRAMES,
            noop_max=noops,
            use_fire_reset=False,
            reward_clipping=False,
        )
        self.metadata = about
        self.autoreset_mode = about["autoreset_mode"]
        self.render_mode = render_mode
        self._over = np.zeros(num_envs, bool)
        self._seen: Array | None = None
        self.closed = False

    def reset(  # type: ignore[override]
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begins all episodes, or those in `options["reset_mask"]`. A seed s gives environment i the seed s + i."""
        check_order(self, "reset", begun=True)
        mask = chosen(options, self.num_envs, self._seen is not None)
        seeds = np.array([-1 if one is None else one % 2**31 for one in seeds_for(seed, self.num_envs)])  # -1: ALE's own
        observation: Any
        observation, infos = super().reset(seed=seeds[mask], options={"reset_mask": mask})
        self._seen = observation
        self._over = self._over & ~mask
        return observation.copy(), infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        check_order(self, "step", self._seen is not None)
        actions = check_actions(actions, self.num_envs, int(self.single_action_space.n))  # type: ignore[attr-defined]
        if self.autoreset_mode is AutoresetMode.DISABLED:
            check_over(self._over)
        observation, reward, terminated, truncated, infos = super().step(actions.astype(np.int32))
        truncated = truncated & ~terminated
        self._seen = observation
        self._over = terminated | truncated
        if "final_obs" in infos:
            infos["_final_obs"] = self._over
        return observation.copy(), reward.astype(np.float64), terminated, truncated, infos

    def render(self) -> tuple[Array, ...] | None:  # type: ignore[override]
        """What the agent sees of the newest frame, enlarged."""
        check_order(self, "render", self._seen is not None)
        if self.render_mode is None or self._seen is None:
            return None
        large = self._seen[:, -1].repeat(PICTURE, axis=1).repeat(PICTURE, axis=2)
        return tuple(np.stack([frame] * 3, axis=-1) for frame in large)

    def close_extras(self, **kwargs: Any) -> None:
        del self.ale  # and with it its threads


@drawable
def make_env(game: str, **settings: Any) -> Single:
    """The entry point of `gymnasium.make("ex2/Venture-v0")` and its like."""
    return Single(partial(Atari, game, 1, autoreset_mode=AutoresetMode.DISABLED, **settings))


def make_vector_env(num_envs: int = 1, game: str = "venture", **settings: Any) -> Atari:
    """The entry point of `gymnasium.make_vec("ex2/Venture-v0", num_envs=...)` and its like."""
    return Atari(game, num_envs, **settings)
