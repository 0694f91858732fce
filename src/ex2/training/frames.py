"""Rollouts of stacked frames with each frame stored once, instead of once for each stack that it is part of."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.type_aliases import RolloutBufferSamples

Array = np.ndarray


class FrameRolloutBuffer(RolloutBuffer):
    """A rollout buffer for observations [frames, height, width] of which each step adds one frame, the newest last.

    `observations` holds where the frames of each stack lie in a pool of frames, [T, N, frames]. A step adds its newest frame;
    the first step of the rollout and of each episode adds all of its frames.
    """

    frames: Array

    def reset(self) -> None:
        stack, height, width = self.obs_shape
        shape, self.obs_shape = self.obs_shape, (stack,)  # what the base class then makes room for
        super().reset()
        self.obs_shape = shape
        self.observations = np.zeros((self.buffer_size, self.n_envs, stack), np.int32)
        self.frames = np.zeros(((self.buffer_size + 2 * stack) * self.n_envs, height, width), self.observation_space.dtype)
        self._held = 0

    def add(self, obs: Array, action: Array, reward: Array, episode_start: Array, *rest: Any) -> None:
        stack = self.obs_shape[0]
        places = np.zeros((self.n_envs, stack), np.int32)
        begun = np.ones(self.n_envs, bool) if self.pos == 0 else episode_start.astype(bool)
        if self.pos:
            places[:, :-1] = self.observations[self.pos - 1][:, 1:]
        places[:, -1] = self._hold(obs[:, -1])
        for index in np.flatnonzero(begun):
            places[index, :-1] = self._hold(obs[index, :-1])
        super().add(places, action, reward, episode_start, *rest)

    def _hold(self, frames: Array) -> Array:
        """Adds frames [M, height, width] to the pool; returns where they lie."""
        end = self._held + len(frames)
        if end > len(self.frames):
            more = max(len(self.frames) // 4, end - len(self.frames))
            self.frames = np.concatenate([self.frames, np.zeros((more, *self.frames.shape[1:]), self.frames.dtype)])
        self.frames[self._held : end] = frames
        places = np.arange(self._held, end)
        self._held = end
        return places

    def _get_samples(self, batch_inds: Array, env: Any = None) -> RolloutBufferSamples:
        samples = super()._get_samples(batch_inds, env)
        return samples._replace(observations=self.to_torch(self.frames[self.observations[batch_inds]]))
