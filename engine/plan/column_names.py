"""Checks of the names of source columns: none may be that of a column that Rowsieve adds, or hands on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from engine.core.errors import InputError
from engine.plan.chain import CONTRACT
from engine.recipe.recipe import Recipe
from operators.base import ROW_ID, Operator
from operators.yaml_text import inline_yaml


class TakenNameError(InputError):
    """A source column has the name of a column that Rowsieve adds."""


def check_contract_names(recipe: Recipe, schema: pa.Schema, chain: Sequence[Operator[Any]]) -> None:
    """Raise TakenNameError if a source column has the name of a column that Rowsieve adds."""
    prefix = recipe.output.prefix
    ours = [*CONTRACT, *(field for operator in chain for field in operator.publishes)]
    taken = [prefix + field.name for field in ours if prefix + field.name in schema.names]
    if taken:
        other = "rowsieve_" if prefix != "rowsieve_" else "rowsieve2_"
        raise TakenNameError(
            f"The source already has a column named {taken[0]!r}, which Rowsieve adds. Keep both "
            f"with --set output.prefix={other}, or curate(..., prefix='{other}'): the added columns are "
            f"then {other}row_id, {other}group and so on."
        )


def check_internal_names(chain: Sequence[Operator[Any]]) -> None:
    """Raise InputError if an operator is handed a source column and another column of the same name."""
    for operator in chain:
        taken = {ROW_ID, *operator.requires}.intersection(operator.source_columns)
        if taken:
            name = sorted(taken)[0]
            raise InputError(
                f"operators.{operator.name}: the source column {name!r} has the name of a column that "
                f"Rowsieve hands to this operator. Give it another name in the recipe, "
                f"{inline_yaml({'source': {'rename': {name: f'source_{name}'}}})}, or leave it out with "
                f"{inline_yaml({'source': {'exclude': [name]}})}."
            )
