"""What a bonus sees of Stable-Baselines3's wrapped environments: a running normaliser must not move what was visited, so it
looks below the innermost VecNormalize that normalises observations, wherever that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecFrameStack, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn


def chain(env: VecEnv) -> Iterator[VecEnv]:
    """An environment and those that it is wrapped around, from the outside in."""
    while True:
        yield env
        if not isinstance(env, VecEnvWrapper):
            return
        env = env.venv


def normalizer_of(env: VecEnv) -> VecNormalize | None:
    """The innermost VecNormalize that normalises observations."""
    found = [one for one in chain(env) if isinstance(one, VecNormalize) and one.norm_obs]
    return found[-1] if found else None


def looked_at(env: VecEnv, last_frame: bool | int, inside: bool) -> tuple[spaces.Space[Any], bool | int]:
    """The space of the observations that the bonus is shown, and how many channels a last frame has.

    Off-policy, not `inside`, they are the buffer's, which holds them as they were before VecNormalize.
    """
    normalizer = normalizer_of(env)
    below = env if normalizer is None else normalizer.venv
    space = below.observation_space if inside else env.observation_space
    if last_frame is True and isinstance(space, spaces.Box) and len(space.shape) == 3:
        for one in chain(below if inside else env):
            if isinstance(one, VecFrameStack):
                return space, max(min(space.shape[0], space.shape[2]) // one.stacked_obs.n_stack, 1)
    return space, last_frame


class Below:
    """Keeps what a VecNormalize is given: it changes observations, last ones of episodes included, and has no hook for them.

    Functions of ours stand before `reset` and `step_wait` of what lies below it, and the chain of wrappers stays as it is:
    what Stable-Baselines3 does along it (an EvalCallback's copies of moments) needs both chains to be of one length.
    """

    def __init__(self, above: VecNormalize) -> None:
        self.watched = above.venv
        self.observations: Any = above.get_original_obs() if hasattr(above, "old_obs") else None
        self.finals: dict[int, Any] = {}  # the last observation of each environment whose episode has just ended
        self._reset, self._step_wait = self.watched.reset, self.watched.step_wait
        vars(self.watched).update(reset=self.reset, step_wait=self.step_wait)

    @classmethod
    def under(cls, env: VecEnv) -> Below | None:
        """What watches below an environment's normaliser, if there is one."""
        above = normalizer_of(env)
        if above is None:
            return None
        watching = getattr(vars(above.venv).get("step_wait"), "__self__", None)
        return watching if isinstance(watching, cls) else cls(above)

    def remove(self) -> None:
        """Leaves the environment as it was."""
        for name in ("reset", "step_wait"):
            vars(self.watched).pop(name, None)

    def reset(self) -> VecEnvObs:
        observations = self._reset()
        self.observations, self.finals = observations, {}
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        self.observations, rewards, dones, infos = self._step_wait()
        self.finals = {int(index): infos[index]["terminal_observation"] for index in dones.nonzero()[0]}
        return self.observations, rewards, dones, infos
