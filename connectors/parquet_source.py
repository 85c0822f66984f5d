"""Parquet files as a source: shards are runs of row groups; Hive folder names become columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

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
from connectors.cells import is_text
from connectors.column_names import check_names, number_if_renamed, rename_remedy, with_names
from connectors.file_stamps import merged_listing, of_unchanged_file
from connectors.files import each_file, find_files, reading, resolve
from connectors.filters import Predicate
from connectors.hive_folders import constant, digest, partition, partition_schema
from connectors.parquet_footer import open_parquet
from connectors.pickled_types import check_types
from connectors.schema import cast_table, pick, plain_schema
from connectors.utf8_texts import check_texts
from connectors.written_out import check_written_out, column_of, doubtful_sizes, leaves_of

if TYPE_CHECKING:
    import pyarrow.dataset as ds

WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8, "BYTE_ARRAY": 4}
"""Smallest number of bytes that a value takes in memory, by its physical type."""
Shards = list[SourceShard]
NOT_UTF8 = "Invalid UTF8"
"""Part of Arrow's error about the texts of a dictionary, which it checks itself."""


class ParquetOptions(SourceOptions):
    """Options of a source in the format ``parquet``."""

    hive: bool = Field(default=True, description="Folder names such as year=2024 become columns")


class Parquet(Connector[ParquetOptions]):
    """Opens sources of the format ``parquet``."""

    name = "parquet"
    summary = "Parquet files, also in Hive partitions; a shard is a run of row groups"
    extensions = (".parquet", ".pq")
    has_text_columns = True
    Options = ParquetOptions

    def open(self, spec: SourceSpec, options: ParquetOptions) -> ParquetSource:
        """Return a source that reads Parquet files with the settings of ``spec`` and ``options``."""
        return ParquetSource(spec, options.hive)


class HeadShard(SourceShard):
    """The first ``n_rows`` rows of the row groups ``start`` to ``stop``."""


@dataclass(frozen=True)
class ParquetSource(FileSource):
    """Source that reads Parquet files, shard by shard.

    A shard is a run of row groups of up to ``spec.shard_bytes`` uncompressed bytes, since a reader must hold
    all of them; a row group is never cut. ``spec.filter`` leaves out files by their folders' names and
    row groups by their statistics.
    """

    hive: bool = True

    def list(self) -> Listing:
        """Read the footers; see :class:`connectors.base.Source`."""
        files = find_files(self.spec, Parquet)
        paths = tuple(file.name for file in files)
        folders = partition_schema(self.spec, paths) if self.hive else pa.schema([])
        asked = {path: self._asked(path, folders) for path in paths}
        found, skipped = each_file(
            self.spec,
            [path for path in paths if asked[path] is not False],
            lambda path: self._footer(path, folders, asked[path]),
        )
        listing = merged_listing(self.spec, files, found, skipped)
        self._check_text_columns(listing.schema, folders)
        return self._with_folders(listing) if len(folders) else listing

    @of_unchanged_file
    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard, cast to ``schema``."""
        wanted = pick(schema, columns, shard.path)
        folders = constant(self.spec, shard.path, wanted, shard.n_rows) if self.hive else {}
        stored = [name for name in columns if name not in folders]
        with self._opened(shard.path) as file:
            held = file.schema_arrow.names
            names = number_if_renamed(held, self.spec.renamed)
            pick(with_names(file.schema_arrow, names), stored, shard.path)
            if shard.stop > file.num_row_groups:
                raise _changed(shard)
            place_of = {name: place for place, name in enumerate(names)}
            asked = dict.fromkeys(held[place_of[name]] for name in stored)
            table = self._read_texts(file, shard, [*asked])
        if table.num_rows != shard.n_rows:
            raise _changed(shard)
        if names != held:  # all columns of a name are read, among each other in the file's order
            both = [*zip(held, names, strict=True)]
            of_name = {name: iter([new for old, new in both if old == name]) for name in held}
            table = table.rename_columns([next(of_name[name]) for name in table.schema.names])
        check_texts(table, shard)
        for name, values in folders.items():
            table = table.append_column(name, values)
        return cast_table(table.select([*columns]), wanted, shard.rows_text)

    def narrowed(self, shard: SourceShard, n_rows: int) -> SourceShard:
        """Return the first ``n_rows`` rows of a shard; of a row group, pages after them are not decoded."""
        if n_rows >= shard.n_rows:
            return shard
        n_bytes = shard.n_bytes * n_rows // shard.n_rows
        return HeadShard(
            shard.path, shard.start, shard.stop, n_rows, shard.file_row, n_bytes, stamp=shard.stamp
        )

    def _check_text_columns(self, schema: pa.Schema, folders: pa.Schema) -> None:
        """Raise ConnectorError for a column of ``spec.text_columns`` to which a file gives another type."""
        where = f"source.text_columns: {self.spec.path}"
        for name in self.spec.text_columns:
            head = name.partition(".")[0]
            stated = head if name not in schema.names and head in schema.names else name
            kind = pick(schema, [stated], where).field(0).type
            if name in folders.names or (stated == name and is_text(kind)):
                continue
            raise ConnectorError(
                f"{where} states that the column {stated!r} is {kind}; only the types of folders' names "
                f"(year=2024) are guessed. Take {name!r} out of the key, and write it as text where the data "
                f"are made, if it is to be text."
            )

    def _with_folders(self, listing: Listing) -> Listing:
        """Return a listing whose identities cover the columns that come from the names of folders."""
        identities = {
            path: f"{found},folders:{digest(partition(self.spec, path))}"
            for path, found in listing.identities.items()
        }
        return replace(listing, identities=identities)

    def _asked(self, path: str, folders: pa.Schema) -> Predicate | bool:
        """Return the filter that remains once the file's folders are known; False if they exclude the
        file.
        """
        if self.spec.filter is None or not len(folders):
            return self.spec.filter or True
        row = pa.table(constant(self.spec, path, folders, 1), schema=folders)
        return self.spec.filter.given(row)

    def _footer(self, path: str, folders: pa.Schema, asked: Predicate | bool) -> tuple[pa.Schema, Shards]:
        with self._opened(path) as file:
            check_types(path, file.schema_arrow)
            held = file.schema_arrow.names
            names = number_if_renamed(held, self.spec.renamed)
            check_names(path, names, rename_remedy(names))
            schema = plain_schema(with_names(file.schema_arrow, names))
            twice = [name for name in folders.names if name in schema.names]
            if twice:
                raise ConnectorError(
                    f"{path}: the column {twice[0]!r} is in the file and in its folders' names. Set "
                    f"source.options.hive: false to take the file's."
                )
            groups: Sequence[int] = range(file.num_row_groups)
            if isinstance(asked, Predicate) and names == held:
                groups = self._fitting(path, groups, asked.expression(schema))
            shards = [*_shards(path, file.metadata, groups, self.spec.shard_bytes)]
            return pa.schema([*schema, *folders]), shards

    def _fitting(self, path: str, groups: Sequence[int], asked: pc.Expression) -> Sequence[int]:
        import pyarrow.dataset  # imports pandas

        filesystem, where = resolve(path, self.spec.root, self.spec.policy)
        fragment = pyarrow.dataset.ParquetFileFormat().make_fragment(where, filesystem)
        return fitting_groups(fragment, groups, asked)

    def _read_texts(self, file: pq.ParquetFile, shard: SourceShard, columns: Sequence[str]) -> pa.Table:
        """Return all rows of a shard. An error about a dictionary's texts names the column."""
        try:
            return self._read(file, shard, columns)
        except pa.ArrowInvalid as error:
            if NOT_UTF8 not in str(error):
                raise
            if len(columns) > 1:
                for name in columns:
                    self._read_texts(file, shard, [name])
            raise CorruptError(
                f"{shard.rows_text}, column {columns[0]!r}: a text is not UTF-8. Write the column again as "
                f"UTF-8, or as binary."
            ) from error

    def _read(self, file: pq.ParquetFile, shard: SourceShard, columns: Sequence[str]) -> pa.Table:
        """Return all rows of a shard after checking that they fit into ``max_bytes``.

        Sizes in a footer are not upper limits, as one long value of a dictionary may occur in every row.
        Columns of which this may be true are read as dictionaries and counted before they are expanded.
        """
        groups = range(shard.start, shard.stop)
        leaves = list(leaves_of(file.metadata, groups, columns))
        self._check_size(shard, sum(leaf.num_values * WIDTHS.get(leaf.physical_type, 16) for leaf in leaves))
        doubtful = doubtful_sizes(leaves, self.spec.max_bytes)
        flat = [path for path in doubtful if path in columns]
        filesystem, where = resolve(shard.path, self.spec.root, self.spec.policy)
        with filesystem.open_input_file(where) as handle:
            counted = _open(handle, shard.path, read_dictionary=flat)
            nested = doubtful.keys() - set(flat)
            step = min([1024, *(max(1, self.spec.max_bytes // doubtful[path]) for path in nested)])
            if isinstance(shard, HeadShard):
                return self._read_in_pieces(counted, shard, columns, step if nested else 8192)
            if nested:
                return self._read_in_pieces(counted, shard, columns, step)
            table = counted.read_row_groups(groups, columns=[*columns])
        check_written_out(table, self.spec.max_bytes, shard.rows_text)
        return table

    def _read_in_pieces(
        self, file: pq.ParquetFile, shard: SourceShard, columns: Sequence[str], step: int
    ) -> pa.Table:
        """Read a shard, or the first rows of one, ``step`` rows at a time.

        Dictionaries within lists are not kept, so that a piece is counted before the next one is read.
        """
        held, missing, head, pieces = 0, shard.n_rows, isinstance(shard, HeadShard), []
        groups = range(shard.start, shard.stop)
        for piece in file.iter_batches(min(step, shard.n_rows), row_groups=groups, columns=[*columns]):
            pieces.append(piece.slice(0, missing) if head else piece)
            table = pa.Table.from_batches(pieces[-1:])
            held = check_written_out(table, self.spec.max_bytes, shard.rows_text, held)
            missing -= piece.num_rows
            if head and missing <= 0:
                break
        return pa.Table.from_batches(pieces, pieces[0].schema)  # which keeps rows without columns

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
        filesystem, where = resolve(path, self.spec.root, self.spec.policy)
        with reading(path), filesystem.open_input_file(where) as handle:
            if handle.size() == 0:
                raise CorruptError(f"{path} is empty (0 bytes). Remove it or write it again.")
            try:
                yield _open(handle, path)
            except (pa.ArrowException, OSError) as error:
                raise CorruptError(
                    f"{path} is not a whole Parquet file: {_first_line(error)} "
                    f"It may have been cut off while written or copied: write or copy it again."
                ) from error


def _open(handle: pa.NativeFile, place: str, **settings: Any) -> pq.ParquetFile:
    """Return a reader that checks pages, and reads INT96 as microseconds, since nanoseconds wrap in 2262."""
    return open_parquet(
        handle, place, page_checksum_verification=True, coerce_int96_timestamp_unit="us", **settings
    )


def _shards(
    path: str, metadata: pq.FileMetaData, groups: Sequence[int], shard_bytes: int
) -> Iterator[SourceShard]:
    """Return the runs of neighbouring row groups among ``groups``."""
    row_groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in row_groups]
    sizes = [max(group.total_byte_size, group.num_rows) for group in row_groups]
    for run in group_runs(groups, sizes, shard_bytes):
        chunks = [row_groups[g].column(c) for g in run for c in range(metadata.num_columns)]
        disk = sum(chunk.total_compressed_size for chunk in chunks)
        n_rows = sum(rows[run.start : run.stop])
        if n_rows:
            yield SourceShard(path, run.start, run.stop, n_rows, sum(rows[: run.start]), disk)


def group_runs(groups: Sequence[int], sizes: Sequence[int], most: int) -> Iterator[range]:
    """Yield runs of neighbouring row groups with at most so many bytes together, or with one group.

    Parameters
    ----------
    groups : wanted row groups, ascending.
    sizes : bytes of each row group of the file, a row being one at least.
    most : bytes of a run.
    """
    start = stop = held = 0
    for group in groups:
        if stop > start and (group != stop or held + sizes[group] > most):
            yield range(start, stop)
            start, held = group, 0
        elif stop == start:
            start = group
        stop, held = group + 1, held + sizes[group]
    if stop > start:
        yield range(start, stop)


def fitting_groups(
    fragment: ds.ParquetFileFragment,
    groups: Sequence[int],
    asked: pc.Expression,
    schema: pa.Schema | None = None,
) -> Sequence[int]:
    """Return the row groups of a file that their statistics do not exclude.

    These are all ``groups`` where Arrow cannot compare the statistics: the rows are filtered once they are
    read, and a file with such statistics is not a damaged one.
    """
    try:
        return [group.id for group in fragment.subset(asked, schema=schema).row_groups]
    except pa.ArrowException:
        return groups


def check_expanded(
    handle: pa.NativeFile, groups: range, columns: Collection[str], max_bytes: int, place: str
) -> None:
    """Raise ConnectorError where columns of a Parquet file take more than ``max_bytes`` in memory.

    For readers that expand dictionaries by themselves. Only columns are read of which the footer leaves open
    how many bytes they take, as one long value may occur in every row.
    """
    doubtful = doubtful_sizes(leaves_of(_open(handle, place).metadata, groups, columns), max_bytes)
    flat = [path for path in doubtful if path in columns]
    nested = {column_of(path, columns): size for path, size in doubtful.items() if path not in flat}
    file = _open(handle, place, read_dictionary=flat)
    held = check_written_out(file.read_row_groups(groups, columns=flat), max_bytes, place) if flat else 0
    for name, size in nested.items():
        step = min(1024, max(1, max_bytes // size))
        for batch in file.iter_batches(step, row_groups=groups, columns=[name]):
            held = check_written_out(pa.Table.from_batches([batch]), max_bytes, place, held)


def _changed(shard: SourceShard) -> ConnectorError:
    return ConnectorError(
        f"{shard.path} has changed since it was listed: {shard.n_rows} rows were expected from row "
        f"{shard.file_row} on. Plan and run again."
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(". ") + "."
