"""Rowsieve curates training data: it infers groups, marks outliers, and adds weights and splits to every row.

``curate`` takes a table in a notebook. ``Recipe``, ``run`` and ``submit`` carry out a recipe in this process
or on a Ray cluster. ``open`` reads a published version. ``rowsieve.estimators`` holds the methods as
scikit-learn estimators. Importing this package is cheap: every name is loaded when it is first used.

This package is installed under the name ``rowsieve``. It also checks that the plain package names ``engine``,
``operators`` and ``connectors`` resolve to Rowsieve before anything imports them.
"""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .shadowing import shadowed

if TYPE_CHECKING:
    from engine.core.errors import InputError, RowsieveError
    from engine.publish.results import RunResult
    from engine.recipe.recipe import Recipe

    from . import estimators
    from .curation import Curated, curate
    from .execution import run, submit
    from .published import PublishedVersion, open

__all__ = [
    "Curated",
    "InputError",
    "PublishedVersion",
    "Recipe",
    "RowsieveError",
    "RunResult",
    "curate",
    "estimators",
    "main",
    "open",
    "run",
    "shadowed",
    "submit",
]

_MODULES = {
    "Curated": ".curation",
    "InputError": "engine.core.errors",
    "PublishedVersion": ".published",
    "Recipe": "engine.recipe.recipe",
    "RowsieveError": "engine.core.errors",
    "RunResult": "engine.publish.results",
    "curate": ".curation",
    "open": ".published",
    "run": ".execution",
    "submit": ".execution",
}
"""Public name -> module that defines it."""


def main() -> None:
    """Run the ``rowsieve`` command. Exits with code 2 if another package shadows one of Rowsieve's."""
    found = shadowed()
    if found:
        print(f"rowsieve: {found}", file=sys.stderr)
        raise SystemExit(2)
    from engine.cli.app import main as command

    # A process that has imported torch and MLflow ends a second earlier if nothing looks for cycles then.
    atexit.register(gc.freeze)
    command()


def __getattr__(name: str) -> Any:
    if name != "estimators" and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if found := shadowed(working_directory=False):
        raise ImportError(f"rowsieve: {found}")
    if name == "estimators":
        return import_module(".estimators", __name__)
    value = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
