"""``rowsieve plan``: shows shards, columns and fingerprints."""

from __future__ import annotations

from engine.cli.common import AsJson, Overrides, RecipeFile, Verbose, load, print_errors
from engine.cli.safe_output import echo
from engine.core.pandas_import import keep_pandas_out


def plan(
    recipe: RecipeFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Show shards, columns and fingerprints, without starting Ray."""
    with print_errors(verbose):
        keep_pandas_out()
        from engine.cli.columns import column_lines
        from engine.cli.output import show_json, show_plan
        from engine.plan.planner import make_plan
        from engine.plan.preview import preview

        made = make_plan(load(recipe, overrides))
        found = preview(made)
        if as_json:
            show_json(made.to_dict() | {"source": found.to_json()})
            return
        show_plan(made)
        for line in ["", *column_lines(found.columns, found.note)]:
            echo(line)
