"""What may lean on what, read off the source: other libraries by their public names only, Stable-Baselines3 in its adapter."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ex2 import UsageError

SOURCE = Path(__file__).parent.parent / "src" / "ex2"
ADAPTED = ("stable_baselines3", "sb3_contrib")
SHARED = {
    "replay.py": {
        "_rows": "what a Fifo holds, which a Fifo of the same size takes over",
        "_next": "where it writes next, the same",
        "_held": "how many it holds, the same",
        "_lock": "a Fifo's, which its snapshots read under",
        "_snapshots": "those that a Fifo keeps rows aside for; a snapshot leaves them by itself",
        "_keep": "how a Fifo has a snapshot keep rows aside",
    },
}
"""Private names that objects of one module of ours ask of each other, and what they are."""


@cache
def trees() -> dict[str, ast.Module]:
    """Every module of the package by its path in it."""
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the dotted name of everything that is imported, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            named = node.args[0]
            if isinstance(named, ast.Constant):
                yield node.lineno, named.value


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def bound(tree: ast.AST) -> set[str]:
    """Private names that a module makes itself: functions, methods, variables, attributes of self and cls."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) in ("self", "cls"):
            found.add(node.attr)
    return {name for name in found if is_private(name)}


def private(tree: ast.AST, own: set[str]) -> Iterator[tuple[int, str]]:
    """Private names that are not the module's own: asked of another object, of self where no class of ours makes them, or
    imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            of = ast.unparse(node.value)
            if of not in ("self", "cls", "super()") or node.attr not in own:
                yield node.lineno, f"{of}.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr", "object.__setattr__"):
            named = node.args[1]
            if isinstance(named, ast.Constant) and is_private(named.value):
                yield node.lineno, ast.unparse(node)
    yield from ((line, name) for line, name in imports(tree) if any(is_private(part) for part in name.split(".")))


def test_other_libraries_are_used_by_their_public_names():
    own = set[str]().union(*map(bound, trees().values()))
    found = [(path, line, name) for path, tree in trees().items() for line, name in private(tree, own)]
    assert not [offence for offence in found if offence[2].split(".")[-1] not in SHARED.get(offence[0], {})]


def test_locals_are_named():
    calls = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert "locals" not in {ast.unparse(call.func) for call in calls}


@pytest.mark.parametrize(
    "line",
    [
        "torch._foreach_add_(a, b)",
        "env.unwrapped._elapsed_steps",
        "self._np_random.random()",
        "self.model._last_obs = None",
        "from torch._dynamo import config",
        "import torch._inductor.config",
        "from gymnasium.core import _private",
        "getattr(env, '_elapsed_steps')",
    ],
)
def test_a_private_name_of_others_is_found(line):
    assert list(private(ast.parse(line), {"_own"}))


def test_own_private_names_are_free():
    tree = ast.parse("class A:\n    def _own(self):\n        self._it = self._own()\n        self.__dict__, _loose = {}, 1")
    assert bound(tree) == {"_own", "_it", "_loose"}
    assert not list(private(tree, bound(tree)))


@pytest.mark.parametrize(("path", "names"), SHARED.items())
def test_shared_names_are_the_modules_own(path, names):
    assert set(names) <= bound(trees()[path])


def test_only_the_adapter_knows_stable_baselines3():
    found = {path for path, tree in trees().items() for _, name in imports(tree) if name.split(".")[0] in ADAPTED}
    assert found == {f"adapters/{name}.py" for name in ("sb3", "sb3_below", "sb3_replay", "sb3_values")}


@pytest.mark.parametrize(
    ("library", "files"),
    [
        ("ray", {"adapters/rllib.py", "cluster.py", "lab/search.py", "training/workers.py"}),
        ("torchrl", {"adapters/torchrl.py"}),
        ("tensordict", {"adapters/torchrl.py"}),
        ("tianshou", {"adapters/tianshou.py"}),
    ],
)
def test_only_their_adapters_and_the_laboratory_know_the_other_libraries(library, files):
    found = {path for path, tree in trees().items() for _, name in imports(tree) if name.split(".")[0] == library}
    assert found == files


@pytest.mark.parametrize("library", ["ray", "torchrl", "tianshou"])
def test_an_adapter_without_its_library_says_what_to_install(library, monkeypatch):
    extra = {"ray": "rllib"}.get(library, library)
    monkeypatch.setitem(sys.modules, library, None)
    for name in [name for name in sys.modules if name.startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"ex2.adapters.{extra}", raising=False)
    with pytest.raises(UsageError, match=rf"pip install 'ex2\[{extra}\]'"):
        importlib.import_module(f"ex2.adapters.{extra}")


def test_nothing_leans_on_adapters():
    others = [path for path in trees() if not path.startswith("adapters/")]
    assert not [path for path in others for _, name in imports(trees()[path]) if name.startswith("ex2.adapters")]


def test_without_stable_baselines3_and_ray_all_but_what_needs_them_works(tmp_path):
    program = f"""
import sys
for name in {(*ADAPTED, "ray")}:
    sys.modules[name] = None
import ex2
result = ex2.train("maze", steps=240, num_envs=4, rollout_steps=30, out={str(tmp_path / "run")!r})
print(result.steps)
try:
    ex2.train("maze", steps=240, num_envs=4, workers=2, out={str(tmp_path / "other")!r})
except ex2.UsageError as error:
    print(error)
try:
    import ex2.adapters.sb3
except ex2.UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    steps, workers, sentence = done.stdout.splitlines()
    assert steps == "240"
    assert re.fullmatch(r"This needs the package 'ray'.* pip install 'ex2\[lab\]'\.", workers)
    assert re.fullmatch(r"This needs the package 'stable_baselines3'.* pip install 'ex2\[sb3\]'\.", sentence)
