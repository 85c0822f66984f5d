"""Values of Arrow columns as Python objects, and texts that are numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def python_value(value: pa.Scalar) -> Any:
    """Return a value as a Python object, or as text if Python cannot represent it, such as a date after 9999.

    Examples
    --------
    >>> python_value(pa.scalar(2**60, pa.timestamp("us")))
    '1152921504606846976 (timestamp[us])'
    """
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return f"{getattr(value, 'value', 'a value beyond Python')} ({value.type})"


def is_number(text: str) -> bool:
    """Return whether Python parses a text as a number. (YAML parses ``1e-3`` as text.)

    Examples
    --------
    >>> is_number("1e-3"), is_number("high")
    (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries of :func:`python_value`."""
    columns = [[python_value(value) for value in column] for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
