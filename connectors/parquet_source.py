"""Parquet files as a source: shards are runs of row groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.base import (
    Connector,
    ConnectorError,
    CorruptError,
    Listing,
    SourceOptions,
    SourceShard,
    SourceSpec,
)
from connectors.listing import check_rows, each_file
from connectors.paths import identify, reading, resolve
from connectors.schema import check_names, check_types, merge, pick

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8, "BYTE_ARRAY": 4}
"""Bytes that a value takes in memory at least, by its physical type."""
Shards = list[SourceShard]


class Parquet(Connector[SourceOptions]):
    """The format by name."""

    name = "parquet"
    summary = "Parquet files; a shard is a run of row groups"
    extensions = (".parquet", ".pq")

    def open(self, spec: SourceSpec, options: SourceOptions) -> ParquetSource:
        """See :class:`connectors.base.Connector`."""
        return ParquetSource(spec)


@dataclass(frozen=True)
class ParquetSource:
    """Parquet files.

    A shard is a run of row groups of up to ``spec.shard_bytes`` uncompressed bytes, since that is what
    a reader must hold; a row group is never cut.
    """

    spec: SourceSpec

    @property
    def skip_corrupt(self) -> bool:
        """See :class:`connectors.base.Source`."""
        return self.spec.skip_corrupt

    def list(self) -> Listing:
        """Read every footer; see :class:`connectors.base.Source`."""
        found, skipped = each_file(self.spec, Parquet, self._footer)
        shards = [shard for _, held in found.values() for shard in held]
        check_rows(self.spec, shards, skipped)
        first, (schema, _) = next(iter(found.items()))
        for path, (other, _) in found.items():
            schema = merge(path, other, first, schema)
        return Listing(schema, tuple(shards), identify(self.spec, [*found]), skipped)

    def _footer(self, path: str, first_path: str) -> tuple[pa.Schema, Shards]:
        with self._opened(path) as file:
            check_types(path, file.schema_arrow)
            schema = _plain(file.schema_arrow)
            check_names(path, schema.names)
            return schema, [*_shards(path, file.metadata, self.spec.shard_bytes)]

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard, cast to ``schema``."""
        wanted = pick(schema, columns, shard.path)
        with self._opened(shard.path) as file:
            pick(file.schema_arrow, columns, shard.path)
            if shard.stop > file.num_row_groups:
                raise _changed(shard)
            table = self._read(file, shard, columns)
        if table.num_rows != shard.n_rows:
            raise _changed(shard)
        return _cast(table.select([*columns]), wanted, shard)

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name row ``row`` (0-based within the shard) by its place in the file, 0-based: "row 16"."""
        return f"row {shard.file_row + row}"

    def _read(self, file: pq.ParquetFile, shard: SourceShard, columns: Sequence[str]) -> pa.Table:
        """All rows of a shard, once it is known that they fit into ``max_bytes``.

        Sizes in a footer bound nothing: one long value in a dictionary may stand in every row. Texts that
        could be that are read with their dictionaries and counted before they are written out.
        """
        groups = range(shard.start, shard.stop)
        leaves = list(_leaves(file.metadata, groups, set(columns)))
        self._check_size(shard, sum(leaf.num_values * WIDTHS.get(leaf.physical_type, 16) for leaf in leaves))
        doubtful = {
            leaf.path_in_schema
            for leaf in leaves
            if leaf.physical_type == "BYTE_ARRAY"
            and leaf.num_values * leaf.total_uncompressed_size > self.spec.max_bytes
        }
        flat = [path for path in doubtful if path in columns]
        filesystem, where = resolve(shard.path, self.spec.root)
        with filesystem.open_input_file(where) as handle:
            counted = pq.ParquetFile(handle, read_dictionary=flat, page_checksum_verification=True)
            if len(flat) < len(doubtful):
                return self._read_in_pieces(counted, shard, columns)
            table = counted.read_row_groups(groups, columns=[*columns])
        self._check_size(shard, sum(_written_out(table.column(name)) for name in flat))
        return table

    def _read_in_pieces(self, file: pq.ParquetFile, shard: SourceShard, columns: Sequence[str]) -> pa.Table:
        """The same for texts inside lists, whose dictionaries cannot be kept."""
        held, pieces = 0, []
        for piece in file.iter_batches(1024, row_groups=range(shard.start, shard.stop), columns=[*columns]):
            held += piece.nbytes
            self._check_size(shard, held)
            pieces.append(piece)
        return pa.Table.from_batches(pieces, pieces[0].schema)

    def _check_size(self, shard: SourceShard, size: int) -> None:
        if size > self.spec.max_bytes:
            last = shard.file_row + shard.n_rows - 1
            raise ConnectorError(
                f"{shard.path}, rows {shard.file_row} to {last}: they take {size} bytes or more in memory "
                f"({shard.n_bytes} on disk), and source.max_shard_bytes allows {self.spec.max_bytes}. If the "
                f"file is what it should be, raise that, or write smaller row groups."
            )

    @contextmanager
    def _opened(self, path: str) -> Iterator[pq.ParquetFile]:
        filesystem, where = resolve(path, self.spec.root)
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


def _leaves(metadata: pq.FileMetaData, groups: range, columns: set[str]) -> Iterator[pq.ColumnChunkMetaData]:
    """Chunks of these row groups that belong to the named columns."""
    for group in groups:
        found = metadata.row_group(group)
        for index in range(found.num_columns):
            leaf = found.column(index)
            path = leaf.path_in_schema
            if path in columns or path.partition(".")[0] in columns:
                yield leaf


def _written_out(column: pa.ChunkedArray) -> int:
    """Bytes of a column's texts, each where it stands."""
    total = 0
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
            total += pc.sum(lengths.take(chunk.indices)).as_py() or 0
        else:
            total += chunk.nbytes
    return total


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
