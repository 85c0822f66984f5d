"""``winnow quarantine``: rows that were set aside."""

from __future__ import annotations

from pathlib import Path

import typer

from engine.cli.show import show_quarantine
from engine.errors import InputError
from engine.hints import nearest
from engine.plan import make_plan
from engine.quarantine import read_quarantine
from engine.recipe import Recipe
from engine.replay import export, replay

ACTIONS = ("list", "export", "replay")


def run_quarantine(recipe: Recipe, action: str, to: Path | None, limit: int, *, verbose: bool) -> None:
    """Carry one action out. Raises WinnowError."""
    if action == "list":
        show_quarantine(read_quarantine(make_plan(recipe), limit))
    elif action == "export":
        if to is None:
            raise InputError("winnow quarantine RECIPE export: say where to, for example --to faulty.jsonl.")
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
            f"winnow quarantine RECIPE {action}: choose one of {', '.join(ACTIONS)}."
            f"{nearest(action, ACTIONS)}"
        )
