"""Checks of the names of source columns: none may be that of a column that Rowsieve adds, or hands on.

Two that look the same are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from connectors.foundation.messages import first_of
from engine.core.errors import InputError
from engine.plan.chain import CONTRACT
from engine.recipe.recipe import Recipe
from operators.base import ROW_ID, Operator
from operators.yaml_text import inline_yaml

MAX_SHOWN = 5
"""Names that a sentence shows."""


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


def names_alike(names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for all columns whose names differ by blanks and the case of letters alone."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault("".join(name.casefold().split()), []).append(name)
    for same in alike.values():
        if len(same) > 1:
            shown = first_of([*map(repr, same)], MAX_SHOWN)
            other = {"source": {"rename": {same[-1]: f"{same[-1].strip()}_2"}}}
            yield (
                f"the names of the columns {shown} differ by blanks or the case of letters alone. If they "
                f"hold the same, leave one out with source.exclude: {inline_yaml([same[-1]])}; else give it "
                f"another name: {inline_yaml(other)}."
            )
