"""Names, values and filters as text of SQL."""

from __future__ import annotations

import math
import re
from datetime import date, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.filters import Clause, Predicate

EVERYTHING = "1 = 1"
"""Condition that every row meets."""
NOTHING = "1 = 0"
EQUALITY = ("=", "==", "!=", "in", "not in")


def quoted(name: str) -> str:
    """Return a column or table name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """Return a finite number, text, date or time as SQL. Raises ConnectorError for anything else."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, (date, time)):  # a datetime is a date
        return f"'{value.isoformat()}'"
    if isinstance(value, str) and "\0" not in value:
        return "'" + value.replace("'", "''") + "'"
    raise ConnectorError(
        f"source.options.key: {value!r} ({type(value).__name__}) cannot be written as SQL. Choose a key of "
        f"whole numbers, text or dates."
    )


def where(wanted: Predicate | None, schema: pa.Schema, *, mixes_types: bool = False) -> str:
    """Return a condition that lets through at least the rows that a filter takes.

    Texts are compared for equality alone, never for inequality: databases sort them by rules of their own,
    and by a collation without case 'ABC' equals 'abc'. Floats are not compared: DuckDB casts a number to the
    type of the column, Arrow the column to float64. Raises ConnectorError for an unknown column or a value
    of another type.

    Parameters
    ----------
    wanted : the filter; None takes every row.
    schema : columns of the source.
    mixes_types : whether a column may hold numbers beside texts, as one of SQLite may.
    """
    if wanted is None:
        return EVERYTHING
    wanted.expression(schema)
    terms = (
        " AND ".join(_condition(clause, schema, mixes_types) for clause in clauses)
        for clauses in wanted.conjunctions
    )
    return "(" + " OR ".join(f"({term})" for term in terms) + ")"


def _condition(clause: Clause, schema: pa.Schema, mixes_types: bool) -> str:
    name, operation, value = clause
    column, kind = quoted(name), schema.field(name).type
    if value is None:
        return f"{column} IS {'NOT ' if operation == '!=' else ''}NULL"
    is_exact = not (pa.types.is_boolean(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind))
    if not is_exact or not (operation in EQUALITY or pa.types.is_integer(kind)):
        return EVERYTHING
    if not pa.types.is_string(kind):
        return _compared(column, operation, value)
    if operation in ("!=", "not in"):
        return f"{column} IS NOT NULL"
    equal = _compared(column, operation, value)
    return f"({equal} OR typeof({column}) <> 'text')" if mixes_types else equal


def _compared(column: str, operation: str, value: Any) -> str:
    if operation in ("in", "not in"):
        values = ", ".join(literal(one) for one in value)
        return f"{column} {operation.upper()} ({values})" if values else _of_none(column, operation)
    sign = {"==": "=", "!=": "<>"}.get(operation, operation)
    return f"{column} {sign} {literal(value)}"


def _of_none(column: str, operation: str) -> str:
    return NOTHING if operation == "in" else f"{column} IS NOT NULL"


def database_error(name: str, error: Exception) -> ConnectorError:
    """Return the error of a database, with a remedy where its own words have none.

    ``name``: what is read, with ``#`` and the table at its end.
    """
    text = " ".join(str(error).split())[:500]
    table = name.rpartition("#")[2]
    fix = ""
    if "Could not decode to UTF-8" in text:
        fix = (
            ". Write that text again as UTF-8, or read the bytes of its column with source.options.query, as "
            "CAST(... AS BLOB)"
        )
    elif "." in table and re.search("no such table|does not exist", text):
        fix = (
            f". In source.options.table a point stands between schema and table. Read a table whose name has "
            f"one by source.options.query, in which it is written {quoted(table)}"
        )
    return ConnectorError(f"{name}: {text.rstrip('. ') + fix + '.' if fix else text}")
