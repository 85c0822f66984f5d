"""``rowsieve plan``: shows shards, columns and fingerprints."""

from __future__ import annotations

from engine.cli.common import AsJson, Overrides, RecipeFile, Verbose, load, shown_errors


def plan(
    recipe: RecipeFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Show shards, columns and fingerprints, without starting Ray."""
    with shown_errors(verbose):
        from engine.cli.output import show_json, show_plan
        from engine.plan.planner import make_plan

        made = make_plan(load(recipe, overrides))
        if as_json:
            show_json(made.to_dict())
        else:
            show_plan(made)
