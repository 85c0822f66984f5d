"""``rowsieve sources``: the values of ``source.format`` and the options of each format."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from engine.cli.common import AsJson, Verbose, print_errors
from engine.core.errors import InputError


def sources(
    name: Annotated[str | None, typer.Argument(help="One format, to describe its options")] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List the formats that a source can have, with their endings and options."""
    with print_errors(verbose):
        from connectors.base import ConnectorError
        from connectors.registry import connector, connectors
        from engine.cli.output import show_json

        try:
            found = [*connectors().values()] if name is None else [connector(name)]
        except ConnectorError as error:
            raise InputError(str(error)) from None
        if as_json:
            show_json([_record(one) for one in found])
        elif name is None:
            _show_all(found)
        else:
            _show_one(found[0])


def _record(found: Any) -> dict[str, Any]:
    return {
        "name": found.name,
        "summary": found.summary,
        "extensions": list(found.extensions),
        "markers": list(found.markers),
        "schemes": list(found.schemes),
        "options": found.Options.model_json_schema(),
    }


def _show_all(found: list[Any]) -> None:
    from engine.cli.output import console
    from engine.cli.safe_output import plain_table
    from engine.recipe.reference import default_text

    table = plain_table("format", "what it reads", "recognised by", "options (defaults)")
    for one in found:
        options = [f"{key}={default_text(field)}" for key, field in one.Options.model_fields.items()]
        signs = [
            *one.extensions,
            *(f"a folder with {name}" for name in one.markers),
            *(f"{s}://" for s in one.schemes),
        ]
        table.add_row(one.name, one.summary, " ".join(signs), ", ".join(options))
    console.print(table)


def _show_one(found: Any) -> None:
    from engine.cli.output import console
    from engine.cli.safe_output import bold, plain_table
    from engine.recipe.reference import default_text, type_text

    console.print(bold(found.name) + f": {found.summary}", soft_wrap=True)
    shapes = found.Options.model_json_schema().get("properties", {})
    table = plain_table("source.options", "type", "default", "meaning")
    for key, field in found.Options.model_fields.items():
        cells = (key, type_text(shapes[key]), default_text(field), field.description or "")
        table.add_row(*cells)
    console.print(table if shapes else "It has no options of its own.")
