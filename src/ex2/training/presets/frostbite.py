"""Frostbite."""

from ex2.training.presets.atari import atari

PRESET = atari(weight=1e-3, kl_weight=0.1)
