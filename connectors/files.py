"""Open files as a source, whatever their format."""

from __future__ import annotations

import os
from typing import Literal

from connectors.base import ConnectorError
from connectors.csv_source import CsvSource
from connectors.jsonl_source import JsonlSource
from connectors.parquet_source import MAX_SHARD, ParquetSource
from connectors.paths import Format, Identities, find_files, identity

__all__ = ["identity", "open_source"]

FileSource = ParquetSource | CsvSource | JsonlSource
MAX_TEXT_SHARD = 2**30


def open_source(
    path: str,
    format: Format | Literal["auto"] = "auto",
    shard_bytes: int = 128 * 2**20,
    *,
    identities: Identities | None = None,
    text_columns: tuple[str, ...] = (),
    skip_corrupt: bool = False,
    max_bytes: int = MAX_SHARD,
) -> FileSource:
    """Source over a file, folder or glob; local, or any URI that pyarrow's filesystems know.

    Parameters
    ----------
    path
        Relative paths start at the working directory of this call, wherever the source is read later.
    format
        "auto" goes by extension: .parquet .pq / .csv / .jsonl .ndjson .json.
    shard_bytes
        Shards hold up to this many bytes (one row or row group, if that is larger); text at most 1 GiB.
    identities
        Answers for local files instead of :func:`connectors.paths.identity`, for example from a cache.
    text_columns
        CSV columns to read as text although they look like numbers or dates.
    skip_corrupt
        Leave out files that cannot be read, with the reason in ``Listing.skipped``.
    max_bytes
        A shard that takes more in memory is an error, not read to the end.

    Raises
    ------
    ConnectorError
        Nothing readable is there, or several formats are.

    """
    root = os.getcwd()
    found = find_files(path, format, root)
    if found.format == "parquet":
        return ParquetSource(path, shard_bytes, root, identities, skip_corrupt, max_bytes)
    if shard_bytes > MAX_TEXT_SHARD:
        raise ConnectorError(
            f"source.shard_bytes is {shard_bytes}: a shard of text is parsed at once, so choose at most "
            f"{MAX_TEXT_SHARD} (1 GiB)."
        )
    kind = CsvSource if found.format == "csv" else JsonlSource
    return kind(path, shard_bytes, root, identities, text_columns, skip_corrupt, max_bytes)
