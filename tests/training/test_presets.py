"""Presets: facts of a task, and the paper's hyperparameters under their own name."""

from __future__ import annotations

import re

import pytest

import ex2
from ex2 import BONUSES, TASKS, UsageError
from ex2.bonus import settings_type
from ex2.training.config import configure


@pytest.mark.parametrize("task", TASKS)
def test_one_setting_of_a_bonus_differs_on_one_task(task):
    own = {"entries": (10, 11, *range(13, 33))} if task == "gather" else {}  # a swimmer has to see where it goes
    for bonus in BONUSES:
        config = configure(task, bonus)
        assert config.bonus_settings == settings_type(bonus)(**own)
        assert config.weight.auto
        assert (config.scaled, config.episodic, config.centre) == (True, True, "median")


@pytest.mark.parametrize("task", [name for name in TASKS if name != "sparse-maze"])
def test_what_the_paper_published(task):
    config = configure(task, "amortized", preset="paper")
    assert (config.scaled, config.algo_settings.gae_lambda, config.algo_settings.gamma) == (False, 1.0, 0.99)
    assert config.weight.schedule == "constant"
    assert config.weight.start in (1e-5, 1e-4, 1e-3, 0.01)
    assert (config.bonus_settings.form, config.bonus_settings.metric, config.bonus_settings.pairs) == ("log", "learned", 128)


@pytest.mark.parametrize(
    ("task", "bonus", "preset", "words"),
    [
        ("freeway", "k-exemplar", "paper", "no hyperparameters for 'k-exemplar' on 'freeway': it has them for amortized, none"),
        ("sparse-maze", "amortized", "paper", "There is no task of the paper 'sparse-maze'"),
        ("maze", "none", "papre", "did you mean 'paper'"),
    ],
)
def test_what_the_paper_did_not_run(task, bonus, preset, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        configure(task, bonus, preset=preset)


def test_what_novelty_is_about_is_said_to_all_parts_and_can_be_changed():
    assert configure("gather", "rnd+simhash").bonus_settings.as_dict()["rnd"]["entries"][:2] == (10, 11)
    assert configure("gather", overrides={"bonus.entries": None}).bonus_settings.entries is None
    assert configure("gather", "amortized", preset="paper").bonus_settings.entries is None


def test_the_paper_runs(tmp_path):
    few = {"num_envs": 4, "rollout_steps": 20, "bonus.min_replay": 40, "bonus.steps": 3, "bonus.first_steps": 3}
    result = ex2.train("maze", "amortized", preset="paper", steps=240, overrides=few, out=tmp_path / "run")
    assert ex2.Run(result.folder).config.preset == "paper"
    assert ex2.Run(result.folder).history()["bonus/weight"][-1] == 0.01
