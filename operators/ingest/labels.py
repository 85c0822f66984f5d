"""Class indices of a label column, and the rows of each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import shorten
from operators.base import OperatorError
from operators.columns import plain_values
from operators.ingest.kernel import Codes, Reason

MAX_LABEL = 2**63 - 1
"""Largest whole number that names a class: classes are compared and recorded as int64."""


def class_indices(column: pa.ChunkedArray, classes: Sequence[Any]) -> tuple[npt.NDArray[np.int32], Codes]:
    """Return the class index of each label, and for labels that are missing the reason.

    Returns
    -------
    indices : (n,) int32 positions in ``classes``; -1 for a label that is missing or not among them.
    codes : (n,) uint8, :attr:`Reason.NULL` or :attr:`Reason.NAN` for a missing label, else 0.

    Raises
    ------
    OperatorError
        The classes are of another type than the column.
    """
    labels = _plain_labels(column)
    try:
        known = pa.array(classes)
        fits = _kind(known.type) == _kind(labels.type) or (
            pa.types.is_integer(known.type) and pa.types.is_floating(labels.type)
        )
    except (pa.ArrowException, OverflowError):  # classes of several types, or beyond int64
        fits = False
    if not fits:
        raise OperatorError(
            f"source.classes {shorten(list(classes))} cannot be compared with a label column of type "
            f"{labels.type}. Write the classes as values of that type."
        )
    known = _without_signed_zero(known.cast(labels.type, safe=False))
    indices = pc.index_in(labels, value_set=known).fill_null(-1).to_numpy().astype(np.int32)
    codes = np.zeros(len(labels), np.uint8)
    if pa.types.is_floating(labels.type):
        codes[pc.is_nan(labels).fill_null(False).to_numpy()] = Reason.NAN
    codes[labels.is_null().to_numpy()] = Reason.NULL
    indices[codes != Reason.GOOD] = -1
    return indices, codes


def count_labels(column: pa.ChunkedArray) -> dict[Any, int]:
    """Return the rows of each label but null and NaN; 0.0 and -0.0 are one label.

    Raises OperatorError for types that name no class, and for whole numbers beyond int64.
    """
    labels = _plain_labels(column).drop_null()
    if not _kind(labels.type):
        raise OperatorError(
            f"The label column has type {column.type}; labels are text, integers, booleans or floats. Name "
            f"another column as source.label, or write it as one of these."
        )
    if pa.types.is_floating(labels.type):
        labels = labels.filter(pc.invert(pc.is_nan(labels)))
    if pa.types.is_uint64(labels.type) and len(labels) and (most := pc.max(labels).as_py()) > MAX_LABEL:
        raise OperatorError(
            f"The label column holds {most}, and the largest whole number of a label is {MAX_LABEL}. Write "
            f"the labels as text, or name another column as source.label."
        )
    counted = pc.value_counts(labels)
    return {entry["values"].as_py(): entry["counts"].as_py() for entry in counted}


def _plain_labels(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return _without_signed_zero(plain_values(column))


def _without_signed_zero(values: Any) -> Any:
    """Return floats with 0.0 for -0.0, which Arrow takes for another value but Python for the same."""
    if pa.types.is_float32(values.type) or pa.types.is_float64(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))
    return values


def _kind(kind: pa.DataType) -> str:
    """Return the kind of labels of this type, such as "text"; empty for types that cannot name classes."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "integer"
    return "float" if pa.types.is_floating(kind) else ""
