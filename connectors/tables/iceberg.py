"""Iceberg tables as a source: shards are the data files of one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
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
from connectors.files import no_row
from connectors.filters import Clause, Predicate
from connectors.tables.common import fingerprint, gather, library, location, plain, reading_table

Catalog = str | dict[str, str] | None
Properties = tuple[tuple[str, str], ...]
COMPARISONS = {
    "=": "EqualTo",
    "==": "EqualTo",
    "!=": "NotEqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
    "in": "In",
    "not in": "NotIn",
}


class IcebergOptions(SourceOptions):
    """Where the table is found, and which snapshot to read."""

    catalog: str | dict[str, str] | None = Field(
        default=None,
        description="Name of a catalog that pyiceberg knows (`.pyiceberg.yaml`, `PYICEBERG_CATALOG__...`), "
        "or its properties, `{name: prod, type: rest, uri: ...}`; `source.path` is then `namespace.table`. "
        "Default: `source.path` is the table's folder or its `.metadata.json`",
    )
    snapshot: int | None = Field(default=None, description="Id of the snapshot to read; default: the current")


class Iceberg(Connector[IcebergOptions]):
    """The format by name."""

    name = "iceberg"
    summary = "Iceberg tables (pip install 'rowsieve[iceberg]'); a shard is a data file"
    markers = ("metadata/version-hint.text",)
    Options = IcebergOptions

    def open(self, spec: SourceSpec, options: IcebergOptions) -> IcebergSource:
        """A source over one snapshot of the table, found here. Raises ConnectorError."""
        with reading_iceberg(spec.path):
            table = open_table(spec.path, options.catalog, spec.root)
        chosen = options.snapshot
        snapshot = table.current_snapshot() if chosen is None else table.snapshot_by_id(chosen)
        if snapshot is None:
            there = [found.snapshot_id for found in table.snapshots()]
            raise ConnectorError(f"{spec.path} has no snapshot {chosen or 'yet'}; there are: {there[-5:]}.")
        properties = tuple(sorted((key, str(value)) for key, value in table.io.properties.items()))
        return IcebergSource(spec, table.metadata_location, snapshot.snapshot_id, properties)


def open_table(path: str, catalog: Catalog, root: str = "") -> Any:
    """A table of pyiceberg's, from a catalog or from its files alone."""
    if catalog is None:
        return library("pyiceberg.table", "iceberg").StaticTable.from_metadata(location(path, root))
    return load_catalog(catalog).load_table(path)


def load_catalog(catalog: str | dict[str, str]) -> Any:
    """A catalog by its name or its properties."""
    load = library("pyiceberg.catalog", "iceberg").load_catalog
    if isinstance(catalog, str):
        return load(catalog)
    properties = dict(catalog)
    return load(properties.pop("name", "default"), **properties)


@contextmanager
def reading_iceberg(path: str) -> Iterator[None]:
    """Turn what pyiceberg raises while it reads ``path`` into a ConnectorError."""
    errors = vars(library("pyiceberg.exceptions", "iceberg")).values()
    own = [error for error in errors if isinstance(error, type) and issubclass(error, Exception)]
    with reading_table(path, "Iceberg", ValueError, *own):
        yield


@dataclass(frozen=True)
class IcebergSource(FileSource):
    """One snapshot of an Iceberg table. Rows that delete files mark are not read."""

    metadata: str
    """The table's metadata file: workers read it, and ask no catalog."""
    snapshot: int
    properties: Properties

    def list(self) -> Listing:
        """Read the snapshot's manifests; files whose statistics rule ``spec.filter`` out are left out."""
        with reading_iceberg(self.spec.path):
            table, tasks = _planned(self.metadata, self.snapshot, self.properties, self.spec.filter)
            scan = table.scan(snapshot_id=self.snapshot)
            schema = plain(self.spec.path, scan.projection().as_arrow())
            shards = [shard for task in tasks.values() if (shard := self._shard(table, task)).n_rows]
        if not shards:
            raise no_row(self.spec.path, {}, filtered=self.spec.filter is not None)
        identities = {path: _identity(task) for path, task in tasks.items()}
        identities[f"{self.spec.path}@{self.snapshot}"] = f"iceberg snapshot {self.snapshot}"
        return Listing(schema, tuple(shards), identities)

    def _shard(self, table: Any, task: Any) -> SourceShard:
        rows = int(task.file.record_count)
        if task.delete_files:
            cheapest = min(table.schema().fields, key=lambda field: len(str(field.field_type))).name
            rows = sum(batch.num_rows for batch in self._batches(table, task, [cheapest]))
        return SourceShard(task.file.file_path, 0, 1, rows, 0, int(task.file.file_size_in_bytes))

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one data file."""
        with reading_iceberg(shard.path):
            table, tasks = _planned(self.metadata, self.snapshot, self.properties, self.spec.filter)
            batches = self._batches(table, tasks[shard.path], columns)
            return gather(self.spec, shard, batches, columns, schema)

    def _batches(self, table: Any, task: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        scan = table.scan(selected_fields=tuple(columns), snapshot_id=self.snapshot)
        everything = library("pyiceberg.expressions", "iceberg").AlwaysTrue()
        reader = library("pyiceberg.io.pyarrow", "iceberg").ArrowScan
        found = reader(table.metadata, table.io, scan.projection(), everything).to_record_batches([task])
        yield from found


@lru_cache(maxsize=4)
def _planned(
    metadata: str, snapshot: int, properties: Properties, wanted: Predicate | None
) -> tuple[Any, dict[str, Any]]:
    """The table and its tasks by path: a data file, and the files of its deleted rows. Planned once."""
    table = library("pyiceberg.table", "iceberg").StaticTable.from_metadata(metadata, dict(properties))
    scan = table.scan(snapshot_id=snapshot)
    if wanted is not None:
        scan = scan.filter(_expression(wanted))
    found = list(scan.plan_files())
    tasks = {task.file.file_path: task for task in sorted(found, key=lambda task: task.file.file_path)}
    if len(tasks) < len(found):
        raise ConnectorError(
            f"{metadata} lists a data file twice, so rows count twice. Mend the table first."
        )
    return table, tasks


def _identity(task: Any) -> str:
    """Data files are never written again; files of deleted rows are added."""
    places = [[file.file_path, getattr(file, "content_offset", None)] for file in task.delete_files]
    return fingerprint([task.file.file_path, task.file.file_size_in_bytes, sorted(places, key=str)])


def _expression(wanted: Predicate) -> Any:
    """A filter in pyiceberg's terms."""
    terms = library("pyiceberg.expressions", "iceberg")
    found: Any = terms.AlwaysFalse()
    for way in wanted.ways:
        every: Any = terms.AlwaysTrue()
        for clause in way:
            every = terms.And(every, _clause(terms, clause))
        found = terms.Or(found, every)
    return found


def _clause(terms: Any, clause: Clause) -> Any:
    name, operation, value = clause
    if value is None:
        return (terms.NotNull if operation == "!=" else terms.IsNull)(name)
    return getattr(terms, COMPARISONS[operation])(name, value)
