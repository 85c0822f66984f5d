"""Winnow's engine: recipe -> plan -> run -> publish. ``engine.run(engine.Recipe.load(path))``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.plan import Plan, make_plan
    from engine.recipe import Recipe
    from engine.results import RunResult
    from engine.runner import run

__all__ = ["Plan", "Recipe", "RunResult", "make_plan", "run"]
_HOMES = {
    "Plan": "engine.plan",
    "Recipe": "engine.recipe",
    "RunResult": "engine.results",
    "make_plan": "engine.plan",
    "run": "engine.runner",
}


def __getattr__(name: str) -> Any:
    """Load on first use: the command line must start without torch, Ray or MLflow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
