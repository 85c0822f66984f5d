"""``rowsieve validate``: checks a recipe and its source, and changes nothing."""

from __future__ import annotations

from engine.cli.common import AsJson, Overrides, RecipeFile, Verbose, load, print_errors
from engine.cli.safe_output import echo
from engine.core.pandas_import import keep_pandas_out
from operators.counts import count


def validate(
    recipe: RecipeFile, overrides: Overrides = None, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Check a recipe and its source without changing anything, and list how every column is used."""
    with print_errors(verbose):
        keep_pandas_out()
        from engine.cli.columns import column_lines, label_lines
        from engine.plan.planner import make_plan
        from engine.plan.preview import check_label, preview
        from engine.recipe.errors_of_file import errors_of_file

        plan = make_plan(load(recipe, overrides))
        found = preview(plan)
        with errors_of_file(plan.recipe):
            check_label(found)
        if as_json:
            from engine.cli.output import show_json

            show_json(
                {"recipe": str(recipe), "rows": plan.n_rows, "shards": len(plan.shards), **found.to_json()}
            )
            return
        shards = count(len(plan.shards), "shard")
        stops = ", but a run would stop: see the warnings below" if found.faults else ""
        echo(f"{recipe}: valid{stops}. {count(plan.n_rows, 'row')} in {shards}.\n")
        for line in [*column_lines(found.columns, found.note), "", *label_lines(found.label)]:
            echo(line)
        for _, text in found.warnings():
            echo(f"\nwarning: {text}")
