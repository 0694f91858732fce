"""Venture."""

from ex2.training.presets.atari import atari

PRESET = atari(weight=1e-4, kl_weight=1e-3)
