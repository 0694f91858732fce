"""The snippets of docs/adapters.md run, one after the other, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "adapters.md"


@pytest.mark.slow
def test_the_snippets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page, names = PAGE.read_text(), {}
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) == page.count("```python") == 6
    for snippet in snippets:
        exec(compile(snippet, str(PAGE), "exec"), names)
    assert (tmp_path / "agent.bonus").exists()
    assert names["learn_from"].shape == (128, 4)
    assert names["bonuses"].shape == names["own"].shape == (4,)
    assert names["model"].num_timesteps == 2_000
    assert np.isfinite(names["learn_from"]).all()
