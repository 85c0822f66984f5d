"""Delta tables as a source: shards are the table's Parquet files, or runs of row groups of a large one."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from connectors.base import (
    Connector,
    ConnectorError,
    FileSource,
    Listing,
    SourceOptions,
    SourceShard,
    SourceSpec,
)
from connectors.files import no_row, resolve
from connectors.links import check_regular
from connectors.parquet_footer import open_parquet
from connectors.parquet_source import check_expanded, fitting_groups, group_runs
from connectors.policy import current_policy
from connectors.schema import pick
from connectors.tables.common import (
    check_stated_size,
    fingerprint,
    gather,
    library,
    location,
    plain,
    reading_table,
)
from connectors.tables.delta_log import check_log, check_vectors
from connectors.tables.delta_vectors import MAX_ROWS

if TYPE_CHECKING:
    import pyarrow.dataset as pd


class DeltaOptions(SourceOptions):
    """Options of ``delta``: the version to read."""

    version: int | None = Field(default=None, ge=0, description="Version to read; default: the newest")


class Delta(Connector[DeltaOptions]):
    """Opens sources of the format ``delta``."""

    name = "delta"
    summary = "Delta tables (pip install 'rowsieve[delta]'); a shard is a data file or row groups of one"
    markers = ("_delta_log",)
    Options = DeltaOptions

    def open(self, spec: SourceSpec, options: DeltaOptions) -> DeltaSource:
        """Return a source over one version of the table, found here. Raises ConnectorError."""
        deltalake = library("deltalake", "delta")
        uri = location(spec.path, spec.root)
        with reading_table(spec.path, "Delta", library("deltalake.exceptions", "delta").DeltaError):
            check_log(uri)
            version = deltalake.DeltaTable(uri, version=options.version).version()
        return DeltaSource(spec, uri, int(version))


@dataclass(frozen=True)
class DataFile:
    """One data file of a version, as the table's log describes it."""

    path: str
    """Absolute path or URI."""
    name: str
    """Path below the table."""
    size: int
    """Bytes."""
    partition: dict[str, Any]
    """Value of each partition column."""
    deleted: NDArray[np.int64]
    """Rows that its deletion vector marks, ascending."""

    @property
    def identity(self) -> str:
        """Text that changes with the file's rows: data files never change, but their deletion vectors do."""
        return fingerprint([self.name, self.size, self.deleted.tobytes().hex()])

    def n_deleted(self, first: int, last: int) -> int:
        """Return the number of deleted rows from row ``first`` up to, excluding, ``last``."""
        low, high = np.searchsorted(self.deleted, (first, last))
        return int(high - low)

    def given(self, schema: pa.Schema) -> pc.Expression:
        """Return the values of the partition columns, which hold for all rows, as an expression."""
        found = pc.scalar(True)
        for name, value in self.partition.items():
            ref = pc.field(name)
            found &= ref.is_null() if value is None else ref == pa.scalar(value, schema.field(name).type)
        return found


@dataclass(frozen=True)
class DeltaSource(FileSource):
    """One version of a Delta table. Rows that a deletion vector marks are not read."""

    uri: str
    version: int

    def list(self) -> Listing:
        """Read the log and every file's footer."""
        schema, files = self._snapshot()
        shards: list[SourceShard] = []
        for name, file in files.items():
            with reading_table(name, "Delta"):
                shards += self._cut(name, file, schema)
        if not shards:
            raise no_row(self.spec.path, {}, filtered=self.spec.filter is not None)
        identities = {name: file.identity for name, file in files.items()}
        identities[f"{self.spec.path}@v{self.version}"] = f"delta version {self.version}"
        return Listing(schema, tuple(shards), identities)

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one shard."""
        pick(schema, columns, shard.path)
        table_schema, files = self._snapshot()
        file = files[shard.path]
        with reading_table(shard.path, "Delta"):
            self._check_expanded(file, shard, columns)
            fragment = self._fragment(file, table_schema).subset(row_group_ids=range(shard.start, shard.stop))
            batches = fragment.to_batches(schema=table_schema, columns=[*columns], use_threads=False)
            return gather(self.spec, shard, _left(batches, file.deleted - shard.file_row), columns, schema)

    def locate(self, shard: SourceShard, row: int) -> str:
        """Name row ``row`` (0-based within the shard) by its place in the data file, 0-based: "row 16"."""
        return f"row {self.file_rows(shard, [row])[0]}"

    def file_rows(self, shard: SourceShard, rows: Sequence[int]) -> Sequence[int]:
        """Return the 0-based positions in their data file of rows of a shard; deleted rows count there."""
        deleted = self._snapshot()[1][shard.path].deleted
        before = deleted[deleted >= shard.file_row] - shard.file_row
        kept_before = before - np.arange(len(before))  # rows left before each deleted one
        return [shard.file_row + row + int(np.searchsorted(kept_before, row, "right")) for row in rows]

    def _check_expanded(self, file: DataFile, shard: SourceShard, columns: Sequence[str]) -> None:
        filesystem, where = resolve(file.path, policy=self.spec.policy)
        with filesystem.open_input_file(where) as handle:
            check_expanded(
                handle, range(shard.start, shard.stop), columns, self.spec.max_bytes, shard.rows_text
            )

    def _snapshot(self) -> tuple[pa.Schema, dict[str, DataFile]]:
        with reading_table(self.spec.path, "Delta", library("deltalake.exceptions", "delta").DeltaError):
            schema, files = _read_log(self.uri, self.version)
        base = self.spec.path.rstrip("/")
        return plain(self.spec.path, schema), {f"{base}/{file.name}": file for file in files}

    def _fragment(self, file: DataFile, schema: pa.Schema) -> pd.ParquetFileFragment:
        import pyarrow.dataset as pd  # imports pandas

        filesystem, where = self._place(file)
        given = file.given(schema)
        return pd.ParquetFileFormat().make_fragment(where, filesystem, partition_expression=given)

    def _cut(self, name: str, file: DataFile, schema: pa.Schema) -> Iterator[SourceShard]:
        """Yield the runs of row groups of a file, without those that statistics rule out."""
        footer = self._footer(file, name)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        rows = [group.num_rows for group in groups]
        sizes = [max(group.total_byte_size, group.num_rows) for group in groups]
        firsts = [0, *accumulate(rows)]
        for run in group_runs(self._wanted(file, schema, len(groups)), sizes, self.spec.shard_bytes):
            first, last = firsts[run.start], firsts[run.stop]
            n_rows = last - first - file.n_deleted(first, last)
            share = sum(sizes[run.start : run.stop]) / max(1, sum(sizes))
            if n_rows:
                yield SourceShard(name, run.start, run.stop, n_rows, first, int(file.size * share))

    def _place(self, file: DataFile) -> tuple[fs.FileSystem, str]:
        """Return where a data file lies. Raises ConnectorError for one of more bytes than the log states."""
        filesystem, where = resolve(file.path, policy=self.spec.policy)
        if self.spec.policy.max_bytes is not None:
            check_stated_size(file.path, file.size, int(filesystem.get_file_info(where).size or 0))
        return filesystem, where

    def _footer(self, file: DataFile, name: str) -> pq.FileMetaData:
        filesystem, where = self._place(file)
        with filesystem.open_input_file(where) as handle:
            return open_parquet(handle, name).metadata

    def _wanted(self, file: DataFile, schema: pa.Schema, n_groups: int) -> Sequence[int]:
        if self.spec.filter is None:
            return range(n_groups)
        asked = self.spec.filter.expression(schema)
        return fitting_groups(self._fragment(file, schema), range(n_groups), asked, schema)


def _left(batches: Iterable[pa.RecordBatch], deleted: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Return the batches without the rows at these places, counted over all batches."""
    first = 0
    for batch in batches:
        low, high = np.searchsorted(deleted, (first, first + batch.num_rows))
        kept = np.ones(batch.num_rows, bool)
        kept[deleted[low:high] - first] = False
        first += batch.num_rows
        yield batch if low == high else batch.filter(pa.array(kept))


@lru_cache(maxsize=4)
def _read_log(uri: str, version: int) -> tuple[pa.Schema, tuple[DataFile, ...]]:
    """Return the schema and the data files of a version, in the order in which they were added.

    A process reads the log of a version once.
    """
    check_log(uri)
    table = library("deltalake", "delta").DeltaTable(uri, version=version)
    _check_names(uri, table)
    rows = pa.table(table.get_add_actions()).to_pylist()
    for row in rows:  # before anything that the log names is opened
        _check_below(uri, unquote(row["path"]))
    deleted = _deletion_vectors(uri, table, {unquote(row["path"]) for row in rows})
    rows.sort(key=lambda row: (row["modification_time"], row["path"]))
    return pa.schema(table.schema().to_arrow()), tuple(_data_file(uri, row, deleted) for row in rows)


def _data_file(uri: str, row: dict[str, Any], deleted: dict[str, NDArray[np.int64]]) -> DataFile:
    name = unquote(row["path"])  # the log has it as part of a URI
    path = f"{uri.rstrip('/')}/{quote(name) if '://' in uri else name}"
    found = deleted.get(name, np.empty(0, np.int64))
    return DataFile(path, name, int(row["size_bytes"]), row.get("partition") or {}, found)


def _check_below(uri: str, name: str) -> None:
    """Raise ConnectorError unless a data file that the log names lies below the table's folder."""
    absolute = name.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", name)
    if absolute or "\\" in name or ".." in unquote(name).split("/"):
        raise ConnectorError(
            f"source.path: the log of {uri} names the data file {name!r}, which is not below the table. A "
            f"log may be forged to read other files. Copy the data into the table; make a shallow clone a "
            f"deep one."
        )
    if not current_policy().outside_links and ("://" not in uri or uri.startswith("file://")):
        folder = resolve(uri)[1]
        check_regular(folder, os.path.join(folder, name))


def _deletion_vectors(uri: str, table: Any, names: Collection[str]) -> dict[str, NDArray[np.int64]]:
    """Return the deleted rows of data files by their names below the table.

    The last part of a name is not enough: tables that were converted from folders of Parquet have files of
    one name in several partitions. Raises ConnectorError for a vector of none of ``names``, whose deleted
    rows would be read.
    """
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    check_vectors(uri, table.version())
    root = unquote(table.table_uri).partition("://")[2].rstrip("/") + "/"
    found, total = {}, 0
    for batch in table.deletion_vectors():
        for path, kept in zip(*(pa.array(column) for column in pa.record_batch(batch).columns), strict=True):
            name = unquote(path.as_py()).partition("://")[2].removeprefix(root)
            if name not in names:
                raise ConnectorError(
                    f"{uri}: a deletion vector is for {path.as_py()}, which is none of the version's data "
                    f"files: rows that were deleted would be read. Remove the vectors (REORG TABLE ... APPLY "
                    f"(PURGE))."
                )
            found[name] = np.flatnonzero(~kept.values.to_numpy(zero_copy_only=False))
            total += len(found[name])
            if total > MAX_ROWS:
                raise ConnectorError(
                    f"source.path: deletion vectors of {uri} mark more than {MAX_ROWS:,} rows, which would "
                    f"be held in memory. Remove the rows from its files (REORG TABLE ... APPLY (PURGE))."
                )
    return found


def _check_names(uri: str, table: Any) -> None:
    """Raise ConnectorError for renamed columns. Other unknown features the library refuses by itself."""
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise ConnectorError(
            f"{uri}: its columns have other names in the data files (column mapping), which this source "
            f"cannot follow. Drop that feature (ALTER TABLE ... DROP FEATURE columnMapping), or write the "
            f"table anew."
        )
