"""Frostbite."""

from ex2.training.presets.atari import ATARI

PRESET = ATARI
