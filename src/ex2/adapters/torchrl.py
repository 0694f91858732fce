"""TorchRL: a transform that writes a bonus beside the rewards of what a collector has gathered.

TorchRL's own RND rates a step when it is taken, by networks that something else trains. The bonuses here are fitted to the
batch that they rate, so this transform is no part of the environment: it is the collector's `postproc`, sees whole batches
[*, T], in the process of the learner also where others collect them, and learns from them itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from ex2.adapters.steps import check_seen
from ex2.batch import Batch
from ex2.bonus import Bonus
from ex2.choices import as_weight, check_length
from ex2.errors import UsageError, missing_extra
from ex2.explorer import Explorer
from ex2.shaping import AUTO, Weight

try:
    from tensordict import TensorDictBase
    from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, MultiOneHot, OneHot, TensorSpec
    from torchrl.envs import EnvBase
    from torchrl.envs.transforms import Transform
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("torchrl", "tensordict"):
        raise
    raise missing_extra("torchrl", "torchrl") from None

Values = Callable[[Tensor], Tensor]
WRITTEN = ("reward", "environment_reward", "bonus")


class BonusTransform(Transform):  # type: ignore[misc]
    """Adds a bonus to the rewards of collected data; for the `postproc` of a collector, or to be called on rollouts.

    Beside `("next", "reward")`, what the agent is to learn from, it writes `("next", "environment_reward")`, the environment's
    own, and `("next", "bonus")`, what was added. `metrics` holds what there is to report of the latest batch.

    Args:
        env: the environment, for its specs; it is not stepped and not kept.
        bonus: a built bonus, or the name of one; the spaces then come from the specs, the settings from `settings`.
        weight: beta, a number or a schedule; "auto" by default, which needs none (`ex2.shaping`).
        gamma: the agent's discount.
        total_steps: frames of the whole training, over which the weight falls; the collector's `total_frames`.
        in_keys: the observations that the bonus sees; several make a Dict of them.
        settings: `centre`, `scaled`, `gather` and so on as of `ex2.Explorer`, and the settings of the bonus, `seed` and
            `device` among them.
    """

    def __init__(
        self,
        env: EnvBase,
        bonus: Bonus | str = "kernel-exemplar",
        weight: float | str | Weight = AUTO,
        *,
        gamma: float = 0.99,
        total_steps: int | None = None,
        in_keys: list[str] | str | None = None,
        **settings: Any,
    ) -> None:
        check_seen(settings, "say what the bonus sees by in_keys=[...]")
        check_length(as_weight(weight), total_steps)
        keys = ["observation"] if in_keys is None else [in_keys] if isinstance(in_keys, str) else list(in_keys)
        if not isinstance(env, EnvBase):
            raise UsageError(f"BonusTransform takes TorchRL's environment, GymEnv(...), first, not {type(env).__name__}.")
        super().__init__(in_keys=[*keys, "action", ("next", "reward")], out_keys=[later(name) for name in WRITTEN])
        known = dict(env.observation_spec.items(True, True))
        for key in keys:
            if key not in known:
                raise UsageError(f"The environment has no observation {key!r}: pass in_keys=[...] with some of {list(known)}.")
        seen = {key: space_of(known[key], len(env.batch_size), f"observation {key!r}") for key in keys}
        self.observed = {key: values for key, (_, values) in seen.items()}
        action_space, self.acted = space_of(env.action_spec, len(env.batch_size), "action")
        space = seen[keys[0]][0] if len(keys) == 1 else spaces.Dict({key: space for key, (space, _) in seen.items()})
        self.explorer = Explorer(space, action_space, bonus, weight, gamma=gamma, total_steps=total_steps, **settings)
        self.running: Tensor | None = None  # the numbers of the trajectories at the end of the latest batch, -1 if they ended

    @property
    def metrics(self) -> dict[str, float]:
        return self.explorer.metrics

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Collected data [T] or [*, T], with the bonus in it; what was passed stays as it is."""
        if not self.training:
            raise UsageError(
                "BonusTransform is in evaluation mode, as in a replay buffer: it learns from what is new, "
                "so pass it as postproc=... of the collector."
            )
        if tensordict.batch_dims < 1:
            raise UsageError("The data has no dimension of time: BonusTransform takes what a collector gathers, [*, T].")
        for key in (*self.observed, ("next", next(iter(self.observed))), ("next", "reward")):
            if tensordict.get(key, None) is None:
                raise UsageError(
                    f"The data has no {key!r}: BonusTransform takes what a collector gathers with its next observations, so "
                    "leave out compact_obs=True."
                )
        batch, numbers = self.transitions(tensordict), self.trajectories(tensordict)
        own, anew = tensordict.get(("next", "reward")), not self.goes_on(numbers)
        shaped = self.explorer.shape(batch, columns(own.squeeze(-1), tensordict).cpu().numpy(), anew)
        self.explorer.steps -= int((~batch.mask).sum())  # padding is no steps
        split = ("collector", "mask") in tensordict.keys(True)
        self.running = None if numbers is None or split else torch.where(batch.terminated | batch.truncated, -1, numbers)[-1]
        changed = tensordict.copy()
        learned = {"bonus": shaped.bonuses, "reward": shaped.rewards + shaped.bonuses}
        for name, values in learned.items():
            back = torch.as_tensor(values).T.reshape(own.shape).to(own)
            changed.set(("next", name), back)
        changed.set(("next", "environment_reward"), own.clone())
        return changed

    def transitions(self, data: TensorDictBase) -> Batch:
        """The data as [T, N, ...]; padding, which `split_trajs=True` makes, is masked."""
        obs, next_obs = self.observations(data), self.observations(data.get("next"))
        terminated, done = (columns(data.get(later(name)).squeeze(-1), data) for name in ("terminated", "done"))
        numbers, mask = self.trajectories(data), data.get(("collector", "mask"), None)
        ends = done.cpu().clone()
        if numbers is not None:  # several collectors' data may lie one behind the other
            ends[:-1] |= numbers[1:] != numbers[:-1]
        terminated, mask = terminated.cpu(), None if mask is None else columns(mask.reshape(data.batch_size), data)
        return Batch.of(obs, columns(self.acted(data.get("action")), data), next_obs, terminated, ends & ~terminated, mask)

    def trajectories(self, data: TensorDictBase) -> Tensor | None:
        """The numbers that a collector gives them, [T, N]; None where data is of none."""
        numbers = data.get(("collector", "traj_ids"), None)
        return None if numbers is None else columns(numbers.reshape(data.batch_size), data).cpu()

    def goes_on(self, numbers: Tensor | None) -> bool:
        """Whether the episodes that ran at the end of the batch before still do: not where the collector resets at each
        iteration or splits trajectories, and not where it is another one."""
        if numbers is None or self.running is None or numbers[0].shape != self.running.shape:
            return False
        return bool(((numbers[0] == self.running) | (self.running < 0)).all())

    def observations(self, data: TensorDictBase) -> Any:
        """What the bonus sees, [T, N, ...]; of several observations, a dict of them."""
        found = {key: columns(values(data.get(key)), data) for key, values in self.observed.items()}
        return found if len(found) > 1 else found.popitem()[1]

    def transform_output_spec(self, output_spec: Any) -> Any:
        """Refuses to be part of an environment, which asks this of its transforms."""
        raise UsageError(
            "BonusTransform is part of an environment here, and would rate single steps: "
            "pass it as postproc=... of the collector instead."
        )

    def get_extra_state(self) -> dict[str, Any]:
        """So that `state_dict` has all in it that later bonuses depend on."""
        return self.explorer.state_dict() | {"running": self.running}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.explorer.load_state_dict(state)
        self.running = state.get("running")


def later(key: str) -> tuple[str, str]:
    return "next", key


def columns(values: Tensor, data: TensorDictBase) -> Tensor:
    """Values [*, T, ...] as [T, N, ...]."""
    steps = data.batch_size[-1]
    return values.reshape(math.prod(data.batch_size[:-1]), steps, *values.shape[data.batch_dims :]).transpose(0, 1)


def numbered(codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """One-hot codes of so many places each, one behind the other, as numbers.

    >>> numbered(torch.tensor([[0, 1, 1, 0, 0]]), [2, 3]).tolist()
    [[1, 0]]
    """
    return torch.stack([part.long().argmax(-1) for part in codes.split(list(sizes), -1)], -1)


def space_of(spec: TensorSpec, leading: int, name: str) -> tuple[spaces.Space[Any], Values]:
    """The space of one environment's values, and what makes values of it of a tensor: one-hot codes are numbered."""
    shape = tuple(spec.shape[leading:])
    if isinstance(spec, Composite):
        raise UsageError(f"The {name} has several parts ({', '.join(map(str, spec.keys()))}): bonuses take one part a key.")
    if isinstance(spec, MultiOneHot):  # a OneHot, too, as a MultiCategorical and a Binary are Categorical
        sizes = [part.n for part in spec.space]
        return spaces.MultiDiscrete(sizes), lambda values: numbered(values, sizes)
    if isinstance(spec, OneHot):
        return spaces.Discrete(spec.space.n), lambda values: values.long().argmax(-1)
    if isinstance(spec, Binary):
        return spaces.MultiBinary(shape), lambda values: values
    if isinstance(spec, MultiCategorical):
        return spaces.MultiDiscrete(spec.nvec.reshape(-1, shape[-1])[0].cpu().numpy()), lambda values: values
    if isinstance(spec, Categorical):
        return spaces.Discrete(spec.space.n), lambda values: values
    if not spec.dtype.is_floating_point and spec.dtype != torch.uint8:
        raise UsageError(f"The {name} is a spec of {spec.dtype} numbers: bonuses take floats, bytes and discrete specs.")
    dtype = np.uint8 if spec.dtype == torch.uint8 else np.float32
    if isinstance(spec, Bounded):
        low, high = (bound.reshape(-1, *shape)[0].cpu().numpy().astype(dtype) for bound in (spec.space.low, spec.space.high))
        return spaces.Box(low, high, dtype=dtype), lambda values: values
    low, high = (0, 255) if dtype == np.uint8 else (-np.inf, np.inf)
    return spaces.Box(low, high, shape, dtype), lambda values: values
