"""Stable-Baselines3: a callback that adds any bonus to a training, on-policy (PPO, A2C, TRPO, MaskablePPO, RecurrentPPO) and
off-policy (DQN, QR-DQN, SAC, TD3, TQC; how, is in `ex2.adapters.sb3_replay`)."""

from __future__ import annotations

import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ex2.arrays import Array
from ex2.batch import Batch, mapped
from ex2.bonus import Bonus, check_bonus, form_of
from ex2.choices import GATHER, check_choices, check_training
from ex2.errors import UsageError, missing_extra
from ex2.explorer import Explorer
from ex2.rows import seems_finite
from ex2.shaping import Weight
from ex2.training.checkpoint import load, save
from ex2.training.returns import Stream
from ex2.training.seen import Observations
from ex2.view import See

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import unwrap_vec_normalize

    from ex2.adapters.sb3_below import Below, looked_at
    from ex2.adapters.sb3_replay import BonusReplayBuffer, with_bonus
    from ex2.adapters.sb3_values import PolicyValues
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "stable_baselines3":
        raise
    raise missing_extra("sb3", "stable_baselines3") from None

TWICE = "Two BonusCallbacks would be in each other's way: use one, BonusCallback('kernel-exemplar+rnd') for two bonuses."
RECENT = 100  # episodes whose bonuses are reported, as many as Stable-Baselines3 has of rewards


class BonusCallback(BaseCallback):
    """Adds a bonus to what a model learns from; the environment's own reward stays what is reported and evaluated.

    On-policy it enters the rollout buffer's rewards before returns and advantages are computed. Off-policy it is added to
    the rewards of a sample when it is drawn. Discount, seed, device and the length of the training come from the model.

    Args:
        bonus: a built bonus, or the name of one; the spaces then come from the model, the settings from `settings`.
        weight: beta, a number or a schedule; "auto" by default, which needs none (`ex2.shaping`).
        centre: what is subtracted from the bonuses of a batch: "median", "mean" or "none".
        total_steps: what the weight's schedule runs over; by default, what `learn` was asked for. Who calls `learn` again and
            again must say it, or the bonus ends with each call.
        see: what of an observation the bonus sees: a key of a Dict, several, or a function (`ex2.view.View`).
        last_frame: observations are stacks of frames, and the bonus sees the last one only; its number of channels, where
            there is no VecFrameStack to tell it and it is not 1.
        episodic: whether the bonus's returns end with an episode; if not, they have a critic of their own
            (`ex2.training.returns.Stream`); on-policy only.
        scaled: whether scores are divided by the running deviation of their discounted sums.
        gather: transitions that a fit waits for, over as many rollouts as it takes (`ex2.explorer`).

    After each rollout `metrics` holds what there is to report, and `bonuses` the weighted bonus of each transition [T, N].
    """

    def __init__(
        self,
        bonus: Bonus | str = "kernel-exemplar",
        weight: float | str | Weight = "auto",
        *,
        centre: str = "median",
        total_steps: int | None = None,
        see: See = None,
        last_frame: bool | int = False,
        episodic: bool = True,
        scaled: bool = True,
        gather: int = GATHER,
        **settings: Any,
    ) -> None:
        super().__init__()
        if isinstance(bonus, dict):  # Stable-Baselines3 calls a class as if it were a function of its variables
            raise UsageError("BonusCallback was passed as a class: pass one that is made, callback=BonusCallback().")
        check_bonus(bonus, settings, BonusCallback.__init__)
        check_training(centre, total_steps)
        self._bonus, self._settings = bonus, settings
        self.weight = check_choices(weight, scaled, gather, episodic=episodic)
        self._choices = {"centre": centre, "scaled": scaled, "episodic": episodic, "gather": gather, "see": see}
        self.total_steps, self.last_frame, self.episodic = total_steps, last_frame, episodic
        self._explorer: Explorer | None = None
        self.stream: Stream | None = None
        self._below: Below | None = None
        self._replay: BonusReplayBuffer | None = None  # off-policy
        self.metrics: dict[str, float] = {}
        self.bonuses = np.zeros((0, 0), np.float32)
        self._trained: Any = None  # the latest model
        self._streamed: Any = None  # the model whose critic the stream's is a copy of
        self._saved: dict[str, Any] | None = None  # what is to be gone on from
        self._episodes = deque[float](maxlen=RECENT)
        self._reported: dict[str, float] | None = None
        self._mean = math.nan  # of these
        self._episode: Array = np.zeros(0)  # the bonus of each environment's episode so far
        self._begun = False  # whether a rollout has: none begins for who is called now and then

    @property
    def explorer(self) -> Explorer:
        """Bonus, scales and weight, once there are spaces: at the start of training."""
        if self._explorer is None:
            raise UsageError("BonusCallback has no bonus before the training has begun: pass it to learn first.")
        return self._explorer

    @property
    def bonus(self) -> Bonus:
        """The bonus, once it is built."""
        return self.explorer.bonus

    @property
    def batch(self) -> Batch:
        """The transitions of the last rollout."""
        if self._replay is not None:
            raise UsageError("Off-policy there is no rollout to look at: transitions are in the model's replay_buffer.")
        return self.explorer.latest

    def _init_callback(self) -> None:
        model = self.model
        if not isinstance(model, OnPolicyAlgorithm | OffPolicyAlgorithm):
            raise UsageError(
                f"BonusCallback does not know what {type(model).__name__} learns from: it has no buffer of its own."
            )
        on_policy = isinstance(model, OnPolicyAlgorithm)
        if not on_policy and not self.episodic:
            raise UsageError(f"episodic=False is for on-policy algorithms, not for {type(model).__name__}: leave it out.")
        space, frame = looked_at(self.training_env, self.last_frame, inside=on_policy)
        if self._explorer is None:
            device = model.device if model.device.type in ("cpu", "cuda") else "cpu"
            chosen: dict[str, Any] = {"gamma": model.gamma, "seed": model.seed or 0, "device": device}
            chosen |= self._choices | self._settings
            self._explorer = Explorer(space, model.action_space, self._bonus, self.weight, last_frame=frame, **chosen)
            self._spaces = form_of(space), form_of(model.action_space)
        elif self._spaces != (form_of(space), form_of(model.action_space)):
            raise UsageError(
                f"This BonusCallback was used with other spaces than those of this {type(model).__name__}, {space} and "
                f"{model.action_space}: make a new one for it."
            )
        elif model is not self._trained and self.explorer.begun:
            if not model.num_timesteps:
                raise UsageError(
                    f"This BonusCallback knows what another model has seen, and this {type(model).__name__} begins: make a new "
                    "one for it, or, if it is that model, go on with learn(..., reset_num_timesteps=False)."
                )
            if model.gamma != self.explorer.shaper.gamma:
                raise UsageError(
                    f"This BonusCallback was used with a discount of {self.explorer.shaper.gamma:g}, and this "
                    f"{type(model).__name__} has {model.gamma:g}: make a new one for it."
                )
        self._trained = model
        self._below, self._replay = None, None
        if isinstance(model, OffPolicyAlgorithm):
            normalizer = unwrap_vec_normalize(self.training_env)
            self._replay = model.replay_buffer = with_bonus(
                model.replay_buffer, self.explorer, normalizer, lambda: int(model.num_timesteps)
            )
        else:
            self._below = Below.under(self.training_env)
            if not self.episodic and (self.stream is None or self._streamed is not model):
                seed, self._streamed = self.bonus.generator.initial_seed(), model
                self.stream = Stream(PolicyValues(model.policy), model.gamma, model.gae_lambda, seed)
        if self._saved is not None:
            saved, self._saved = self._saved, None
            self._load(saved)

    def _on_training_start(self) -> None:
        if self._replay is None:
            vars(self.model.rollout_buffer).pop("compute_returns_and_advantage", None)  # type: ignore[attr-defined]
        elif self._replay.explorer is not self.explorer:
            raise UsageError(TWICE)
        self.explorer.total_steps = self.total_steps or self.locals["total_timesteps"]
        self.explorer.steps = self.model.num_timesteps
        count = self.training_env.num_envs
        if len(self._episode) != count or not self.model.num_timesteps:  # environments begin anew
            self._episode = np.zeros(count)
        self._all, self._none = np.ones(count, bool), np.zeros(count, bool)
        self._begun = False
        self.explorer.begin()

    def _on_training_end(self) -> None:
        if self._replay is None:  # of a rollout that was broken off
            vars(self.model.rollout_buffer).pop("compute_returns_and_advantage", None)  # type: ignore[attr-defined]
        else:
            self._replay.tell()
            self._replay.explorer = None  # a training without this callback has no bonus
        if self._below is not None:
            self._below.remove()

    def _on_rollout_start(self) -> None:
        self._begun = True
        if self._replay is None:
            self.explorer.drop()
            self._ends: list[tuple[int, int]] = []  # of episodes: the step, and the environment
            before = None if self._below is None else self._below.observations
            self._before = None if before is None else self.explorer.view(before)
            buffer: Any = self.model.rollout_buffer  # type: ignore[attr-defined]
            if "compute_returns_and_advantage" in vars(buffer):
                raise UsageError(TWICE)
            buffer.compute_returns_and_advantage = self._compute_with_bonus

    def _on_step(self) -> bool:
        if not self._begun:
            raise UsageError(
                "BonusCallback needs every step and every rollout: pass it to learn itself, not to another callback."
            )
        if self._replay is not None:
            self._replay.attended = self.model.num_timesteps
            return True
        found, explorer = self.locals, self.explorer
        after = explorer.view(found["new_obs"] if self._below is None else self._below.observations)
        if self._before is None:
            self._before = explorer.view(mapped(lambda values: values.cpu().numpy(), found["obs_tensor"]))
        before, self._before = self._before, after
        done, infos = found["dones"], found["infos"]
        terminated = truncated = self._none
        if True in done.tolist():  # of a few, this is the quickest
            ended = np.flatnonzero(done).tolist()
            finals = (
                {index: infos[index]["terminal_observation"] for index in ended} if self._below is None else self._below.finals
            )
            after, truncated = explorer.with_finals(after, finals), np.zeros(len(done), bool)
            for index in ended:
                self._ends.append((explorer.running, index))
                truncated[index] = infos[index].get("TimeLimit.truncated", False)
            terminated = done & ~truncated
        if not seems_finite(after):  # before the policy stumbles over it
            explorer.check_finite(after)
        actions = found.get("clipped_actions", found["actions"])  # what the environment saw
        rewards = found["rewards"].astype(np.float32)  # a copy: what is expected behind a time limit will be added to them
        explorer.take((before, actions, after, terminated, truncated, self._all, rewards))
        return True

    def _on_rollout_end(self) -> None:
        if self._replay is not None:
            self._replay.tell()
            self.explorer.learn()
        if self.explorer.metrics is not self._reported:
            self._reported = self.explorer.metrics
            self.metrics = dict(self._reported)
            for name, value in self.metrics.items():
                self.logger.record(name, value)
        if self._episodes:
            self.metrics["rollout/ep_bonus_mean"] = self._mean
            self.logger.record("rollout/ep_bonus_mean", self._mean)

    def _compute_with_bonus(self, last_values: torch.Tensor, dones: Array) -> None:
        """Stands before a rollout buffer's own `compute_returns_and_advantage`, once, and puts the bonus into the rewards."""
        model: Any = self.model
        buffer = model.rollout_buffer
        del buffer.compute_returns_and_advantage  # it is the buffer's own again
        whole = self.explorer.running == len(buffer.rewards)  # else the rollout was broken off, and goes on without a callback
        if whole:
            self._relabel(model, buffer)
        buffer.compute_returns_and_advantage(last_values=last_values, dones=dones)
        if whole and self.stream is not None:
            buffer.advantages += self._stream_advantages(model, self.bonuses)

    def _relabel(self, model: OnPolicyAlgorithm, buffer: Any) -> None:
        """Puts the bonus into the rollout buffer's rewards."""
        explorer = self.explorer
        explorer.steps = model.num_timesteps - explorer.running * len(self._all)
        shaped = explorer.rollout()
        self.bonuses, own = shaped.bonuses, explorer.rewards
        heard = shaped.rewards if self.stream is not None else shaped.rewards + shaped.bonuses
        if not (heard == own).all():
            buffer.rewards[:] = heard + (buffer.rewards - own)  # beside them, what is expected behind a time limit
        if self._ends:
            sums = np.cumsum(shaped.bonuses, 0, np.float64) * explorer.unit
            before = -self._episode
            for step, index in self._ends:
                self._episodes.append(sums[step, index] - before[index])
                before[index] = sums[step, index]
            self._episode, self._mean = sums[-1] - before, float(np.mean(self._episodes))
        else:
            self._episode = self._episode + shaped.bonuses.sum(0, np.float64) * explorer.unit

    def _stream_advantages(self, model: OnPolicyAlgorithm, bonuses: Array) -> Array:
        """The advantages of a bonus whose returns go on over the ends of episodes."""
        assert self.stream is not None
        policy, held = model.policy, model.rollout_buffer.observations
        last, _ = policy.obs_to_tensor(self.locals["new_obs"])
        if isinstance(held, dict) or isinstance(last, dict):
            raise UsageError("episodic=False does not take Dict observations: leave it out, or flatten them.")
        rows = torch.as_tensor(held.reshape(-1, *held.shape[2:]), device=policy.device)
        return self.stream.advantages(bonuses, Observations(rows, lambda some: some), last)

    def save(self, path: str | Path) -> None:
        """Saves all that the bonus knows beside the model: `callback.save("agent")` after `model.save("agent")`."""
        if self._replay is not None:
            self._replay.tell()
        stream = None if self.stream is None else self.stream.state_dict()
        episodes = {"finished": list(self._episodes), "running": self._episode}
        save(beside(path), {"explorer": self.explorer.state_dict(), "stream": stream, "episodes": episodes})

    def load(self, path: str | Path) -> BonusCallback:
        """Goes on from what `save` wrote; returns itself: `callback=BonusCallback().load("agent")`."""
        path = beside(path)
        if not path.exists():
            raise UsageError(f"There is no checkpoint {path}: callback.save({str(path)!r}) writes it, after model.save(...).")
        saved = load(path)
        if self._explorer is None:
            self._saved = saved
        else:
            self._load(saved)
        return self

    def _load(self, saved: dict[str, Any]) -> None:
        if (saved["stream"] is None) != (self.stream is None):
            raise UsageError("The bonus was saved with another value of episodic: give it the one that it was trained with.")
        self.explorer.load_state_dict(saved["explorer"])
        if self.stream is not None:
            self.stream.load_state_dict(saved["stream"])
        self._episodes.extend(saved["episodes"]["finished"])
        self._mean = float(np.mean(self._episodes)) if self._episodes else math.nan
        self._episode = saved["episodes"]["running"]


def beside(path: str | Path) -> Path:
    """Where the bonus of a model lies.

    >>> beside("runs/agent.zip").name
    'agent.bonus'
    """
    return Path(str(path).removesuffix(".zip").removesuffix(".bonus") + ".bonus")
