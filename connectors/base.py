"""What every source is: files on some filesystem, frozen into shards, read as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa


class ConnectorError(Exception):
    """A source or sink cannot be used: the text names the file, row, column, value and the fix."""


class CorruptError(ConnectorError):
    """The bytes of a file, or of one of its shards, are not what its format asks for."""


@dataclass(frozen=True)
class SourceShard:
    """A frozen piece of one file.

    ``start``/``stop`` are row groups for Parquet and byte offsets for text formats. ``n_rows`` rows,
    the first of which is row ``file_row`` (0-based) of its file. ``n_bytes`` is the size on disk.
    """

    path: str
    start: int
    stop: int
    n_rows: int
    file_row: int
    n_bytes: int


@dataclass(frozen=True)
class Listing:
    """What a source holds right now. ``identities`` maps each path to what changes when its bytes do.

    ``skipped`` maps each file that was left out to the reason: it cannot be read, and that was allowed.
    """

    schema: pa.Schema
    shards: tuple[SourceShard, ...]
    identities: dict[str, str]
    skipped: dict[str, str] = field(default_factory=dict)


class Source(Protocol):
    """Bytes to Arrow. Picklable; holds no open handles."""

    @property
    def skip_corrupt(self) -> bool:
        """Whether files that cannot be read are left out, and shards taken for rows without values."""
        ...

    def list(self) -> Listing:
        """Find the files, read their schemas and freeze shards. Raises ConnectorError."""
        ...

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard, cast to ``schema``. Raises ConnectorError."""
        ...

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name a row of a shard (0-based) the way an editor shows it: "line 17", or "row 16" for Parquet."""
        ...
