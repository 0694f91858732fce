"""The sparse maze."""

from dataclasses import replace

from ex2.training.presets import maze

PRESET = replace(maze.PRESET, steps=400_000)
