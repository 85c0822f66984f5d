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
SHOWN = 20
"""Rows that are listed by default."""


def run_quarantine(
    recipe: Recipe, action: str, to: Path | None, limit: int | None, *, as_json: bool, verbose: bool
) -> None:
    """Carry out one action. Raises RowsieveError."""
    from connectors.foundation.messages import nearest
    from engine.cli.output import show_json, show_quarantine
    from engine.execution.quarantine import read_quarantine
    from engine.plan.planner import make_plan
    from engine.runs.replay import export_rows, replay

    _check_options(action, to, limit)
    most = limit or SHOWN
    if action == "list":
        rows = read_quarantine(make_plan(recipe), most + 1)
        shown = rows.slice(0, most)
        show_json(shown.to_pylist()) if as_json else show_quarantine(shown)
        if rows.num_rows > most:
            echo(f"These are the first {count(most, 'row')}; --limit shows more.", err=as_json)
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


def _check_options(action: str, to: Path | None, limit: int | None) -> None:
    """Raise InputError for an option that the action does not take."""
    words = f"rowsieve quarantine RECIPE {action}"
    if to is not None and action != "export":
        raise InputError(f"{words} --to {to}: only `export` takes --to.")
    if limit is not None and action != "list":
        raise InputError(f"{words} --limit {limit}: only `list` takes --limit; `export` writes all rows.")


def quarantine(
    recipe: RecipeFile,
    action: Annotated[str, typer.Argument(help="list, export or replay")] = "list",
    to: Annotated[Path | None, typer.Option(help="File for export: .parquet, .csv or .jsonl")] = None,
    overrides: Overrides = None,
    limit: Annotated[int | None, typer.Option(help=f"Most rows to list [default: {SHOWN}]", min=1)] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List the rows that were set aside with the reason, export them, or run them again after a fix.

    Listed and exported are the rows of the version that a run over the source as it is now publishes.
    """
    with print_errors(verbose):
        run_quarantine(load(recipe, overrides), action, to, limit, as_json=as_json, verbose=verbose)
