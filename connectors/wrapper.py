"""Base of sources that show another source with other columns, row by row the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from connectors.base import LateColumns, Listing, Source, SourceShard, narrowed


@dataclass(frozen=True)
class Wrapper(ABC):
    """A source whose shards and rows are those of ``source``, and whose columns are computed from its own."""

    source: Source

    @property
    def skip_corrupt(self) -> bool:
        """Return whether the underlying source leaves out files that cannot be read."""
        return self.source.skip_corrupt

    def list(self) -> Listing:
        """List the underlying source, with the columns of this one. Raises ConnectorError."""
        found = self.source.list()
        return replace(found, schema=self._shown(found.schema))

    @abstractmethod
    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard. Raises ConnectorError."""

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name a row by its place in the file of the underlying source."""
        return self.source.locate(shard, row)

    def file_rows(self, shard: SourceShard, rows: Sequence[int]) -> Sequence[int]:
        """Return the 0-based positions of rows in their file."""
        return self.source.file_rows(shard, rows)

    def unread(self, shard: SourceShard, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns of a shard that the listed schema lacks, under the names of the source."""
        if not isinstance(self.source, LateColumns):
            return ()
        return self.source.unread(shard, self._stored(schema))

    def narrowed(self, shard: SourceShard, n_rows: int) -> SourceShard:
        """Return a shard of the first rows, where the underlying source can read those alone."""
        return narrowed(self.source, shard, n_rows)

    @abstractmethod
    def _shown(self, stored: pa.Schema) -> pa.Schema:
        """Return the columns of this source, given those of the underlying one. Raises ConnectorError."""

    @abstractmethod
    def _stored(self, shown: pa.Schema) -> pa.Schema:
        """Return the columns of the underlying source, given those of this one."""
