"""Facts that an operator reports about one row; ``rowsieve explain`` lists them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from connectors.foundation.messages import cut

FactValue: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Fact:
    """One statement on a row.

    Attributes
    ----------
    name : what the value is, such as ``loss`` or the name of a column.
    value : a text, number or truth value; None where there is none.
    note : how to read the value: its unit, a threshold, or what follows from it. May be empty.
    """

    name: str
    value: FactValue
    note: str = ""


@dataclass(frozen=True)
class ExplainedRow:
    """One row of a published version, with the columns that operators may read to explain it.

    Attributes
    ----------
    row_id, shard : position of the row in the plan, and the shard that holds it.
    table : one row: ``row_id`` and the columns that the operators of the run added, as far as the run store
        still has them. Values are null for a row that was set aside. Truth columns are not in it.
    classes : names of the classes by their index.
    """

    row_id: int
    shard: int
    table: pa.Table
    classes: Sequence[str] = ()

    def value(self, column: str) -> Any:
        """Return the row's value in a column; None where it is null, or where there is no such column."""
        return self.table.column(column)[0].as_py() if column in self.table.column_names else None

    def has(self, *columns: str) -> bool:
        """Return whether the row has a value in every one of the columns."""
        return all(
            name in self.table.column_names and self.table.column(name)[0].is_valid for name in columns
        )

    def class_name(self, index: int | None) -> str | None:
        """Return the name of a class; None for None and for an unknown index."""
        return self.classes[index] if index is not None and 0 <= index < len(self.classes) else None


def added_facts(fields: Iterable[pa.Field], row: ExplainedRow) -> list[Fact]:
    """Return the row's values in some columns, the facts of an operator without an explanation of its own."""
    return [
        Fact(field.name, shown(row.value(field.name)))
        if field.name in row.table.column_names
        else Fact(field.name, None, "the run store no longer has this column")
        for field in fields
    ]


def shown(value: Any) -> FactValue:
    """Return a value for display: lists as length and norm, bytes as their number."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, list) and value and all(isinstance(item, int | float) for item in value):
        return f"{len(value):,} numbers, norm {math.sqrt(sum(item * item for item in value)):.4g}"
    return cut(str(value), 200)
