"""Columns of any numeric type to one float32 matrix, and why single values cannot be used.

Nothing here loops over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import shorten
from operators.arrays import Float32
from operators.base import OperatorError
from operators.columns import is_list, is_scalar
from operators.values import python_value

Codes = npt.NDArray[np.uint8]


class Reason(IntEnum):
    """Reason why a value cannot be used; 0 if it can be used."""

    GOOD = 0
    NULL = 1
    NAN = 2
    INFINITE = 3
    LENGTH = 4
    RANGE = 5
    NUMBER = 6
    DATE = 7
    MISSING_TEXT = 8


TEXTS = {
    Reason.GOOD: "is not one of the declared classes",
    Reason.NULL: "is null",
    Reason.NAN: "is NaN",
    Reason.INFINITE: "is infinite",
    Reason.LENGTH: "is a vector of another length",
    Reason.RANGE: "is beyond the range of float32",
    Reason.NUMBER: "is text that is not a number, in a column of numbers",
    Reason.DATE: "is text that is not a date, in a column of dates",
    Reason.MISSING_TEXT: "is a text that stands for a missing value",
}
FLOAT32_MAX = float(np.finfo(np.float32).max)
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


def is_vector(kind: pa.DataType) -> bool:
    """Return whether a column of this type is a vector of features."""
    return is_list(kind) and is_scalar(kind.value_type)


def check_features(table: pa.Table, features: Sequence[str]) -> None:
    """Raise OperatorError for the first column that is not a number or vector of numbers."""
    for name in features:
        kind = table.schema.field(name).type
        if is_scalar(kind) or is_vector(kind):
            continue
        raise OperatorError(
            f"The feature column {name!r} has type {kind}, not a number or a vector of numbers"
            f"{_first_word(table[name])}. Drop it from source.features, or encode it as numbers."
        )


def _first_word(column: pa.ChunkedArray) -> str:
    """Return a note on the first text that is not a number, since it may be the only one; else empty."""
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return ""
    words = pc.filter(column, pc.invert(pc.match_substring_regex(column, NUMBER)))
    return f" (its first value that is not a number: {shorten(words[0].as_py())})" if len(words) else ""


def feature_widths(table: pa.Table, features: Sequence[str]) -> tuple[int | None, ...]:
    """Return the number of features of each column: 1, or its first vector's length; None without one."""
    return tuple(_width(table[name]) for name in features)


def _width(column: pa.ChunkedArray) -> int | None:
    if not is_vector(column.type):
        return 1
    if pa.types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    lengths = pc.list_value_length(column).drop_null()
    return int(lengths[0].as_py()) if len(lengths) else None


def assemble_features(
    table: pa.Table, features: Sequence[str], widths: Sequence[int] | None = None
) -> tuple[Float32, Codes]:
    """Join columns into one matrix.

    Parameters
    ----------
    table : n rows.
    features : scalar columns (one feature each) and vector columns, in the order of the result.
    widths : how many features each column gives; default :func:`feature_widths` of this table.

    Returns
    -------
    x, codes
        (n, d) float32 with d the sum of the widths, and (n, len(features)) uint8 with the
        :class:`Reason` of each value. Where the code is not 0, ``x`` is 0.

    Raises
    ------
    OperatorError
        A column is not a number or vector of numbers.
    """
    check_features(table, features)
    expected = widths if widths is not None else [width or 0 for width in feature_widths(table, features)]
    x = np.zeros((table.num_rows, sum(expected)), np.float32)
    codes = np.zeros((table.num_rows, len(features)), np.uint8)
    start = 0
    for index, (name, width) in enumerate(zip(features, expected, strict=True)):
        fill = _fill_vectors if is_vector(table[name].type) else _fill_scalars
        fill(table[name], x[:, start : start + width], codes[:, index])
        start += width
    return x, codes


def _fill_scalars(column: pa.ChunkedArray, x: Float32, codes: Codes) -> None:
    values, found = _check_values(column)
    x[:, 0], codes[:] = values, found


def _fill_vectors(column: pa.ChunkedArray, x: Float32, codes: Codes) -> None:
    width = x.shape[1]
    lengths = pc.list_value_length(column).fill_null(-1).to_numpy()
    codes[lengths != width] = Reason.LENGTH
    codes[column.is_null().to_numpy()] = Reason.NULL
    fits = np.flatnonzero(codes == Reason.GOOD)
    if not len(fits) or not width:
        return
    values, found = _check_values(pc.list_flatten(column.take(pa.array(fits))))
    by_row = found.reshape(-1, width)
    bad = by_row != Reason.GOOD
    codes[fits] = by_row[np.arange(len(fits)), bad.argmax(axis=1)]
    x[fits] = np.where(bad.any(axis=1)[:, None], 0, values.reshape(-1, width))


def _check_values(column: pa.ChunkedArray) -> tuple[Float32, Codes]:
    """Return values as float32, and the reason of each that cannot be used, which is 0."""
    nulls = column.is_null().to_numpy()
    numbers = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()
    codes = np.zeros(len(numbers), np.uint8)
    codes[np.abs(numbers) > FLOAT32_MAX] = Reason.RANGE
    codes[np.isinf(numbers)] = Reason.INFINITE
    codes[np.isnan(numbers)] = Reason.NAN
    codes[nulls] = Reason.NULL
    return np.where(codes == Reason.GOOD, numbers, 0).astype(np.float32), codes


def explain_value(column: pa.ChunkedArray, row: int, reason: Reason, width: int = 1) -> tuple[str, str]:
    """Return the value of a row as text, and what is wrong with it."""
    value = python_value(column[row])
    if reason == Reason.LENGTH:
        return f"length {len(value)}", f"is a vector of length {len(value)}, the others have {width}"
    if isinstance(value, list):
        codes = _check_values(pa.chunked_array([column[row].values]))[1]
        place = int((codes == reason).argmax())
        return shorten(value[place]), f"{TEXTS[reason]} at position {place}"
    return shorten(value), TEXTS[reason]
