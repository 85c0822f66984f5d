"""Rows of a request as the columns of training; a value that does not fit is a fault of its row.

A registered model reads the source's columns. Requests come from JSON, pandas and files of other formats, so
that a number may arrive as text or an integer as a float. Every column is converted to the type that it had
in training; where one value cannot be converted, the others still are. A column of whole numbers becomes one
of floats where a row has a fraction or a number beyond 64 bits: features are made of floats anyway. The only
numbers that are truth values are 0 and 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import time
from decimal import Decimal
from pathlib import Path
from reprlib import Repr
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.cells import clean_texts, is_text
from connectors.foundation.messages import cut
from operators.columns import is_list, is_number
from operators.values import python_value

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = "columns.arrow"
"""File of a served model with the schema of its input columns."""
LONGEST_VALUE = 60
CONTAINERS = (dict, list, tuple, set, frozenset)
SHORT = Repr()
"""Prints a few levels and entries of a value, which a client may have nested as deeply as it likes."""
WHOLE = r"^([+-]?[0-9]+)\.0*$"
"""A whole number as pandas writes those of a column with gaps."""
TYPE_FAULTS = {
    "number": "is not a number",
    "date": "is not a date",
    "truth": "is neither true nor false",
}
Faults = dict[int, str]
"""Position of a row to the reason why it cannot be used."""


def write_columns(schema: pa.Schema, folder: Path) -> None:
    """Write the schema of a model's input columns into its folder."""
    plain = pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])
    (folder / COLUMNS).write_bytes(plain.serialize().to_pybytes())


def read_columns(folder: Path) -> pa.Schema | None:
    """Return the schema that :func:`write_columns` wrote; None for a model of an earlier version."""
    path = folder / COLUMNS
    return pa.ipc.read_schema(pa.BufferReader(path.read_bytes())) if path.exists() else None


def table_of(
    frame: pd.DataFrame, schema: pa.Schema | None, missing: Sequence[str] = ()
) -> tuple[pa.Table, Faults]:
    """Convert a request's frame.

    Parameters
    ----------
    frame
        N rows with any index.
    schema
        Schema of the model's input columns; None, for models of earlier versions, converts by the
        values alone.
    missing
        Texts that stand for a missing number, date or truth value, in addition to the empty text.

    Returns
    -------
    The columns of ``schema`` that the frame has, n rows, and the faults of rows by their position.

    """
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"the request has two columns {twice!r}: send every column once")
    if schema is None:
        return pa.Table.from_pandas(frame, preserve_index=False), {}
    columns = {name: frame[name].tolist() for name in schema.names if name in frame.columns}
    faults: Faults = {}
    arrays = {}
    for name, values in columns.items():
        present = [_none_if_missing(value) for value in values]
        arrays[name] = _from_values(present, schema.field(name), faults, missing)
    return _table(arrays, len(frame)), faults


def conform(table: pa.Table, schema: pa.Schema, missing: Sequence[str] = ()) -> tuple[pa.Table, Faults]:
    """Convert a table's columns to the types of a schema.

    Parameters
    ----------
    table
        N rows; columns that the schema does not name are dropped.
    schema
        Of the model's input columns.
    missing
        Texts that stand for a missing number, date or truth value, in addition to the empty text.

    Returns
    -------
    The columns of ``schema`` that the table has, and the faults of rows by their position.

    """
    faults: Faults = {}
    arrays = {}
    for field in schema:
        if field.name not in table.column_names:
            continue
        column = table.column(field.name)
        try:
            arrays[field.name] = _cast(column, field.type, missing)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            values = [python_value(value) for value in column]
            arrays[field.name] = _from_values(values, field, faults, missing)
    return _table(arrays, table.num_rows), faults


def with_points(table: pa.Table, schema: pa.Schema, decimal: str) -> pa.Table:
    """Return a table whose texts of numbers have a point where they have the character ``decimal``."""
    if decimal == ".":
        return table
    for index, field in enumerate(table.schema):
        wanted = schema.field(field.name).type if field.name in schema.names else pa.null()
        if is_text(field.type) and is_number(wanted):
            column = pc.replace_substring(table.column(index), decimal, ".")
            table = table.set_column(index, field, column)
    return table


def with_missing(table: pa.Table, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return a table with a column of nulls for every one of ``names`` that it lacks."""
    for name in names:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, schema.field(name).type))
    return table


def clean_columns(table: pa.Table, missing: Sequence[str], strip: bool) -> pa.Table:
    """Clean the texts of a request as the source of training was cleaned (``source.missing``, ``strip``)."""
    for index, field in enumerate(table.schema):
        if is_text(field.type):
            table = table.set_column(index, field, clean_texts(table.column(index), missing, strip))
    return table


def _table(arrays: Mapping[str, Any], rows: int) -> pa.Table:
    if arrays:
        return pa.table(dict(arrays))
    return pa.table({"": pa.nulls(rows)}).select([])


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of a dictionary's values; any other type as it is."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _cast(column: pa.ChunkedArray, kind: pa.DataType, missing: Sequence[str]) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_text(column.type) and not is_text(kind):  # an empty cell is a missing number
        column = clean_texts(column, ["", *missing], strip=True)
        if pa.types.is_integer(kind):
            column = pc.replace_substring_regex(column, WHOLE, r"\1")
    return column.cast(kind) if column.type == kind else _without_other_truths(column, kind).cast(kind)


def _without_other_truths(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column whose numbers can be cast to a type, with nulls for NaN where that is of truth values.

    Raises pa.ArrowInvalid where a truth value would be made of a number but 0 and 1, or of lists.
    """
    if pa.types.is_boolean(kind) and is_number(column.type):
        column = column.cast(pa.float64(), safe=False)
        column = pc.if_else(pc.is_nan(column), None, column)
        if pc.all(pc.or_(pc.equal(column, 0), pc.equal(column, 1))).as_py() is False:
            raise pa.ArrowInvalid("a number is neither 0 nor 1")
    elif is_list(kind) and pa.types.is_boolean(kind.value_type):
        raise pa.ArrowInvalid("every list is converted on its own")
    return column


def _none_if_missing(value: Any) -> Any:
    """Return None for pandas' missing values (NaN, NA, NaT); other values unchanged, arrays as lists."""
    if hasattr(value, "tolist") and not isinstance(value, str | bytes):
        value = value.tolist()
    missing = value is None or (isinstance(value, float) and value != value)
    return None if missing or type(value).__name__ in ("NAType", "NaTType") else value


def _from_values(values: list[Any], field: pa.Field, faults: Faults, missing: Sequence[str]) -> pa.Array:
    """Convert values of any types; those that cannot be converted are null, and faults of their rows."""
    if pa.types.is_integer(field.type) and any(_needs_float(value, field.type) for value in values):
        field = field.with_type(pa.float64())
    if pa.types.is_boolean(field.type):
        values = [_none_if_missing(value) for value in values]
    levels = 1 if pa.types.is_nested(field.type) else 0
    if not any(_is_deeper(value, levels) or _is_no_truth(value, field.type) for value in values):
        try:
            return pa.array(values).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError, ValueError):
            pass
    converted = []
    for row, value in enumerate(values):
        try:
            if _is_deeper(value, levels):
                raise ValueError("lists within lists")
            if _is_no_truth(value, field.type):
                raise ValueError("a number but 0 and 1")
            converted.append(_converted(value, field.type, missing))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            converted.append(pa.scalar(None, field.type))
            text = SHORT.repr(value) if isinstance(value, CONTAINERS) else repr(value)
            fault = f"column {field.name!r} {_type_fault(field.type)} (value: {cut(text, LONGEST_VALUE)})"
            faults.setdefault(row, fault)
    return pa.array([one.as_py() for one in converted], field.type)


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested deeper than ``levels``.

    Arrow's time grows with the square of the depth, and Python's printer and Arrow recurse.
    """
    if not isinstance(value, CONTAINERS):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return not levels or any(_is_deeper(one, levels - 1) for one in inner)


def _is_no_truth(value: Any, kind: pa.DataType) -> bool:
    """Return whether a truth value is wanted of a number but 0 and 1, which Arrow would take for true."""
    if is_list(kind):
        return isinstance(value, CONTAINERS) and any(_is_no_truth(one, kind.value_type) for one in value)
    return pa.types.is_boolean(kind) and isinstance(value, int | float | Decimal) and value not in (0, 1)


def _converted(value: Any, kind: pa.DataType, missing: Sequence[str]) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, kind)
    if isinstance(value, str) and not is_text(kind):
        value = value.strip()
        value = None if not value or value in missing else value
        if value and pa.types.is_integer(kind):
            value = re.sub(WHOLE, r"\1", value)
        if value and pa.types.is_time(kind):
            value = time.fromisoformat(value)  # Arrow casts no text to a time of day
    if isinstance(value, int) and pa.types.is_floating(kind):
        value = float(value)  # Arrow casts no whole number above 2^53
    try:
        return pa.array([value]).cast(kind)[0]
    except pa.ArrowInvalid:
        if not isinstance(value, str) or not pa.types.is_timestamp(kind) or not kind.tz:
            raise
        return pa.array([value]).cast(pa.timestamp(kind.unit)).cast(kind)[0]  # without a zone: UTC


def _needs_float(value: Any, kind: pa.DataType) -> bool:
    """Return whether a value of any type is a finite number that a type of whole numbers cannot hold."""
    if isinstance(value, CONTAINERS):
        return False
    try:
        number = float(value)
        if not math.isfinite(number):
            return False
        pa.scalar(int(number), kind)
    except (pa.ArrowInvalid, OverflowError):
        return True
    except (TypeError, ValueError):
        return False
    return number % 1 > 0


def _type_fault(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return TYPE_FAULTS["truth"]
    if is_number(kind):
        return TYPE_FAULTS["number"]
    if pa.types.is_temporal(kind):
        return TYPE_FAULTS["date"]
    return f"cannot be read as {kind}"
