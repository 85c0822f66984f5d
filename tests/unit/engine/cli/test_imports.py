"""A command loads nothing that only computing needs, and says clearly which packages are missing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from engine.cli.common import print_errors
from engine.runs.runner import run
from tests.data import recipe_for, small_recipe

HEAVY = ("torch", "ray", "mlflow", "sklearn", "scipy.stats", "faiss", "cvxpy", "matplotlib")


def test_a_run_in_which_nothing_changed_loads_little(tmp_path: Path) -> None:
    small = {"groups": {"method": "none"}, "weights": {}, "split": {}}
    run(small_recipe(tmp_path, operators=small))
    recipe = recipe_for(tmp_path / "data", tmp_path / "out", operators=small)
    code = (
        "import sys\nfrom engine.recipe.recipe import Recipe\nfrom engine.runs.runner import run\n"
        f"import engine.runs.status\nmade = Recipe.parse({recipe!r})\nassert run(made).reused\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_the_version_is_printed_and_loads_nothing_of_the_methods() -> None:
    """So that it works on an install without dependencies, and at once."""
    more = (*HEAVY, "numpy", "pyarrow", "pandas")
    code = (
        "import sys, rowsieve\nsys.argv = ['rowsieve', '--version']\ntry:\n    rowsieve.main()\n"
        f"except SystemExit as end:\n    print(end.code, [name for name in {more} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == f"rowsieve {version('rowsieve')}\n0 []\n", done.stderr


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("torch.nn", 2, "the package 'torch' is not installed and needed here: pip install torch, "),
        (
            "sklearn.svm",
            2,
            "the package 'sklearn' is not installed and needed here: pip install scikit-learn,",
        ),
        ("engine.nothing", 1, "unexpected ModuleNotFoundError"),
        (None, 1, "unexpected ModuleNotFoundError"),
    ],
)
def test_a_missing_package_is_named(
    name: str | None, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, print_errors(verbose=False):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    assert ended.value.exit_code == code
    assert text in capsys.readouterr().err


def test_the_command_leaves_its_memory_to_the_system_when_it_ends() -> None:
    """Looking for cycles then takes a second after torch and MLflow were imported."""
    code = (
        "import atexit, gc, sys, rowsieve\natexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "sys.argv = ['rowsieve', '--version']\nrowsieve.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines()[-1] == "True", done.stderr
