"""Iceberg tables as a source: shards are the data files of one snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
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
from connectors.files import no_row
from connectors.filters import Clause, Predicate, joined
from connectors.parquet_footer import open_parquet
from connectors.parquet_source import check_expanded
from connectors.policy import current_policy
from connectors.tables.common import (
    MetadataError,
    check_stated_size,
    fingerprint,
    gather,
    library,
    location,
    plain,
    reading_table,
)
from connectors.tables.iceberg_checks import (
    check_configuration,
    check_file,
    check_hosts,
    check_location,
    check_metadata_files,
    check_properties,
    check_sqlite,
    guard_imports,
    sqlite_file,
)
from connectors.tables.orc_bounds import check_orc
from connectors.tables.sqlite_check import check_database_file

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


FIELD_ID = b"PARQUET:field_id"
LARGEST_FLOAT32 = float.fromhex("0x1.fffffep+127")
CLIENTS = ("pyiceberg", "sqlalchemy", "botocore", "thrift", "google")
"""Packages whose own errors say that a catalog cannot be read."""


class IcebergOptions(SourceOptions):
    """Options of ``iceberg``: the catalog of the table, and the snapshot to read."""

    catalog: str | dict[str, str] | None = Field(
        default=None,
        description="Name of a catalog that pyiceberg knows (`.pyiceberg.yaml`, `PYICEBERG_CATALOG__...`), "
        "or its properties, `{name: prod, type: rest, uri: ...}`; `source.path` is then `namespace.table`. "
        "Default: `source.path` is the table's folder or its `.metadata.json`",
    )
    snapshot: int | None = Field(default=None, description="Id of the snapshot to read; default: the current")


class Iceberg(Connector[IcebergOptions]):
    """Opens sources of the format ``iceberg``."""

    name = "iceberg"
    summary = "Iceberg tables (pip install 'rowsieve[iceberg]'); a shard is a data file"
    markers = ("metadata/version-hint.text",)
    Options = IcebergOptions

    def names_table(self, options: Mapping[str, Any]) -> bool:
        """Return whether the options name a catalog, whose files are checked where it says they lie."""
        return options.get("catalog") is not None

    def open(self, spec: SourceSpec, options: IcebergOptions) -> IcebergSource:
        """Return a source over one snapshot of the table, found here. Raises ConnectorError."""
        with reading_iceberg(spec.path):
            table = open_table(spec.path, options.catalog, spec.root)
        chosen = options.snapshot
        snapshot = table.current_snapshot() if chosen is None else table.snapshot_by_id(chosen)
        if snapshot is None:
            snapshots = [found.snapshot_id for found in table.snapshots()]
            raise ConnectorError(
                f"{spec.path} has no snapshot {chosen or 'yet'}; there are: {snapshots[-5:]}."
            )
        properties = tuple(sorted((key, str(value)) for key, value in table.io.properties.items()))
        check_hosts(table.metadata.properties, "source.path: the metadata of the table")
        if not isinstance(options.catalog, str):  # else they are what the operator's own catalog says
            check_hosts(dict(properties), "source.options.catalog")
            current_policy().check_uri(table.metadata_location)
        return IcebergSource(spec, table.metadata_location, snapshot.snapshot_id, properties)


def open_table(path: str, catalog: Catalog, root: str = "") -> Any:
    """Open a table of a catalog, or from its files alone."""
    if catalog is not None:
        check_sqlite(catalog)
        if isinstance(catalog, dict) and catalog.get("uri", "").startswith(("sqlite", "postgres")):
            catalog = catalog | {"init_catalog_tables": "false"}  # reading writes nothing into a database
        return load_catalog(catalog).load_table(path)
    guard_imports()
    where = location(path, root)
    check_metadata_files(where)
    table = library("pyiceberg.table", "iceberg").StaticTable.from_metadata(where)
    check_location(where, table.metadata.location)
    return table


def load_catalog(catalog: str | dict[str, str], key: str = "source.options.catalog") -> Any:
    """Load a catalog by its name or its properties.

    Raises ConnectorError, which names ``key``, for properties that a recipe may not set.
    """
    guard_imports()
    check_configuration(key)
    load = library("pyiceberg.catalog", "iceberg").load_catalog
    if isinstance(catalog, str):
        return load(catalog)
    check_properties(catalog, key)
    if file := sqlite_file(catalog, key):
        check_database_file(file)
    properties = dict(catalog)
    name = properties.pop("name", "default")
    if properties and library("pyiceberg.catalog", "iceberg")._ENV_CONFIG.get_catalog_config(name):
        raise ConnectorError(
            f"{key}: the environment of this process defines the catalog {name!r}, and its credentials would "
            f"be joined with these properties. Write catalog: {name} alone, or another name."
        )
    return load(name, **properties)


@contextmanager
def reading_iceberg(path: str, key: str = "source.path") -> Iterator[None]:
    """Turn errors of pyiceberg and of its catalogs' clients while they read ``path`` into a CorruptError.

    Metadata that exceed a bound raise ConnectorError, which names ``key``.
    """
    try:
        with reading_table(path, "Iceberg", ValueError):
            yield
    except MetadataError as error:
        raise ConnectorError(f"{key}: {error}") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in CLIENTS:
            raise
        raise CorruptError(
            f"{path} cannot be read by Iceberg: {' '.join(str(error).split())[:500].rstrip('. ')}. Correct "
            f"its address, the catalog or permissions."
        ) from error


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
            columns = _scan(table, self.snapshot).projection()
            schema = plain(self.spec.path, columns.as_arrow())
            shards = [shard for task in tasks.values() if (shard := self._shard(table, task)).n_rows]
        if not shards:
            raise no_row(self.spec.path, {}, filtered=self.spec.filter is not None)
        reassigned = reassigned_names(table.metadata, columns)
        identities = {path: _identity(task, reassigned) for path, task in tasks.items()}
        identities[f"{self.spec.path}@{self.snapshot}"] = f"iceberg snapshot {self.snapshot}"
        return Listing(schema, tuple(shards), identities)

    def _shard(self, table: Any, task: Any) -> SourceShard:
        rows, size = int(task.file.record_count), int(task.file.file_size_in_bytes)
        if rows < 0 or size < 0:
            raise ConnectorError(
                f"source.path: the metadata of {self.spec.path} state negative figures, {rows:,} rows and "
                f"{size:,} bytes, for {task.file.file_path}. Repair the table."
            )
        if task.delete_files:
            rows = sum(batch.num_rows for batch in self._batches(table, task, []))
        return SourceShard(task.file.file_path, 0, 1, rows, 0, size)

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one data file."""
        with reading_iceberg(shard.path):
            table, tasks = _planned(self.metadata, self.snapshot, self.properties, self.spec.filter)
            if self.spec.policy.max_bytes is not None:
                check_stated_size(shard.path, shard.n_bytes, len(table.io.new_input(shard.path)))
            batches = self._batches(table, tasks[shard.path], columns)
            return gather(self.spec, shard, batches, columns, schema)

    def _batches(self, table: Any, task: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        every = _scan(table, self.snapshot).projection().fields
        cheapest = min(every, key=lambda field: len(str(field.field_type))).name
        selected = tuple(columns) or (cheapest,)  # pyiceberg yields no row of no columns
        scan = _scan(table, self.snapshot, selected_fields=selected)
        numbers = {str(field.field_id).encode() for field in scan.projection().fields}
        self._check_expanded(table, task, numbers)
        everything = library("pyiceberg.expressions", "iceberg").AlwaysTrue()
        reader = library("pyiceberg.io.pyarrow", "iceberg").ArrowScan
        found = reader(table.metadata, table.io, scan.projection(), everything).to_record_batches([task])
        yield from found

    def _check_expanded(self, table: Any, task: Any, wanted: Collection[bytes]) -> None:
        """Raise ConnectorError where columns of a data file take too much; ``wanted`` are their numbers."""
        place, kind = task.file.file_path, str(task.file.file_format.value)
        with table.io.new_input(place).open() as stream:
            if kind == "PARQUET":
                file = open_parquet(stream, place)
                numbers = {field.name: (field.metadata or {}).get(FIELD_ID) for field in file.schema_arrow}
                columns = [name for name, number in numbers.items() if number is None or number in wanted]
                check_expanded(stream, range(file.num_row_groups), columns, self.spec.max_bytes, place)
            elif kind == "ORC":
                check_orc(stream, place, self.spec.max_bytes, wanted=wanted)


@lru_cache(maxsize=4)
def _planned(
    metadata: str, snapshot: int, properties: Properties, wanted: Predicate | None
) -> tuple[Any, dict[str, Any]]:
    """Return the table and its tasks by path, planned once: a data file and the files of its deleted rows."""
    guard_imports()
    from connectors.tables import iceberg_bounds as bounds  # needs pyiceberg

    table = library("pyiceberg.table", "iceberg").StaticTable.from_metadata(metadata, dict(properties))
    chosen = table.snapshot_by_id(snapshot)
    check_file(table, chosen.manifest_list)
    manifests = [manifest.manifest_path for manifest in chosen.manifests(table.io)]
    for path in manifests:
        check_file(table, path)
    bounds.check_manifests(table, manifests)
    scan = _scan(table, snapshot)
    if wanted is not None and (filtered := _bound(table, scan.projection(), wanted)) is not None:
        scan = scan.filter(filtered)
    found = _plan_files(scan)
    for path in {file.file_path for task in found for file in (task.file, *task.delete_files)}:
        check_file(table, path)
    bounds.check_deletes(table, (file for task in found for file in task.delete_files))
    tasks = {task.file.file_path: task for task in sorted(found, key=lambda task: task.file.file_path)}
    if len(tasks) < len(found):
        raise ConnectorError(
            f"{metadata} lists a data file twice, so that its rows count twice. Repair the table."
        )
    return table, tasks


def _plan_files(scan: Any) -> list[Any]:
    """Return the tasks of a scan. Raises ConnectorError where equality deletes may apply to its rows."""
    try:
        return list(scan.plan_files())
    except ValueError as error:
        if "equality deletes" not in str(error):
            raise
        raise ConnectorError(
            f"source.path: {scan.table_metadata.location} has files of equality deletes, which name deleted "
            f"rows by their values (Flink writes them), and pyiceberg cannot apply them. Have the data files "
            f"rewritten, in Spark by rewrite_data_files with the options delete-file-threshold 1 and "
            f"remove-dangling-deletes true; or name an older snapshot in source.options.snapshot."
        ) from error


def _scan(table: Any, snapshot: int, **settings: Any) -> Any:
    """Return a scan of a snapshot. The current one has the table's columns, an earlier one its own.

    Columns are renamed, added and dropped without a new snapshot.
    """
    is_current = table.current_snapshot().snapshot_id == snapshot
    return table.scan(snapshot_id=None if is_current else snapshot, **settings)


def reassigned_names(metadata: Any, columns: Any) -> dict[str, int]:
    """Return the number of each column by its name where a name may have had another column before.

    Empty where all schemas of the table are known and agree. Data files stay when names move to other
    columns, and results of the old columns must not be taken over.
    """
    schemas = [*metadata.schemas, columns]
    pairs = {(found.find_column_name(number), number) for found in schemas for number in found.field_ids}
    agree = len(pairs) == len({name for name, _ in pairs}) == len({number for _, number in pairs})
    newest = max(found.schema_id for found in schemas)
    if agree and {found.schema_id for found in schemas} >= {*range(newest + 1)}:
        return {}
    return {columns.find_column_name(number): number for number in columns.field_ids}


def _identity(task: Any, reassigned: Mapping[str, int]) -> str:
    """Return the identity of a data file, which never changes, with the files of its deleted rows."""
    places = [[file.file_path, getattr(file, "content_offset", None)] for file in task.delete_files]
    known = [task.file.file_path, task.file.file_size_in_bytes, sorted(places, key=str)]
    return fingerprint([*known, reassigned] if reassigned else known)


def _bound(table: Any, columns: Any, wanted: Predicate) -> Any:
    """Return a filter in pyiceberg's terms; None where pyiceberg cannot leave out files by it.

    It finds columns in the table's present schema, which may not be the one to read by, and compares a column
    with values of its own type alone: no whole numbers with fractions, no times with dates. Beyond float32 it
    takes no value of a column for larger, also not infinity. Rows are filtered after they are read in any
    case, and what is wrong with a filter is said there.
    """
    values = [value for clauses in wanted.conjunctions for _, _, value in clauses]
    if columns != table.schema() or any(map(_exceeds_float32, values)):
        return None
    try:
        found = _expression(wanted)
        library("pyiceberg.expressions.visitors", "iceberg").bind(columns, found, case_sensitive=True)
    except (TypeError, ValueError):
        return None
    return found


def _exceeds_float32(value: Any) -> bool:
    """Return whether a value of a filter, or one of several, is a number that float32 does not hold."""
    several = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
    return any(isinstance(one, (int, float)) and abs(one) > LARGEST_FLOAT32 for one in several)


def _expression(wanted: Predicate) -> Any:
    """Return a filter in pyiceberg's terms."""
    terms = library("pyiceberg.expressions", "iceberg")
    every = [joined(terms.And, (_clause(terms, one) for one in clauses)) for clauses in wanted.conjunctions]
    return joined(terms.Or, every)


def _clause(terms: Any, clause: Clause) -> Any:
    name, operation, value = clause
    if value is None:
        return (terms.NotNull if operation == "!=" else terms.IsNull)(name)
    return getattr(terms, COMPARISONS[operation])(name, value)
