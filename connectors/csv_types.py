"""Type of a column of CSV, from those that Arrow guesses for the rows of several shards."""

from __future__ import annotations

import pyarrow as pa

BEYOND_NANOSECONDS = {pa.date32(): pa.date64(), pa.timestamp("s"): pa.timestamp("us")}
"""Guessed types to those that stand for them where a value lies before 1677 or after 2262. Arrow guesses none
of the latter."""


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is one of numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def ranged_type(column: pa.ChunkedArray) -> pa.DataType:
    """Return the type of a column, as ``BEYOND_NANOSECONDS`` has it where nanoseconds do not hold a value."""
    beyond = BEYOND_NANOSECONDS.get(column.type)
    if beyond is None:
        return column.type
    try:
        column.cast(pa.timestamp("s")).cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return beyond
    return column.type


def completed_type(kind: pa.DataType, later: set[pa.DataType]) -> pa.DataType:
    """Return the type of a column, given its types in other shards as of :func:`ranged_type`."""
    guessed = {beyond: one for one, beyond in BEYOND_NANOSECONDS.items()}
    found = {guessed.get(one, one) for one in later} - {pa.null()}
    if pa.types.is_integer(kind):
        return pa.float64() if any(map(pa.types.is_floating, found)) else kind
    if not pa.types.is_null(kind) or not found:
        return kind
    if pa.timestamp("ns") in found and not later.isdisjoint(guessed):
        return pa.string()  # as in one file of both
    if len(found) == 1:
        return found.pop()
    if all(pa.types.is_date(one) or (pa.types.is_timestamp(one) and one.tz is None) for one in found):
        return pa.timestamp("ns" if pa.timestamp("ns") in found else "s")  # dates are read as midnight
    return pa.float64() if all(map(is_number, found)) else pa.string()
