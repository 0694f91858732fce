"""What Gymnasium asks of all tasks alike: seeds, masks, autoreset and render modes, and words for calls out of order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ex2.arrays import Array
from ex2.errors import UsageError, unknown

Maker = TypeVar("Maker", bound=Callable[..., Any])
RENDER_MODES = ["rgb_array"]


def drawable(make_env: Maker) -> Maker:
    """An entry point that says so is given "human" and "rgb_array_list" by Gymnasium's own wrappers."""
    make_env.metadata = {"render_modes": RENDER_MODES}  # type: ignore[attr-defined]
    return make_env


def metadata(frames_per_second: float, autoreset_mode: AutoresetMode | str, render_mode: str | None) -> dict[str, Any]:
    """What a batch says of itself; modes that there are not are refused."""
    if render_mode not in (None, *RENDER_MODES):
        raise UsageError(
            f"There is no render mode {render_mode!r}: use 'rgb_array', or, for one environment from gymnasium.make, "
            "'human' or 'rgb_array_list'."
        )
    known = {key: mode for mode in AutoresetMode for key in (mode, mode.value)}
    if autoreset_mode not in known:
        raise unknown("autoreset_mode", str(autoreset_mode), [mode.value for mode in AutoresetMode])
    return {"render_modes": RENDER_MODES, "render_fps": frames_per_second, "autoreset_mode": known[autoreset_mode]}


def check_order(env: VectorEnv[Any, Any, Any], call: str, begun: bool) -> None:
    """Refuses a call after `close`, or before the first reset."""
    if env.closed:
        raise UsageError(f"{call} was called after close: make the environment anew.")
    if not begun:
        raise UsageError(f"{call} was called before reset: call reset() once first.")


def check_actions(actions: Array, num_envs: int, count: int) -> Array:
    """Discrete actions as an array, if they are what a step takes."""
    actions = np.asarray(actions)
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu" or actions.min() < 0 or actions.max() >= count:
        raise UsageError(f"step got actions {actions.tolist()}: expected {num_envs} whole numbers from 0 to {count - 1}.")
    return actions


def check_over(over: Array) -> None:
    """Refuses a step where an episode has ended and nobody has begun the next one (AutoresetMode.DISABLED)."""
    if over.any():
        raise UsageError(
            f"The episode of environment {int(np.argmax(over))} has ended: call reset(), with options={{'reset_mask': ended}} "
            "for some of a batch."
        )


def chosen(options: dict[str, Any] | None, num_envs: int, begun: bool) -> Array:
    """Which environments a reset is for, bool [N]: those in `options["reset_mask"]`, else all."""
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, bool)
    mask = np.asarray(options["reset_mask"])
    if mask.shape != (num_envs,) or mask.dtype != bool:
        raise UsageError(f"reset got a reset_mask of {mask.dtype} {mask.shape}: expected {num_envs} booleans.")
    if not begun and not mask.all():
        raise UsageError("The first reset got a reset_mask that leaves environments out: leave out the mask.")
    return mask


def last_observations(observations: Array | Sequence[Any], ended: Array) -> dict[str, Any]:
    """What `infos` hold where episodes ended in the step that begins new ones."""
    last = np.full(len(ended), None, dtype=object)
    for index in np.flatnonzero(ended).tolist():
        last[index] = observations[index]
    return {"final_obs": last, "_final_obs": ended}


def seeds_for(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """A seed for each environment: s + i from one seed s, the seeds themselves from a list, None from none.

    >>> seeds_for(5, 3), seeds_for(None, 2)
    ([5, 6, 7], [None, None])
    """
    if seed is None:
        return [None] * num_envs
    seeds: list[int | None] = list(seed) if isinstance(seed, Sequence) else [int(seed) + index for index in range(num_envs)]
    if len(seeds) != num_envs:
        raise UsageError(f"reset got {len(seeds)} seeds for {num_envs} environments: pass one for each, or an int.")
    return seeds
