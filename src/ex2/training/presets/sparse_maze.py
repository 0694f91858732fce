"""The sparse maze."""

from ex2.training.presets import maze

PRESET = maze.PRESET
