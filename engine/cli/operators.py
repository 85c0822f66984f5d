"""``rowsieve operators``: lists operators and prints the schema of recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.common import AsJson, Verbose, print_errors

if TYPE_CHECKING:
    from operators.base import Operator


def operators(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of recipes")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List the operators with their columns, or print the schema of a recipe."""
    with print_errors(verbose):
        from engine.cli.output import show_json, show_operators
        from engine.recipe.schema import recipe_schema

        if schema:
            show_json(recipe_schema())
        elif as_json:
            show_json(_records())
        else:
            show_operators()


def _records() -> list[dict[str, Any]]:
    from operators.registry import operator_class, operator_names

    return [_record(name, operator_class(name)) for name in operator_names() if name != "ingest"]


def _record(name: str, kind: type[Operator[Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "summary": (kind.__doc__ or "").strip().split("\n")[0],
        "version": kind.version,
        "methods": [*kind.variants()],
        "parameters": kind.Params.model_json_schema(),
    }
