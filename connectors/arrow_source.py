"""Arrow IPC files and streams (Feather) as a source: shards are runs of record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from connectors.base import (
    Connector,
    ConnectorError,
    CorruptError,
    FileSource,
    Listing,
    SourceOptions,
    SourceShard,
    SourceSpec,
)
from connectors.column_names import check_names, number_if_renamed, rename_remedy, with_names
from connectors.file_stamps import merged_listing, of_unchanged_file
from connectors.files import File, each_file, find_files, reading, resolve
from connectors.pickled_types import check_types
from connectors.schema import cast_table, pick, plain_schema
from connectors.utf8_texts import check_texts
from connectors.written_out import check_written_out

MAGIC = b"ARROW1"
FEATHER_1 = b"FEA1"
Shards = list[SourceShard]
Reader = Any  # pa.RecordBatchFileReader or pa.RecordBatchStreamReader


class Arrow(Connector[SourceOptions]):
    """Opens sources of the format ``arrow``."""

    name = "arrow"
    summary = "Arrow IPC files and streams, Feather; a shard is a run of record batches"
    extensions = (".arrow", ".feather", ".ipc", ".arrows")

    def open(self, spec: SourceSpec, options: SourceOptions) -> ArrowSource:
        """Return a source that reads Arrow files with the settings of ``spec``."""
        return ArrowSource(spec)


@dataclass(frozen=True)
class ArrowSource(FileSource):
    """Reads Arrow IPC files and streams.

    A shard is a run of record batches of up to ``spec.shard_bytes`` in memory; a batch is never cut. Streams
    have no index, so that reading a shard passes over the batches before it.
    """

    def list(self) -> Listing:
        """Read every file once; see :class:`connectors.base.Source`."""
        files = self._files()
        found, skipped = each_file(self.spec, [file.name for file in files], self._inspect_file)
        return merged_listing(self.spec, files, found, skipped)

    @of_unchanged_file
    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard, cast to ``schema``."""
        wanted = pick(schema, columns, shard.path)
        with self._opened(shard.path) as reader:
            names = self._names(reader.schema)
        pick(pa.schema([(name, pa.null()) for name in names]), columns, shard.path)
        stored = list(columns) or names[:1]
        place_of = {name: place for place, name in enumerate(names)}
        places = sorted(place_of[name] for name in stored)
        with self._opened(shard.path, places) as reader:
            batches = [*_batches(reader, shard.start, shard.stop)]
            table = pa.Table.from_batches(batches, reader.schema)
            table = table.rename_columns([names[place] for place in places])
            check_texts(table, shard)
            table.validate(full=True)  # the file may hold invalid offsets or texts
        if table.num_rows != shard.n_rows or len(batches) != shard.stop - shard.start:
            raise ConnectorError(f"{shard.path} has changed since it was listed. Plan and run again.")
        if table.nbytes > self.spec.max_bytes:
            raise ConnectorError(
                f"{shard.path}, record batches {shard.start} to {shard.stop - 1}: they take {table.nbytes} "
                f"bytes in memory, and source.max_shard_bytes allows {self.spec.max_bytes}. Raise that, or "
                f"write smaller batches."
            )
        check_written_out(table, self.spec.max_bytes, shard.rows_text)
        return cast_table(self._converted(table.select([*columns])), wanted, shard.rows_text)

    def _files(self) -> Sequence[File]:
        return find_files(self.spec, Arrow)

    def _schema(self, stored: pa.Schema) -> pa.Schema:
        """Return the columns as they are read, for those that a file holds."""
        return plain_schema(stored)

    def _converted(self, table: pa.Table) -> pa.Table:
        """Return the stored columns as :meth:`_schema` describes them; the caller casts their types."""
        return table

    def _inspect_file(self, path: str) -> tuple[pa.Schema, Shards]:
        shards: Shards = []
        start = first = rows = held = 0
        with self._opened(path) as reader:
            check_types(path, reader.schema)
            names = self._names(reader.schema)
            check_names(path, names, rename_remedy(names))
            index = -1
            for index, batch in enumerate(_batches(reader)):
                size = max(batch.nbytes, batch.num_rows)  # packed bits and nulls take less than a byte
                if rows and held + size > self.spec.shard_bytes:
                    shards.append(SourceShard(path, start, index, rows, first, held))
                    start, first, rows, held = index, first + rows, 0, 0
                rows, held = rows + batch.num_rows, held + size
            if rows:
                shards.append(SourceShard(path, start, index + 1, rows, first, held))
            return self._schema(with_names(reader.schema, names)), shards

    def _names(self, stored: pa.Schema) -> Sequence[str]:
        return number_if_renamed(stored.names, self.spec.renamed)

    @contextmanager
    def _opened(self, path: str, fields: Sequence[int] | None = None) -> Iterator[Reader]:
        """Open a file as a reader of all columns, or of those at the positions ``fields``."""
        filesystem, where = resolve(path, self.spec.root, self.spec.policy)
        options = pa.ipc.IpcReadOptions(included_fields=None if fields is None else [*fields])
        with reading(path), filesystem.open_input_file(where) as handle:
            if handle.size() == 0:
                raise CorruptError(f"{path} is empty (0 bytes). Remove it or write it again.")
            magic = handle.read(len(MAGIC))
            handle.seek(0)
            if magic.startswith(FEATHER_1):
                raise ConnectorError(
                    f"{path} is Feather version 1, not the Arrow format. Write it again as version 2."
                )
            try:
                kind = pa.ipc.open_file if magic == MAGIC else pa.ipc.open_stream
                yield kind(handle, options=options)
            except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
                raise CorruptError(
                    f"{path} is not a whole Arrow file: {str(error).splitlines()[0].rstrip('. ')}. "
                    f"It may have been cut off while written or copied: write or copy it again."
                ) from error


def _batches(reader: Reader, start: int = 0, stop: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches whose buffers have the sizes that their lengths need. Raises ArrowInvalid for others.

    Arrow does not check that, and even the size of a forged batch (``nbytes``) is read beyond its buffers.
    """
    for batch in _unchecked(reader, start, stop):
        batch.validate()
        yield batch


def _unchecked(reader: Reader, start: int, stop: int | None) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        n = reader.num_record_batches
        yield from (reader.get_batch(index) for index in range(start, n if stop is None else min(stop, n)))
        return
    for index, batch in enumerate(reader):
        if stop is not None and index >= stop:
            return
        if index >= start:
            yield batch
