"""Write one Parquet file so that it is either whole or not there, and the same to the byte each time."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.base import ConnectorError
from connectors.schema import is_list
from connectors.storage import ObjectPath, Place
from connectors.storage.beneath import new_file_beneath

ROW_GROUP_ROWS = 65_536
"""Most rows of a row group."""
ROW_GROUP_VALUES = 2**22
"""Most values of one column of lists in a row group: pyarrow holds eight bytes for each while it writes."""


@dataclass(frozen=True)
class Written:
    """Digest of a written file's content (``sha256``, hex) and its size in bytes."""

    sha256: str
    n_bytes: int


def write_parquet(
    table: pa.Table,
    path: str | Place,
    *,
    root: Place | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Written:
    """Write ``table`` to ``path`` under a temporary name in the same folder, then rename it.

    No link beneath ``root``, a folder above it, is followed; default: the file's own folder.

    An object of a store is made in memory and put in one request; the bytes are the same.

    The bytes depend only on the values, the schema and the version of pyarrow: compression (zstd) and
    format version are fixed, the length of row groups follows from the lengths of lists, chunks are joined
    and schema metadata is dropped; ``metadata`` is written in its place, into a file.

    Raises
    ------
    ConnectorError
        The folder is missing or cannot be written, the disk is full, or a folder beneath ``root`` is a link.
    """
    if isinstance(path, ObjectPath):
        data = parquet_bytes(table)
        path.write_bytes(data)
        return Written(hashlib.sha256(data).hexdigest(), len(data))
    path = Path(path)
    within = root if isinstance(root, Path) else path.parent
    try:
        with new_file_beneath(within, path, sync_folder=True, create=False) as file:
            _write(table, file, metadata)
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            n_bytes = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise _unwritable(path, error) from error
    return Written(sha256, n_bytes)


def write_shards(table: pa.Table, out: Path, name: str, shards: int) -> list[Path]:
    """Write a table to ``out/NAME-00000.parquet`` and so on, ``shards`` files of nearly equal length.

    Files of that name from an earlier call with more shards are removed: a glob would read their rows twice.
    Raises ValueError where ``shards`` is not between 1 and the number of rows, and ConnectorError.
    """
    if not 1 <= shards <= table.num_rows:
        raise ValueError(f"shards is {shards}: choose 1 to the number of rows, {table.num_rows}")
    out.mkdir(parents=True, exist_ok=True)
    cuts = [table.num_rows * index // shards for index in range(shards + 1)]
    paths = [out / f"{name}-{index:05d}.parquet" for index in range(shards)]
    for old in set(out.glob(f"{name}-*.parquet")) - set(paths):
        old.unlink()
    for path, (start, stop) in zip(paths, pairwise(cuts), strict=True):
        write_parquet(table.slice(start, stop - start), path)
    return paths


def parquet_bytes(table: pa.Table) -> bytes:
    """Return the bytes that :func:`write_parquet` would write."""
    buffer = io.BytesIO()
    _write(table, buffer)
    return buffer.getvalue()


def _write(table: pa.Table, target: IO[bytes], metadata: Mapping[str, str] | None = None) -> None:
    fields = [field.remove_metadata() for field in table.schema]
    plain = pa.Table.from_arrays(table.columns, schema=pa.schema(fields, metadata)).combine_chunks()
    pq.write_table(
        plain,
        target,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=3,
        row_group_size=_group_rows(plain),
    )


def _group_rows(table: pa.Table) -> int:
    """Return the rows of a row group: fewer for long lists, so that writing takes a bounded memory."""
    most: int = max((_list_values(column) for column in table.columns), default=0)
    if most <= ROW_GROUP_VALUES:
        return ROW_GROUP_ROWS
    fitting: int = ROW_GROUP_VALUES * table.num_rows // most
    return max(1, min(ROW_GROUP_ROWS, fitting))


def _list_values(column: pa.ChunkedArray) -> int:
    """Return the number of values in a column of lists; 0 for other types."""
    kind = column.type
    if not is_list(kind):
        return 0
    return int(pc.sum(pc.list_value_length(column)).as_py() or 0)


FIXES = {
    errno.ENOENT: "its folder does not exist: create it or correct the output path",
    errno.ENOTDIR: "part of its path is a file, not a folder: choose another output path",
    errno.EISDIR: "a folder has that name: remove it or choose another output path",
    errno.EACCES: "permission denied: make the folder writable for this user or choose another output path",
    errno.EPERM: "permission denied: make the folder writable for this user or choose another output path",
    errno.EROFS: "the filesystem is read-only: choose another output path",
    errno.ENOSPC: "the disk is full: free space or choose another output path",
    errno.EDQUOT: "the disk quota is used up: free space or choose another output path",
}


def _unwritable(path: Path, error: OSError) -> ConnectorError:
    reason = FIXES.get(error.errno or 0, f"{error}: correct that or choose another output path")
    return ConnectorError(f"Cannot write {path}: {reason}. Nothing was left half-written.")
