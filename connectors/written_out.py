"""Bytes of columns once they are written out: dictionaries and views may name one long text in every row.

Such a column is small as long as it is kept as it is; a cast to text, with which every encoder begins, makes
a copy of the text for each row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.errors import ConnectorError
from connectors.schema import is_list, is_list_view

VIEWS = (pa.string_view(), pa.binary_view())


def check_written_out(table: pa.Table, max_bytes: int, place: str, held: int = 0) -> int:
    """Return ``held`` and the bytes of a table's columns once they are written out.

    Parameters
    ----------
    max_bytes : most bytes of all columns together, ``source.max_shard_bytes``.
    place : the rows, for the error.
    held : bytes of the tables before this one.

    Raises
    ------
    ConnectorError
        They are more than ``max_bytes``. The error names the place and the column.
    """
    total = held
    for name, column in zip(table.schema.names, table.columns, strict=True):
        size = sum(written_out_bytes(chunk) for chunk in column.chunks)
        total += size
        if total > max_bytes:
            raise ConnectorError(
                f"{place}, column {name!r}: the rows take {total} bytes or more in memory once its values "
                f"are written out, and source.max_shard_bytes allows {max_bytes}. If the file is what it "
                f"should be, raise that, or write smaller row groups or batches."
            )
    return total


def written_out_bytes(array: pa.Array) -> int:
    """Return the bytes of an array whose dictionaries and views, at any depth, are written out."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return written_out_bytes(array.storage)
    if pa.types.is_dictionary(kind):
        return _dictionary_bytes(array)
    if kind in VIEWS:
        return _view_bytes(array)
    if pa.types.is_struct(kind):
        return sum(written_out_bytes(inner) for inner in array.flatten())
    if is_list_view(kind):
        return 8 * len(array) + _bytes_of_uses(array.values, _uses(array))
    if is_list(kind):
        return 8 * len(array) + written_out_bytes(array.flatten())
    return int(array.nbytes)


def _uses(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return in how many lists of an array of list views each of its values is, shape (values,)."""
    present = array.is_valid().to_numpy(zero_copy_only=False)
    first = array.offsets.to_numpy(zero_copy_only=False)[: len(array)][present].astype(np.int64)
    after = first + array.sizes.to_numpy(zero_copy_only=False)[present]
    change = np.zeros(len(array.values) + 1, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, after, -1)
    return np.cumsum(change)[:-1]


def _bytes_of_uses(values: pa.Array, uses: npt.NDArray[np.int64]) -> int:
    """Return the bytes of values that are written out so often each; of nested ones the most it may be."""
    if values.type in VIEWS or _has_lengths(values.type):
        lengths = values.cast(pa.large_binary()) if values.type in VIEWS else values
        return int(uses @ pc.binary_length(lengths).fill_null(0).cast(pa.int64()).to_numpy())
    if values.type.num_fields == 0 and not pa.types.is_dictionary(values.type):
        return int(uses.sum()) * (int(values.nbytes) // max(len(values), 1) + 1)
    return int(uses.max(initial=0)) * written_out_bytes(values)


def _dictionary_bytes(array: pa.DictionaryArray) -> int:
    values = array.dictionary
    if values.type in VIEWS:
        values = values.cast(pa.large_binary())
    if _has_lengths(values.type):
        lengths = pc.binary_length(values).cast(pa.int64())
        return int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if values.type.num_fields == 0 and not pa.types.is_dictionary(values.type):
        return len(array) * (int(values.nbytes) // max(len(values), 1) + 1)
    return int(len(array) * written_out_bytes(values))  # of nested values, each at most all of them


def _view_bytes(array: pa.Array) -> int:
    """Return the sum of the lengths that stand in the views; Arrow itself has no function for it."""
    views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)[array.offset :][: len(array)]
    present = array.is_valid().to_numpy(zero_copy_only=False)
    return int(views[present, 0].sum(dtype=np.int64))


def _has_lengths(kind: pa.DataType) -> bool:
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return bool(large or pa.types.is_string(kind) or pa.types.is_binary(kind))


def leaves_of(
    metadata: pq.FileMetaData, groups: Iterable[int], columns: Collection[str]
) -> Iterator[pq.ColumnChunkMetaData]:
    """Return the chunks of these row groups of a Parquet file that belong to the named columns."""
    for group in groups:
        found = metadata.row_group(group)
        for index in range(found.num_columns):
            leaf = found.column(index)
            if column_of(leaf.path_in_schema, columns):
                yield leaf


def column_of(path: str, columns: Collection[str]) -> str:
    """Return the column that a path in a Parquet schema lies in, such as ``a`` for ``a.list.element``.

    Empty if it lies in none of ``columns``. Names of columns may have dots.
    """
    parts = path.split(".")
    beginnings = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in beginnings if name in columns), "")


def doubtful_sizes(leaves: Iterable[pq.ColumnChunkMetaData], max_bytes: int) -> dict[str, int]:
    """Return the paths that may take more than ``max_bytes`` in memory, with their unpacked bytes.

    A text is stored once and may stand in every row.
    """
    return {
        leaf.path_in_schema: leaf.total_uncompressed_size
        for leaf in leaves
        if leaf.physical_type == "BYTE_ARRAY" and leaf.num_values * leaf.total_uncompressed_size > max_bytes
    }
