"""Kinds of values that Arrow types hold, and columns as numbers, seconds or texts."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float64
from operators.encode.tags import is_tags
from operators.ingest.kernel import is_vector


class Form(StrEnum):
    """Kind of values that a column's Arrow type can hold."""

    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    TEXT = "text"
    CATEGORY = "category"
    """A dictionary: its writer has declared categories."""
    TIME = "time"
    """A date or a point in time."""
    VECTOR = "vector"
    TAGS = "tags"
    """A list of texts."""
    IMAGE = "image"
    NOTHING = "nothing"
    """Arrow's type ``null``: the shard has no value of the column."""
    OTHER = "other"


def holds_texts(kind: pa.DataType) -> bool:
    """Return whether the values of a type are texts, also as entries of a dictionary."""
    return form_of(kind.value_type if pa.types.is_dictionary(kind) else kind) == Form.TEXT


def form_of(kind: pa.DataType) -> Form:
    """Return the kind of values that a type can hold.

    Planning decides by it whether a table has scalar columns.
    """
    is_type = pa.types
    if is_type.is_dictionary(kind):
        inner = form_of(kind.value_type)
        plain = inner in (Form.TEXT, Form.INTEGER, Form.NUMBER, Form.BOOLEAN)
        return Form.CATEGORY if plain else Form.OTHER
    if is_type.is_boolean(kind):
        return Form.BOOLEAN
    if is_type.is_integer(kind):
        return Form.INTEGER
    if is_type.is_floating(kind) or is_type.is_decimal(kind) or is_type.is_duration(kind):
        return Form.NUMBER
    if is_type.is_time(kind):
        return Form.NUMBER
    if is_type.is_string(kind) or is_type.is_large_string(kind) or is_type.is_string_view(kind):
        return Form.TEXT
    if is_type.is_date(kind) or is_type.is_timestamp(kind):
        return Form.TIME
    if is_type.is_null(kind):
        return Form.NOTHING
    return _form_of_many(kind)


def _form_of_many(kind: pa.DataType) -> Form:
    """Return the kind of values of a type of lists, structs or bytes."""
    if is_vector(kind):
        return Form.VECTOR
    if is_tags(kind):
        return Form.TAGS
    struct_image = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
    return Form.IMAGE if struct_image or _is_binary(kind) else Form.OTHER


def as_numbers(column: pa.ChunkedArray) -> Float64:
    """Return a column of numbers, booleans, durations or times of day (seconds) as (n,) float64.

    Null is NaN.
    """
    kind = column.type
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        whole = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        return as_numbers(column.cast(whole)) / per_second
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def as_seconds(column: pa.ChunkedArray) -> Float64:
    """Return dates or timestamps as seconds since 1970-01-01 (UTC), (n,) float64. Null is NaN."""
    kind = column.type
    if pa.types.is_date32(kind):
        return as_numbers(column.cast(pa.int32())) * 86_400.0
    if pa.types.is_date64(kind):
        return as_numbers(column.cast(pa.int64())) / 1e3
    per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
    return as_numbers(column.cast(pa.int64())) / per_second


def dictionary_encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Return a column as one array of its distinct values and their indices."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def first_rows(column: pa.ChunkedArray, values: pa.Array) -> npt.NDArray[np.int64]:
    """Return the first row of each of some distinct values (n,) of a column."""
    encoded = dictionary_encoded(column.cast(pa.large_string()))
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    found, first = np.unique(codes, return_index=True)
    rows = np.zeros(len(encoded.dictionary) + 1, np.int64)
    rows[found] = first
    return np.asarray(rows[pc.index_in(values, value_set=encoded.dictionary).to_numpy()], np.int64)


def written_time(seconds: float) -> str:
    """Return a point in time as text, without the time of day at midnight."""
    text = str(np.datetime64(int(seconds), "s"))
    return text.removesuffix("T00:00:00")


def as_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as text; whole numbers are written without a point, booleans as true and false."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return as_texts(column.cast(kind.value_type))
    if pa.types.is_float16(kind):  # Arrow does not round halves
        return as_texts(column.cast(pa.float32()))
    if pa.types.is_floating(kind):
        whole = pc.equal(column, pc.floor(column))
        small = pc.less(pc.abs(column), 2.0**53)
        plain = pc.if_else(pc.and_(whole, small), column, pa.scalar(None, kind)).cast(pa.int64())
        gaps = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        return pc.coalesce(plain.cast(pa.large_string()), gaps.cast(pa.large_string()))
    return column.cast(pa.large_string())


def _is_binary(kind: pa.DataType) -> bool:
    views = pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or views)
