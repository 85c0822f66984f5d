"""``rowsieve quarantine``: rows that were set aside."""

from __future__ import annotations

from pathlib import Path

import typer

from engine.cli.show import show_quarantine
from engine.core.errors import InputError
from engine.core.suggestions import nearest
from engine.execution.quarantine import read_quarantine
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.replay import export, replay

ACTIONS = ("list", "export", "replay")


def run_quarantine(recipe: Recipe, action: str, to: Path | None, limit: int, *, verbose: bool) -> None:
    """Carry one action out. Raises RowsieveError."""
    if action == "list":
        show_quarantine(read_quarantine(make_plan(recipe), limit))
    elif action == "export":
        if to is None:
            raise InputError(
                "rowsieve quarantine RECIPE export: say where to, for example --to faulty.jsonl."
            )
        table = read_quarantine(make_plan(recipe))
        export(table, to)
        typer.echo(f"{table.num_rows} rows written to {to}.")
    elif action == "replay":
        found = replay(recipe, verbose=verbose)
        typer.echo(
            f"{found.result.version}: of {found.rows} rows that were set aside, {found.mended} are used now "
            f"and {found.rows - found.mended} are not; {found.new} new ones were set aside."
        )
    else:
        raise InputError(
            f"rowsieve quarantine RECIPE {action}: choose one of {', '.join(ACTIONS)}."
            f"{nearest(action, ACTIONS)}"
        )
