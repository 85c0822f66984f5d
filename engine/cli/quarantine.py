"""``rowsieve quarantine``: rows that were set aside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.common import AsJson, Overrides, RecipeFile, Verbose, load, print_errors
from engine.cli.safe_output import echo
from engine.core.errors import InputError
from operators.counts import count

if TYPE_CHECKING:
    from engine.recipe.recipe import Recipe

ACTIONS = ("list", "export", "replay")


def run_quarantine(
    recipe: Recipe, action: str, to: Path | None, limit: int, *, as_json: bool, verbose: bool
) -> None:
    """Carry out one action. Raises RowsieveError."""
    from connectors.foundation.messages import nearest
    from engine.cli.output import show_json, show_quarantine
    from engine.execution.quarantine import read_quarantine
    from engine.plan.planner import make_plan
    from engine.runs.replay import export_rows, replay

    if action == "list":
        rows = read_quarantine(make_plan(recipe), limit)
        show_json(rows.to_pylist()) if as_json else show_quarantine(rows)
    elif action == "export":
        if to is None:
            raise InputError(
                "rowsieve quarantine RECIPE export: say where to, for example --to faulty.jsonl."
            )
        table = read_quarantine(make_plan(recipe))
        export_rows(table, to)
        if as_json:
            show_json({"rows": table.num_rows, "file": str(to)})
            return
        echo(f"{count(table.num_rows, 'row')} written to {to}.")
    elif action == "replay":
        found = replay(recipe, verbose=verbose)
        if as_json:
            counts = {"rows": found.rows, "recovered": found.recovered, "new": found.new}
            show_json({"version": found.result.version} | counts)
            return
        echo(
            f"{found.result.version}: of {found.rows} rows that were set aside, {found.recovered} no longer "
            f"are, as they are used now or gone from the source, and {found.rows - found.recovered} still "
            f"are; {found.new} new ones were set aside."
        )
    else:
        raise InputError(
            f"rowsieve quarantine RECIPE {action}: choose one of {', '.join(ACTIONS)}."
            f"{nearest(action, ACTIONS)}"
        )


def quarantine(
    recipe: RecipeFile,
    action: Annotated[str, typer.Argument(help="list, export or replay")] = "list",
    to: Annotated[Path | None, typer.Option(help="File for export: .parquet, .csv or .jsonl")] = None,
    overrides: Overrides = None,
    limit: Annotated[int, typer.Option(help="Most rows to show", min=1)] = 20,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List the rows that were set aside with the reason, export them, or run them again after a fix.

    Listed and exported are the rows of the version that a run over the source as it is now publishes.
    """
    with print_errors(verbose):
        run_quarantine(load(recipe, overrides), action, to, limit, as_json=as_json, verbose=verbose)
