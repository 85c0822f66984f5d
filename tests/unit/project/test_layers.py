"""The layers of the engine, imports between the three packages, and no import cycles.

Imports inside functions and below TYPE_CHECKING count.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("engine", "operators", "connectors")
LAYERS = (
    "core",
    "storage",
    "recipe",
    "plan",
    "execution",
    "publish",
    "report",
    "training",
    "runs",
    "jobs",
    "cli",
    "api",
)
Graph = dict[str, set[str]]


def module_files(root: Path = ROOT) -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imports_of(name: str, text: str, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return (found & modules) - {name}


def cycles(graph: Graph) -> set[frozenset[str]]:
    """Strongly connected components with more than one module."""
    reach: Graph = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += graph[node]
        reach[start] = seen
    components = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
    return {component for component in components if len(component) > 1}


@pytest.fixture(scope="module")
def graph() -> Graph:
    files = module_files()
    return {name: imports_of(name, path.read_text("utf-8"), set(files)) for name, path in files.items()}


def test_the_checks_see_lazy_imports_and_cycles() -> None:
    modules = {"a", "b", "c.d", "e"}
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import b\n"
    lazy = "def f():\n    from c import d\n"
    assert imports_of("a", guarded + lazy, modules) == {"b", "c.d"}
    loop: Graph = {"a": {"b"}, "b": {"c.d"}, "c.d": {"a"}, "e": {"a"}}
    assert cycles(loop) == {frozenset({"a", "b", "c.d"})}


def test_the_engine_has_no_loose_modules() -> None:
    assert {path.name for path in (ROOT / "engine").glob("*.py")} == {"__init__.py"}
    folders = {path.name for path in (ROOT / "engine").iterdir() if (path / "__init__.py").exists()}
    assert folders == set(LAYERS)


def test_every_layer_imports_only_layers_below_it(graph: Graph) -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in graph.items()
        for other in others
        if name.startswith("engine.") and other.startswith("engine.")
        if LAYERS.index(other.split(".")[1]) > LAYERS.index(name.split(".")[1])
    ]
    assert wrong == []


def test_operators_and_connectors_import_neither_the_engine_nor_each_other(graph: Graph) -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in graph.items()
        for other in others
        if not name.startswith("engine") and name.split(".")[0] != other.split(".")[0]
    ]
    assert wrong == []


def test_no_modules_import_each_other_in_a_cycle(graph: Graph) -> None:
    found = cycles(graph)
    assert found == set()


COVERED_ELSEWHERE = {
    "connectors/storage": "tests/unit/engine/storage runs on a folder and on an object store",
    "engine/training/rules": "tests/unit/engine/training/test_training.py runs every trainer",
}
"""Folders of code without a test folder of their own, with the place of their tests."""


def test_test_folders_mirror_the_code() -> None:
    code = {str(path.parent.relative_to(ROOT)) for path in module_files().values()}
    unit = ROOT / "tests/unit"
    tests = {str(path.parent.relative_to(unit)) for path in unit.rglob("test_*.py")} - {"project"}
    assert tests - code == set(), "folders of tests without code"
    assert code - tests - {*PACKAGES} == set(COVERED_ELSEWHERE), "code without tests"
