"""Hashes of source rows by what they hold, before any of it has become a feature.

A value has the same hash in every file and in every type of integers and floats, or of texts: 3 and 3.0 are
equal, and so are a text and the same text as a category. An instant has the same hash in every unit, and a
date that of its midnight: dates, times and durations count as microseconds. Whole numbers beyond 2^53 are
rounded to float64, and decimals count as texts. A missing value adds nothing, so that a column that old rows
lack does not change them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.columns import is_binary
from operators.hashing import Hashes, row_hashes
from operators.row_identity import beyond_microseconds, key_hashes, text_hash

NO_VALUE = np.uint64(0)
ODD = np.uint64(1)
MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0}
DAY = 86_400e6
"""Microseconds of a day."""


def table_hashes(table: pa.Table) -> Hashes:
    """Hash each row (n,) of a table: equal rows have equal hashes, wherever they stand.

    The order of the columns does not matter, their names do. Two different rows have the same hash about once
    in 2^64 pairs, if nobody chose them for that.
    """
    found = np.zeros(table.num_rows, np.uint64)
    for name in table.column_names:
        column = table[name]
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        values = value_hashes(array)
        salted = row_hashes(values, text_hash(name), "parts/column")
        found += np.where(values == NO_VALUE, NO_VALUE, salted)
    return found


def value_hashes(array: pa.Array) -> Hashes:
    """Hash each value (n,) of an Arrow array of any type; a missing value has the hash 0."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return value_hashes(array.storage)
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.uint64)
    if pa.types.is_dictionary(kind):
        return value_hashes(array.cast(kind.value_type))
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_nested(kind):
        return _lists(array)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return _times(array)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(array)
    if is_binary(kind):
        return _bytes(array)
    hashes, has_value = key_hashes(array)  # texts, and decimals as texts
    return _present(hashes, has_value)


def _present(hashes: Hashes, has_value: np.ndarray[Any, Any]) -> Hashes:
    """Return hashes that are not 0 where a value is there, and 0 elsewhere."""
    return np.where(has_value, hashes | ODD, NO_VALUE)


def _times(array: pa.Array) -> Hashes:
    """Hash dates, times and durations as microseconds, and nanoseconds that are no whole number of these."""
    kind = array.type
    counts = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_date32(kind):
        return _numbers(counts, DAY)
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    if unit != "ns":
        return _numbers(counts, MICROSECONDS[unit])
    finer = beyond_microseconds(array)
    values = counts.fill_null(0).to_numpy(zero_copy_only=False)
    found = _numbers(pa.array(values // 1000, mask=~array.is_valid().to_numpy(zero_copy_only=False)))
    return np.where(finer, row_hashes(values, 0, "parts/nanoseconds") | ODD, found)


def _numbers(array: pa.Array, factor: float = 1.0) -> Hashes:
    has_value = array.is_valid().to_numpy(zero_copy_only=False)
    floats = pc.cast(array, pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
    values = floats * factor + 0.0
    missing = np.isnan(values)  # pandas writes missing numbers so
    bits = np.where(missing, 0.0, values).view(np.uint64)
    return _present(row_hashes(bits, 0, "parts/number"), has_value & ~missing)


def _bytes(array: pa.Array) -> Hashes:
    from hashlib import blake2b

    values = (
        None if value is None else blake2b(value, digest_size=8).digest() for value in array.to_pylist()
    )
    hashes = [0 if value is None else int.from_bytes(value, "little") for value in values]
    return _present(np.array(hashes, np.uint64), array.is_valid().to_numpy(zero_copy_only=False))


def _structs(array: pa.StructArray) -> Hashes:
    fields = [array.type.field(i).name for i in range(array.type.num_fields)]
    children = [array.field(i) for i in range(array.type.num_fields)]
    whole = table_hashes(pa.table(children, names=fields)) if fields else np.zeros(len(array), np.uint64)
    return _present(whole, array.is_valid().to_numpy(zero_copy_only=False))


def _lists(array: pa.Array) -> Hashes:
    """Sum the hashes of the items, each times an odd factor of its place (multilinear hashing)."""
    if pa.types.is_map(array.type):
        pair = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        array = array.cast(pa.list_(pair))
    has_value = array.is_valid().to_numpy(zero_copy_only=False)
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    items = value_hashes(array.flatten())
    ends = np.cumsum(lengths)
    places = np.arange(len(items)) - np.repeat(ends - lengths, lengths)
    widest = int(lengths.max(initial=0))
    factors = row_hashes(np.arange(widest), 0, "parts/place") | ODD
    sums = np.concatenate(([np.uint64(0)], np.cumsum(items * factors[places], dtype=np.uint64)))
    return _present(row_hashes(sums[ends] - sums[ends - lengths], 0, "parts/list"), has_value)
