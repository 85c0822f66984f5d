"""``rowsieve validate``: checks a recipe and its source, and changes nothing."""

from __future__ import annotations

import typer

from engine.cli.common import Overrides, RecipeFile, Verbose, load, shown_errors


def validate(recipe: RecipeFile, overrides: Overrides = None, verbose: Verbose = False) -> None:
    """Check a recipe and its source without changing anything."""
    with shown_errors(verbose):
        from engine.plan.planner import make_plan

        plan = make_plan(load(recipe, overrides))
        typer.echo(f"{recipe}: valid. {plan.n_rows:,} rows in {len(plan.shards)} shards.")
