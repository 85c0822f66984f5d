"""Rowsieve's engine: recipe -> plan -> run -> publish. ``engine.run(engine.Recipe.load(path))``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from engine.jobs.submission import submit
    from engine.plan.model import Plan
    from engine.plan.planner import make_plan
    from engine.publish.results import RunResult
    from engine.recipe.recipe import Recipe
    from engine.runs.runner import run

__all__ = ["Plan", "Recipe", "RunResult", "make_plan", "run", "submit"]
_DEFINED_IN = {
    "Plan": "plan.model",
    "Recipe": "recipe.recipe",
    "RunResult": "publish.results",
    "make_plan": "plan.planner",
    "run": "runs.runner",
    "submit": "jobs.submission",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
