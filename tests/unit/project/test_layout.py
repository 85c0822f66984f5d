"""The layout of the project: modules of one idea, every package is shipped, and no name is taken."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from setuptools import find_packages

from engine.api import shadowed
from operators import arrays

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("engine", "operators", "connectors")


LONG_MODULES: dict[str, str] = {}
"""Modules of more than 400 lines, with the idea that holds each together."""


Function = ast.FunctionDef | ast.AsyncFunctionDef


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all statements in it; no expression holds another one, so that none is looked at."""
    yield node
    for _, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else []:
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                yield from statements(child)


def functions(text: str) -> Iterator[Function]:
    return (node for node in statements(ast.parse(text)) if isinstance(node, Function))


def body_lines(function: Function) -> int:
    """Lines of the body without its docstring."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - statements[0].lineno + 1 if statements else 0


BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Most blocks within one another; ``elif`` is on the level of its ``if``."""
    deepest = depth
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for child in children:
            if not isinstance(child, ast.AST) or isinstance(child, ast.expr | Function | ast.ClassDef):
                continue
            is_elif = isinstance(node, ast.If) and name == "orelse" and len(children) == 1
            blocks = isinstance(child, BLOCKS)
            blocks |= isinstance(child, ast.If) and not is_elif
            deepest = max(deepest, nesting(child, depth + blocks))
    return deepest


def test_functions_are_short_and_shallow_and_modules_hold_one_idea() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    faults = [
        f"{path.relative_to(ROOT)}: {one.name} has {body_lines(one)} lines, nested {nesting(one)} deep"
        for path in paths
        for one in functions(path.read_text())
        if body_lines(one) > 60 or nesting(one) > 3
    ]
    assert faults == []
    long = {str(path.relative_to(ROOT)) for path in paths if path.read_text().count("\n") > 400}
    assert long == set(LONG_MODULES)


def test_array_types_have_one_name() -> None:
    names = {name for name in vars(arrays) if not name.startswith("_")} - {"annotations", "Any", "np", "npt"}
    kept = ROOT / "operators" / "arrays.py"
    paths = [path for package in ("engine", "operators") for path in (ROOT / package).rglob("*.py")]
    for path in paths:
        text = path.read_text()
        if path != kept:
            assert "NDArray[np.float64]" not in text, f"{path}: write Float64"
            again = re.findall(r"^(\w+)(?:: TypeAlias)? = ", text, re.M)
            assert not names & {*again}, f"{path}: these names are those of operators/arrays.py"


@pytest.mark.parametrize(
    ("code", "lines", "depth"),
    [
        ("def f():\n    'Text.'", 0, 0),
        ("def f():\n    'Text.'\n    if a:\n        b\n    elif c:\n        d", 4, 1),
        ("def f():\n    for a in b:\n        if a:\n            with c:\n                d", 4, 3),
        ("def f():\n    if a:\n        b\n    else:\n        if c:\n            d\n        e", 6, 2),
        ("async def f():\n    async with a:\n        async for b in c:\n            d", 3, 2),
        ("def f():\n    match a:\n        case 1:\n            b", 3, 1),
    ],
)
def test_length_and_nesting_are_counted(code: str, lines: int, depth: int) -> None:
    (function,) = functions(code)
    assert (body_lines(function), nesting(function)) == (lines, depth)


def poor_docstrings(text: str) -> list[str]:
    """Return the docstrings of fewer than three words, and those that begin with "What"."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = [ast.get_docstring(node) for node in statements(ast.parse(text)) if isinstance(node, kinds)]
    return [doc for doc in found if doc is not None and (len(doc.split()) < 3 or doc.startswith("What "))]


def test_docstrings_are_statements() -> None:
    assert len(poor_docstrings('"""What came of it."""\ndef f():\n    """Itself."""\n')) == 2
    faults = {
        str(path.relative_to(ROOT)): poor
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (poor := poor_docstrings(path.read_text()))
    }
    assert faults == {}


def test_every_package_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"]) - {"rowsieve"}
    found = set(find_packages(str(ROOT), include=[f"{package}*" for package in PACKAGES])) - {"engine.api"}
    assert listed == found


def test_no_file_shadows_the_standard_library() -> None:
    names = {path.stem for package in PACKAGES for path in (ROOT / package).glob("*.py")} | set(PACKAGES)
    assert not {name for name in names if name in sys.stdlib_module_names and name != "__init__"}


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, engine.cli.app as a\n"
        "heavy = {'torch', 'ray', 'mlflow', 'pyarrow', 'numpy', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "print(*heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout.split() == []


def test_a_driver_on_ray_loads_no_learning_library_to_hand_out_the_work_of_fit() -> None:
    """Their import takes seconds, in which the workers wait."""
    modules = "operators.cues.fit_task, operators.grasp.rows_on_disk, operators.outliers.sample"
    modules += ", operators.weights.cross_fit"
    code = (
        f"import sys, {modules}\nprint(*{{'torch', 'sklearn', 'scipy.stats', 'pandas'}} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout.split() == []


HEAVY = {"torch", "ray", "mlflow", "sklearn", "scipy", "matplotlib", "fsspec", "pyarrow.dataset", "pandas"}


@pytest.mark.parametrize("column", ["y", "yy"])
def test_a_look_at_a_table_loads_nothing_heavy(tmp_path: Path, column: str) -> None:
    table = pa.table(
        {
            "y": ["a", "b"] * 100,
            "x": [*range(99), None] * 2,
            "city": ["Oslo", "Rome"] * 100,
            "day": pa.array(range(200), pa.date32()),
            "kind": pa.array(["u", "v"] * 100).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    recipe = f"name: r\nsource: {{path: {tmp_path}/a.parquet, label: {column}}}\n"
    (tmp_path / "r.yaml").write_text(f"{recipe}output: {{path: {tmp_path}/out}}\n")
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom engine.cli.app import app\n"
        f"init = ['init', 'a.parquet', '--label', {column!r}]\n"
        "for args in (['validate', 'r.yaml'], ['plan', 'r.yaml'], init):\n"
        "    done = CliRunner().invoke(app, args)\n"
        f"    assert done.exit_code == {0 if column == 'y' else 2}, done.output\n"
        f"print(*{HEAVY} & set(sys.modules))\n"
        "import pandas, pyarrow\n"
        "assert pyarrow.Table.from_pandas(pandas.DataFrame({'a': [1]})).to_pandas().a.tolist() == [1]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, timeout=120, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_guard_finds_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert shadowed() == ""


def test_guard_finds_nothing_where_a_wheel_was_installed(tmp_path: Path) -> None:
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "engine" / "api", tmp_path / "rowsieve")
    code = "import rowsieve; print(rowsieve.shadowed() or rowsieve.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "rowsieve" / "__init__.py")


@pytest.mark.parametrize("name", PACKAGES)
def test_guard_names_what_is_in_the_way(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    command = Path(sys.executable).parent / "rowsieve"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for env in (environment, {**os.environ, "PYTHONPATH": ""}):
        done = subprocess.run(
            [command, "operators"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert str(tmp_path / name) in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_nothing_lies_at_the_top_by_accident() -> None:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a clone of the repository")
    tops = {line.partition("/")[0] for line in done.stdout.splitlines()}
    assert {name for name in tops if not name.startswith(".")} == {
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "SECURITY.md",
        "connectors",
        "deploy",
        "engine",
        "operators",
        "pyproject.toml",
        "tests",
    }
