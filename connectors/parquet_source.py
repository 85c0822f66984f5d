"""Parquet files as a source: shards are runs of row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from connectors.base import ConnectorError, CorruptError, Listing, SourceShard
from connectors.paths import Identities, find_files, identify, reading, resolve
from connectors.schema import check_names, check_types, merge, pick

Shards = list[SourceShard]


@dataclass(frozen=True)
class ParquetSource:
    """Parquet files below ``path``; relative local paths start at ``root``.

    A shard is a run of row groups of up to ``shard_bytes`` uncompressed bytes, since that is what a
    reader must hold; a row group is never cut.
    """

    path: str
    shard_bytes: int
    root: str = ""
    identities: Identities | None = None
    skip_corrupt: bool = False

    def list(self) -> Listing:
        """Read every footer; see :class:`connectors.base.Source`."""
        paths = find_files(self.path, "parquet", self.root).paths
        schemas: dict[str, pa.Schema] = {}
        shards: Shards = []
        skipped: dict[str, str] = {}
        for path in paths:
            try:
                schemas[path], found = self._footer(path)
            except CorruptError as error:
                if not self.skip_corrupt:
                    raise
                skipped[path] = str(error)
                continue
            shards += found
        if not shards:
            reason = f" {next(iter(skipped.values()))}" if skipped else ""
            raise ConnectorError(f"{self.path} holds no rows. Point source.path at files with rows.{reason}")
        first, schema = next(iter(schemas.items()))
        for path, other in schemas.items():
            schema = merge(path, other, first, schema)
        return Listing(schema, tuple(shards), identify(list(schemas), self.root, self.identities), skipped)

    def _footer(self, path: str) -> tuple[pa.Schema, Shards]:
        with self._opened(path) as file:
            check_types(path, file.schema_arrow)
            schema = _plain(file.schema_arrow)
            check_names(path, schema.names)
            return schema, [*_shards(path, file.metadata, self.shard_bytes)]

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard, cast to ``schema``."""
        wanted = pick(schema, columns, shard.path)
        with self._opened(shard.path) as file:
            pick(file.schema_arrow, columns, shard.path)
            if shard.stop > file.num_row_groups:
                raise _changed(shard)
            table = file.read_row_groups(range(shard.start, shard.stop), columns=[*columns])
        if table.num_rows != shard.n_rows:
            raise _changed(shard)
        return _cast(table.select([*columns]), wanted, shard)

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name row ``row`` (0-based within the shard) by its place in the file, 0-based: "row 16"."""
        return f"row {shard.file_row + row}"

    @contextmanager
    def _opened(self, path: str) -> Iterator[pq.ParquetFile]:
        filesystem, where = resolve(path, self.root)
        with reading(path), filesystem.open_input_file(where) as handle:
            if handle.size() == 0:
                raise CorruptError(f"{path} is empty (0 bytes). Remove it or write it again.")
            try:
                yield pq.ParquetFile(handle, page_checksum_verification=True)
            except (pa.ArrowException, OSError) as error:
                raise CorruptError(
                    f"{path} is no whole Parquet file: {_first_line(error)} "
                    f"It may have been cut off while written or copied: write or copy it again."
                ) from error


def _shards(path: str, metadata: pq.FileMetaData, shard_bytes: int) -> Iterator[SourceShard]:
    start, first, rows, held, disk = 0, 0, 0, 0, 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if rows and held + group.total_byte_size > shard_bytes:
            yield SourceShard(path, start, index, rows, first, disk)
            start, first, rows, held, disk = index, first + rows, 0, 0, 0
        rows += group.num_rows
        held += group.total_byte_size
        disk += sum(group.column(c).total_compressed_size for c in range(group.num_columns))
    if rows:
        yield SourceShard(path, start, metadata.num_row_groups, rows, first, disk)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Leave out what pandas and the Parquet format write beside names and types."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _cast(table: pa.Table, schema: pa.Schema, shard: SourceShard) -> pa.Table:
    columns = []
    for field in schema:
        column = table[field.name]
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise ConnectorError(
                f"{shard.path}, rows {shard.file_row} to {shard.file_row + shard.n_rows - 1}, column "
                f"{field.name!r}: {column.type} values do not fit {field.type}: {_first_line(error)} "
                f"Write the column with one type in all files."
            ) from error
    return table.select([]) if not columns else pa.table(columns, schema=schema)


def _changed(shard: SourceShard) -> ConnectorError:
    return ConnectorError(
        f"{shard.path} has changed since it was listed: {shard.n_rows} rows were expected from row "
        f"{shard.file_row} on. Plan and run again."
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(". ") + "."
