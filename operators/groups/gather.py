"""All rows of one class, in the order of their ids, filled shard by shard into matrices of the right size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.base import LABEL, ROW_ID, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.groups.kernel import Array


def gather_class(
    shards: ShardReader, index: int, columns: Sequence[str]
) -> tuple[npt.NDArray[np.int64], dict[str, Array]]:
    """Row ids (n,) ascending and columns of the class ``index``: vectors (n, d) float32, numbers (n,).

    Labels are read first: they are small, and tell how many rows there are and where. Shards without
    the class are not read.

    Raises
    ------
    OperatorError
        Vectors of different lengths.
    """
    ordered = sorted(shards.shards, key=lambda shard: shard.first_row)
    wanted = [pc.equal(shards.read(shard.index, [LABEL]).column(LABEL), index) for shard in ordered]
    sizes = [pc.sum(mask).as_py() or 0 for mask in wanted]
    row_ids = np.empty(sum(sizes), np.int64)
    found: dict[str, Array] = {}
    start = 0
    for shard, mask, size in zip(ordered, wanted, sizes, strict=True):
        if not size:
            continue
        table = shards.read(shard.index, columns).filter(mask)
        row_ids[start : start + size] = table.column(ROW_ID).to_numpy()
        for name in columns:
            rows = column_to_numpy(table.column(name))
            whole = found.setdefault(name, np.empty((len(row_ids), *rows.shape[1:]), rows.dtype))
            if rows.shape[1:] != whole.shape[1:]:
                raise OperatorError(other_lengths(shard.path, name, rows.shape[1], whole.shape[1]))
            whole[start : start + size] = rows
        start += size
    return row_ids, found


def other_lengths(path: str, column: str, length: int, expected: int) -> str:
    """What to say of a shard whose vectors have another length than those of earlier ones."""
    return (
        f"{path}: {column!r} has {length} entries, in earlier shards {expected}. They come from different "
        "runs; run the operator that adds it again."
    )


def column_to_numpy(column: pa.ChunkedArray) -> Array:
    """A list column as (n, d) float32, any other as (n,)."""
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return vectors_to_numpy(column)
    return np.asarray(column.to_numpy())
