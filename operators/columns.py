"""Kinds of Arrow types, and Arrow list columns as matrices and back, without copying where memory allows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from operators.base import VECTOR, OperatorError

MAX_CHILD_VALUES = 2**31 - 1
"""Arrow lists count their values with 32-bit offsets."""


def is_number(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds numbers: whole ones, floats or decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_scalar(kind: pa.DataType) -> bool:
    """Return whether a column of this type is one feature: a number or a flag."""
    return is_number(kind) or bool(pa.types.is_boolean(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds bytes, of any or of a fixed length."""
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds lists, of any or of a fixed length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def has_text(kind: pa.DataType) -> bool:
    """Return whether every value of an Arrow type has a text: not lists, structs, bytes, or intervals."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_nested(plain) or is_binary(plain):
        return False
    try:
        pc.cast(pa.nulls(0, plain), pa.string())
    except pa.ArrowNotImplementedError:
        return False
    return True


def plain_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a dictionary column as its plain values, others as they are."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def vectors_to_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float32]:
    """Return the rows of a list column as one matrix.

    Parameters
    ----------
    column : list<float32>, large_list<float32> or fixed_size_list<float32> of n rows.

    Returns
    -------
    (n, d) float32. A read-only view of the column's memory when it is one chunk, else a copy.
    An empty column of variable lists gives shape (0, 0).

    Raises
    ------
    OperatorError
        A row is null, holds a null or has another length than the first row.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_chunk_to_numpy(chunk) for chunk in chunks if len(chunk)]
    if not parts:
        width = column.type.list_size if pa.types.is_fixed_size_list(column.type) else 0
        return np.empty((0, width), dtype=np.float32)
    _check_widths([part.shape[1] for part in parts])
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _chunk_to_numpy(chunk: pa.Array) -> NDArray[np.float32]:
    values = chunk.flatten()
    if chunk.null_count or values.null_count:
        raise OperatorError(
            f"A vector column of type {chunk.type} has null rows or null entries, but every row must be a "
            "complete vector. Fill the gaps or drop those rows at the source."
        )
    if not pa.types.is_fixed_size_list(chunk.type):
        _check_widths(np.diff(chunk.offsets.to_numpy()))
    flat: NDArray[np.float32] = values.to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
    return flat.reshape(len(chunk), -1)


def _check_widths(widths: NDArray[np.int64] | list[int]) -> None:
    lengths, first = np.unique(np.asarray(widths), return_index=True)
    if len(lengths) > 1:
        first.sort()
        raise OperatorError(
            f"A vector column has rows of different lengths: {widths[0]} and then {widths[first[1]]}. "
            "Every row must have the same number of entries; pad or drop the odd rows at the source."
        )


def numpy_to_vectors(matrix: NDArray[np.float32]) -> pa.ChunkedArray:
    """Return the rows of a matrix as a list column of type ``VECTOR``.

    Parameters
    ----------
    matrix : (n, d) float32; used in place where it is C-contiguous.

    Returns
    -------
    Chunked array of n rows: one chunk, more where n * d passes Arrow's 32-bit offsets.
    """
    n, d = matrix.shape
    rows = max(1, MAX_CHILD_VALUES // max(d, 1))
    chunks = [_one_chunk(matrix[start : start + rows]) for start in range(0, n, rows)]
    return pa.chunked_array(chunks, type=VECTOR)


def vectors_with_gaps(matrix: NDArray[np.float32], missing: NDArray[np.bool_]) -> pa.ChunkedArray:
    """Return the rows of a matrix as a list column with nulls between them.

    Parameters
    ----------
    matrix : (m, d) float32, one row for each False in ``missing``.
    missing : (n,) bool, True where the column is null.
    """
    if not missing.any():
        return numpy_to_vectors(matrix)
    if missing.all():
        return pa.chunked_array([pa.nulls(len(missing), VECTOR)])
    places = np.cumsum(~missing) - 1
    return numpy_to_vectors(matrix).take(pa.array(places, mask=missing))


def _one_chunk(matrix: NDArray[np.float32]) -> pa.ListArray:
    n, d = matrix.shape
    values = pa.array(np.ascontiguousarray(matrix, dtype=np.float32).reshape(-1))
    offsets = pa.array(np.arange(n + 1, dtype=np.int64) * d, type=pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=VECTOR)


def is_meant(column: str, name: str) -> bool:
    """Return whether a name of a recipe means a column: its own name, or its beginning before a last ``*``.

    Examples
    --------
    >>> is_meant("cost [EUR]", "cost [EUR]"), is_meant("cost [EUR]", "cost*"), is_meant("cost", "c?st")
    (True, True, False)
    """
    return name == column or (name.endswith("*") and column.startswith(name[:-1]))
