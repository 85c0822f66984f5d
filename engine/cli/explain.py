"""``rowsieve explain``: the facts that every operator recorded about one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from engine.cli.common import AsJson, Verbose, print_errors
from engine.cli.groups import VersionName, named_version
from engine.cli.safe_output import SafeConsole, bold

if TYPE_CHECKING:
    from engine.runs.explain import Explanation

console = SafeConsole()


def explain(
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="Output folder of a recipe, or OUTPUT@VERSION")
    ],
    row_id: Annotated[int, typer.Argument(metavar="ROW_ID", help="The row's value in the column row_id")],
    version: VersionName = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show what each operator found about a row: group, scores of the outlier mark, factors of the weight."""
    with print_errors(verbose):
        from engine.cli.output import show_json
        from engine.runs.explain import explain as explain_row
        from engine.training.data.version import open_version

        opened = open_version(named_version(output, version))
        found = explain_row(opened, row_id)
        show_json(found.to_dict()) if as_json else _show(found)


def _show(found: Explanation) -> None:
    from operators.explanations import shown

    console.print(
        bold(f"row {found.row_id}") + " of version " + bold(found.version) + f": row {found.row} of shard "
        f"{found.shard}, which is read from {found.path}",
        soft_wrap=True,
    )
    _print("source", [(name, shown(value), "") for name, value in found.source.items()])
    _print("published", [(name, shown(value), "") for name, value in found.published.items()])
    for one in found.operators:
        _print(f"operator {one.operator}", [(fact.name, fact.value, fact.note) for fact in one.facts])


def _print(title: str, facts: list[tuple[str, Any, str]]) -> None:
    console.print(Text("\n") + bold(title))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for name, value, note in facts:
        table.add_row(name, _text(value), note)
    console.print(table)


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
