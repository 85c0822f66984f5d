"""How long the lists of a column of vectors are: rows of each length, mergeable."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

MAX_LENGTHS, OTHER_LENGTHS = 64, -1
"""Most lengths of lists that are counted one by one, and the key of all rows where there are more."""


def list_lengths(column: pa.ChunkedArray) -> dict[int, int]:
    """Return the rows of each length of a column of lists."""
    if pa.types.is_fixed_size_list(column.type):
        return {int(column.type.list_size): len(column) - column.null_count}
    counted = pc.value_counts(pc.list_value_length(column).drop_null())
    lengths, rows = counted.field("values").to_pylist(), counted.field("counts").to_pylist()
    return bounded_lengths(dict(zip(lengths, rows, strict=True)))


def bounded_lengths(lengths: Mapping[int, int]) -> dict[int, int]:
    """Return the rows of each length; of all lengths together where there are many."""
    many = len(lengths) > MAX_LENGTHS or OTHER_LENGTHS in lengths
    return {OTHER_LENGTHS: sum(lengths.values())} if many else dict(lengths)
