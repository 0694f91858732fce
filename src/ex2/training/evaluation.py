"""Playing whole episodes, with a run's agent or at random: their returns, and a film of the first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from ex2.arrays import Array
from ex2.errors import UsageError
from ex2.tasks import find_task
from ex2.training.environments import environments, vector_env
from ex2.training.rollout import SCORE_EPISODES
from ex2.training.run import Run
from ex2.training.video import Film

MOST_AT_ONCE = 20  # episodes that are played side by side


def evaluate(
    folder: str | Path,
    episodes: int = SCORE_EPISODES,
    seed: int = 0,
    deterministic: bool = False,
    video: str | Path | None = None,
) -> list[float]:
    """The returns of whole episodes of a run's agent, without any bonus and without changing the run.

    Args:
        episodes, seed: how many, and what they are drawn from.
        deterministic: whether the agent takes its most likely action instead of a draw.
        video: a file to film the first of them in, such as "out.mp4" or "out.gif".
    """
    _check(episodes, seed)
    run = Run(folder)
    policy, generator = run.load().policy, torch.Generator().manual_seed(seed)
    env = environments(run.config, min(episodes, MOST_AT_ONCE), **({"render_mode": "rgb_array"} if video else {}))
    with contextlib.closing(env):
        return play(env, lambda seen: policy.act(seen, generator, deterministic), episodes, seed, video)


def play(
    env: VectorEnv[Any, Any, Any],
    act: Callable[[Any], Any],
    episodes: int,
    seed: int,
    video: str | Path | None = None,
    keep: Callable[[Array], None] | None = None,
    most: int | None = None,
) -> list[float]:
    """The returns of `episodes` episodes, as many at once as there are environments; the first one is filmed, in a file or by
    `keep`, which is given each of its pictures. After `most` steps it stops: of what has not ended by then, the return so far.

    Environment i plays episodes i, i + n, i + 2n ...: short episodes do not come first, and are not counted more often.
    """
    if (video or keep) and "rgb_array" not in env.metadata.get("render_modes", ()):
        raise UsageError("This environment cannot be drawn (it has no render mode 'rgb_array'): leave the video out.")
    with Film(video, env.metadata.get("render_fps", 30)) if video else contextlib.nullcontext() as film:
        observation, _ = env.reset(seed=seed)
        returns: dict[int, float] = {}
        following, running, steps = np.arange(env.num_envs), np.zeros(env.num_envs), 0
        while len(returns) < episodes and (most is None or steps < most):
            if (film or keep) and 0 not in returns:
                (film.add if film else keep)(_first_picture(env))  # type: ignore[misc]
            observation, reward, terminated, truncated, infos = env.step(act(observation))
            running, steps = running + reward, steps + 1
            died = infos.get("died", np.zeros(env.num_envs, bool))  # cut short by a crash: played again
            for index in np.flatnonzero(terminated | truncated):
                if not died[index]:
                    returns[int(following[index])] = float(running[index])
                    following[index] += env.num_envs
                running[index] = 0.0
            returns = {number: value for number, value in returns.items() if number < episodes}
        returns = dict(zip(following.tolist(), running.tolist(), strict=True)) | returns
        return [returns.get(number, 0.0) for number in range(episodes)]


def _first_picture(env: VectorEnv[Any, Any, Any]) -> Any:
    """What the first environment shows; a batch that can draw one alone need not draw them all."""
    draw = getattr(env.unwrapped, "draw", None)
    return draw(0) if draw is not None else env.render()[0]  # type: ignore[index]


def look(task: str, episodes: int = 1, seed: int = 0, video: str | Path | None = None, **settings: Any) -> list[float]:
    """The returns of episodes of a task under random actions."""
    _check(episodes, seed)
    find_task(task)
    env = vector_env(task, min(episodes, MOST_AT_ONCE), **({"render_mode": "rgb_array"} if video else {}), **settings)
    env.action_space.seed(seed)
    with contextlib.closing(env):
        return play(env, lambda observation: env.action_space.sample(), episodes, seed, video)


def _check(episodes: int, seed: int) -> None:
    if episodes < 1 or seed < 0:
        raise UsageError(f"episodes={episodes} must be at least 1, and seed={seed} at least 0.")
