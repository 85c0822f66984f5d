"""``rowsieve operators``: lists operators and prints the schema of recipes."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.cli.common import Verbose, print_errors


def operators(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of recipes")] = False,
    verbose: Verbose = False,
) -> None:
    """List the operators with their columns, or print the schema of a recipe."""
    with print_errors(verbose):
        from engine.cli.output import show_json, show_operators
        from engine.recipe.schema import recipe_schema

        if schema:
            show_json(recipe_schema())
        else:
            show_operators()
