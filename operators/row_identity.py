"""Identities of rows that do not depend on where a row stands: of its content, or of a key column.

Draws that must stay the same when files are added hash these identities instead of row ids, which are
positions in the plan: a file that sorts first moves every position behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float32
from operators.base import ROW_ID, ShardInfo, ShardReader
from operators.hashing import Hashes, row_hashes

BLOCK = 8192
"""Rows that are hashed at a time."""


def content_hashes(X: Float32) -> Hashes:
    """Hash the content of each row (n, d): equal rows have equal hashes, wherever they stand.

    Multilinear hashing (Lemire and Kaser: Strongly universal string hashing is fast, 2014) of the bits of the
    float32 values, 0 and -0 being equal; two different rows collide with probability at most 2^-32.
    """
    n, d = X.shape
    factors = row_hashes(np.arange(d), 0, "row identity/content") | np.uint64(1)
    found = np.empty(n, np.uint64)
    for start in range(0, n, BLOCK):
        part = np.ascontiguousarray(X[start : start + BLOCK], np.float32) + np.float32(0)
        found[start : start + BLOCK] = part.view(np.uint32).astype(np.uint64) @ factors
    return found


def content_identities(X: Float32) -> Hashes:
    """Identities (n,) of the rows (n, d) of one shard: content, and how often it occurred before.

    Equal rows of a shard have different identities, so that a table with few different rows is drawn about
    as evenly as any other. Copies in several shards share identities, and another cut gives others.
    """
    content = content_hashes(X)
    order = np.argsort(content, kind="stable")
    ordered = content[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.empty(0, int)
    lengths = np.diff(np.r_[first, len(ordered)])
    times = np.empty(len(ordered), np.int64)
    times[order] = np.arange(len(ordered)) - np.repeat(first, lengths)
    return content ^ np.where(times > 0, row_hashes(times, 0, "row identity/copy"), np.uint64(0))


def position_identities(shards: Sequence[ShardInfo], row_ids: npt.NDArray[np.integer]) -> Hashes:
    """Identities (n,) of rows by their file's content and their position in it.

    They stay when other files are added or files are renamed, and change where the bytes of the file do.
    """
    ordered = sorted(shards, key=lambda shard: shard.first_row)
    place = np.searchsorted([shard.first_row for shard in ordered], row_ids, side="right") - 1
    keys = np.array([text_hash(shard.identity or shard.path) for shard in ordered], np.uint64)
    offsets = np.array([shard.file_row - shard.first_row for shard in ordered], np.int64)
    return keys[place] ^ row_hashes(row_ids + offsets[place], 0, "row identity/position")


def key_hashes(column: pa.ChunkedArray | pa.Array) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """Hash the values of a key column (n,) as text, and say where there is one: (n,) and (n,).

    A time has the same hash in every unit.
    """
    coded = _texts_of_one_unit(column)
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    coded = coded.dictionary_encode()
    hashes = np.array([text_hash(text) for text in coded.dictionary.to_pylist()], np.uint64)
    codes = coded.indices.fill_null(-1).to_numpy().astype(np.int64)
    has_value = codes >= 0
    found = np.zeros(len(codes), np.uint64)
    found[has_value] = hashes[codes[has_value]]
    return found, has_value


def key_texts(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return the values of a key column (n,) as text; null where there is none, as for NaN."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return pc.cast(column, pa.string())


def _texts_of_one_unit(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return the values of a key column (n,) as text, times and durations in microseconds if they can be."""
    kind = column.type
    if not pa.types.is_temporal(kind) or pa.types.is_date(kind) or pa.types.is_interval(kind):
        return key_texts(column)
    if pa.types.is_timestamp(kind):
        usual = pa.timestamp("us", kind.tz)
    else:
        usual = pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")
    texts = key_texts(pc.cast(column, usual, safe=False))
    if kind.unit != "ns":
        return texts
    return pc.if_else(pa.array(beyond_microseconds(column)), key_texts(column), texts)


def beyond_microseconds(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.bool_]:
    """Return which (n,) of some times or durations in nanoseconds are no whole number of microseconds."""
    counts = pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    finer: npt.NDArray[np.bool_] = counts % 1000 != 0
    return finer


def text_hash(text: str) -> int:
    """Return a 64-bit hash of a text that is the same on every machine."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def source_column(reader: ShardReader, column: str, table: pa.Table) -> pa.Array:
    """Return a source column of the rows of a table, which are rows of one shard."""
    ids = table[ROW_ID].to_numpy()
    shards = sorted(reader.shards, key=lambda shard: shard.first_row)
    shard = shards[bisect_right([one.first_row for one in shards], int(ids[0])) - 1]
    found = reader.read_source(shard.index, [column])
    places = ids - shard.first_row
    if ROW_ID in found.column_names:  # the rows of a fit, without those that are held out
        places = np.searchsorted(found[ROW_ID].to_numpy(), ids)
    return found[column].combine_chunks().take(pa.array(places))
