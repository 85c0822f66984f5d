"""Iceberg tables as a source: shards are the data files of one snapshot."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any
from urllib.parse import unquote

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
from connectors.files import check_links, check_regular, no_row, reading, resolve
from connectors.filters import Clause, Predicate
from connectors.policy import SourcePolicy, current_policy, hosts_named, names_a_host
from connectors.tables.common import (
    check_database,
    fingerprint,
    gather,
    library,
    location,
    plain,
    reading_table,
)
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


IMPORTING_MODULES = (
    "pyiceberg.catalog",
    "pyiceberg.catalog.rest.auth",
    "pyiceberg.io",
    "pyiceberg.io.pyarrow",
    "pyiceberg.table.locations",
)
"""Modules that import what a property names."""
CLIENTS = ("pyiceberg", "sqlalchemy", "botocore", "thrift", "google")
"""Packages whose own errors say that a catalog cannot be read."""
CONFIGURATION = ".pyiceberg.yaml"
MAX_HINT_BYTES = 1024
"""Bytes of ``version-hint.text`` that are read."""
OWN_MODULES = ("pyiceberg.io.pyarrow", "pyiceberg.io.fsspec")
OWN_KEYS = {
    "s3": ("s3.access-key-id", "client.access-key-id", "s3.anonymous"),
    "glue": ("glue.access-key-id", "client.access-key-id"),
    "dynamodb": ("dynamodb.access-key-id", "client.access-key-id"),
    "gcs": ("gcs.oauth2.token",),
    "adls": (
        "adls.account-key",
        "adls.sas-token",
        "adls.token",
        "adls.client-secret",
        "adls.connection-string",
        "adls.anon",
    ),
}
"""Kind of store -> properties with which its requests do not carry credentials of the environment."""
IDENTITIES = re.compile(r"(.+\.)?(profile[-_]name|role[-_]arn|kerberos[-_]ticket)")
"""Properties that choose as whom the reader acts, among those whom the operator has set up."""
PROPERTIES = re.compile(
    r"name|type|uri|warehouse|credential|token|scope|prefix|audience|resource|oauth2-server-uri"
    r"|token-refresh-enabled|rest\.sigv4-enabled|rest\.signing-(region|name)|init_catalog_tables"
    r"|downcast-ns-timestamp-to-us-on-read|(client|s3|gcs|adls|hdfs|glue)\.[a-z0-9.-]+"
)
"""Properties of a catalog that a recipe may set."""


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
        _check_sqlite(catalog)
        if isinstance(catalog, dict) and catalog.get("uri", "").startswith(("sqlite", "postgres")):
            catalog = catalog | {"init_catalog_tables": "false"}  # reading writes nothing into a database
        return load_catalog(catalog).load_table(path)
    guard_imports()
    where = location(path, root)
    _check_metadata_files(where)
    table = library("pyiceberg.table", "iceberg").StaticTable.from_metadata(where)
    check_location(where, table.metadata.location)
    return table


def load_catalog(catalog: str | dict[str, str], key: str = "source.options.catalog") -> Any:
    """Load a catalog by its name or its properties.

    Raises ConnectorError, which names ``key``, for properties that a recipe may not set.
    """
    guard_imports()
    _check_configuration(key)
    load = library("pyiceberg.catalog", "iceberg").load_catalog
    if isinstance(catalog, str):
        return load(catalog)
    check_properties(catalog, key)
    if file := _sqlite_file(catalog, key):
        check_database_file(file)
    properties = dict(catalog)
    name = properties.pop("name", "default")
    if properties and library("pyiceberg.catalog", "iceberg")._ENV_CONFIG.get_catalog_config(name):
        raise ConnectorError(
            f"{key}: the environment of this process defines the catalog {name!r}, and its credentials would "
            f"be joined with these properties. Write catalog: {name} alone, or another name."
        )
    return load(name, **properties)


def _check_configuration(key: str) -> None:
    """Raise ConnectorError where pyiceberg has read its settings from the working directory.

    That may be a folder of data. pyiceberg joins what a file there says with the catalogs of the environment,
    so that it could send their credentials elsewhere.
    """
    named = [os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~")]
    files = [os.path.join(folder, CONFIGURATION) for folder in named if folder]
    here = os.path.abspath(CONFIGURATION)
    if os.path.isfile(here) and not any(map(os.path.isfile, files)):
        raise ConnectorError(
            f"{key}: pyiceberg would take its catalogs from {here}, in the working directory. If you trust "
            f"that file, set PYICEBERG_HOME={os.path.dirname(here)} in the environment; else remove it."
        )


def _sqlite_file(catalog: str | Mapping[str, str], key: str) -> str | None:
    """Return the SQLite file of a catalog that is given by its properties; None for other catalogs.

    Raises ConnectorError for options of SQLite's driver, which could name another file.
    """
    uri = catalog.get("uri", "") if not isinstance(catalog, str) else ""
    scheme, _, rest = uri.partition("://")
    if scheme.partition("+")[0] != "sqlite" or not rest.strip("/"):
        return None
    if "?" in rest or rest[1:].startswith("file:"):
        raise ConnectorError(f"{key}.uri: write sqlite:/// and the path of the file, without options.")
    return rest[1:]


def _check_sqlite(catalog: str | dict[str, str]) -> None:
    """Raise ConnectorError for a catalog in a SQLite file that is not there: reading makes no files."""
    file = _sqlite_file(catalog, "source.options.catalog")
    if file and not os.path.isfile(file):
        raise ConnectorError(
            f"source.options.catalog.uri: there is no file {file}. Correct the path; write no settings."
        )


def check_properties(properties: Mapping[str, str], key: str) -> None:
    """Raise ConnectorError unless a recipe may set these properties of a catalog.

    Others could load code (``py-catalog-impl``, ``auth``), or send credentials somewhere else.
    """
    policy = current_policy()
    for name, value in properties.items():
        if name.endswith("-impl"):
            policy.check_module(value, f"{key}.{name}")
        elif IDENTITIES.fullmatch(name):
            policy.check_profile(value, f"{key}.{name}")
        elif not PROPERTIES.fullmatch(name):
            raise ConnectorError(
                f"{key}.{name}: a recipe cannot set this property. It can set name, type, uri, warehouse, "
                f"credential, token, scope and those of storage (s3., gcs., adls., hdfs.). Define the "
                f"catalog in .pyiceberg.yaml or PYICEBERG_CATALOG__... and write its name instead."
            )
        elif "://" in value and name != "adls.connection-string":
            _check_url(policy, value, f"{key}.{name}")
    check_hosts(properties, key)


def check_hosts(properties: Mapping[str, str], key: str) -> None:
    """Raise ConnectorError for properties that name what the policy does not list.

    That is a metadata service, a host to which credentials of the environment would be sent, and a profile or
    role of the operator. Properties come from the recipe, from a catalog's answer and from a table's
    metadata file.
    """
    policy = current_policy()
    for name, value in properties.items():
        if value and IDENTITIES.fullmatch(name):
            policy.check_profile(value, f"{key}.{name}")
        hosts = hosts_named(value) if names_a_host(name) and name != "uri" else []
        if name == "adls.connection-string":
            found = re.findall(r"(?i)[a-z]*endpoint=([^;]*)", value)
            hosts = [host for url in found for host in hosts_named(url)]
        for host in hosts:
            policy.check_host(host, f"{key}.{name}")
        keys = OWN_KEYS.get(name.partition(".")[0])
        if keys and hosts and not any(properties.get(own) for own in keys):
            policy.check_ambient(hosts, f"{key}.{name}")


def _check_url(policy: SourcePolicy, value: str, key: str) -> None:
    """Check each URL of a list; ``postgresql+psycopg2://`` is checked as ``postgresql://``."""
    for url in value.split(",") if not value.startswith("postgresql") else [value]:
        scheme, mark, rest = url.strip().partition("://")
        if scheme.startswith("postgres"):
            check_database(url, key)
        policy.check_uri(f"{scheme.partition('+')[0] if scheme != 'thrift' else 'https'}{mark}{rest}", key)


def _check_metadata_files(where: str) -> None:
    """Raise ConnectorError where a link, or the hint, leads to metadata files outside of the table."""
    folder = _bare(_folder_of_table(where))
    if "://" not in folder and not current_policy().outside_links and os.path.isdir(folder):
        metadata = os.path.join(folder, "metadata")
        if os.path.isdir(metadata):
            check_links(folder, below="metadata", hidden=True)
    if where.endswith(".metadata.json"):
        return
    hint = f"{where.rstrip('/')}/metadata/version-hint.text"
    filesystem, path = resolve(hint)
    with reading(hint), filesystem.open_input_stream(path) as stream:
        name = stream.read(MAX_HINT_BYTES).decode("utf-8", "replace")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name):
        raise ConnectorError(
            f"source.path: {hint} holds {name!r}, which is neither a number nor the name of a metadata file. "
            f"It may be forged to read other files. Name the table's .metadata.json file in source.path."
        )


def check_location(where: str, stated: str) -> None:
    """Raise ConnectorError unless the location that a metadata file states is the table's own folder."""
    folder = _folder_of_table(where)
    if _bare(stated) != _bare(folder):
        raise ConnectorError(
            f"source.path: the metadata of {where} state the location {stated}, not {folder}. Its files may "
            f"lie anywhere. Open the table where it was written, or through its catalog."
        )


def check_file(table: Any, path: str) -> None:
    """Raise ConnectorError unless a file that the table's metadata name lies below its location."""
    folder = table.metadata.location
    policy, bare = current_policy(), _bare(path)
    policy.check_uri(path)
    inside = bare.startswith(_bare(folder) + "/") and ".." not in unquote(path).split("/")
    if inside and "://" not in bare and not policy.outside_links:
        check_regular(_bare(folder), bare)
    if not inside:
        raise ConnectorError(
            f"source.path: the metadata of the table name the file {path}, which is not below {folder}. "
            f"Metadata may be forged to read other files. Rewrite the table's data files into its folder."
        )


def _folder_of_table(where: str) -> str:
    """Return the folder of a table that is named by itself or by one of its metadata files."""
    return where.rsplit("/metadata/", 1)[0] if where.endswith(".metadata.json") else where


def _bare(location: str) -> str:
    """Return a location without ``file://`` and a final slash; links of a local path are followed."""
    bare = location.removeprefix("file://").removeprefix("file:").rstrip("/")
    return (
        bare
        if "://" in bare
        else os.path.join(os.path.realpath(os.path.dirname(bare)), os.path.basename(bare))
    )


class _GuardedImports:
    """Stands for ``importlib`` in the modules of pyiceberg that import what a property names.

    Properties come from the recipe, from a REST catalog's answers and from a table's metadata file. The
    catalogs and file systems of pyiceberg itself may be imported, others only if the operator allows them.
    """

    def import_module(self, name: str) -> Any:
        if name not in OWN_MODULES:
            current_policy().check_module(
                f"{name}.", "source.options.catalog: a property of the catalog or table"
            )
        return import_module(name)


_GUARD = _GuardedImports()


def guard_imports() -> None:
    """Let pyiceberg import only modules that the policy allows.

    Raises ConnectorError where this version of pyiceberg cannot be guarded.
    """
    library("pyiceberg.catalog", "iceberg")
    from connectors.tables.guarded_http import GuardedSession  # needs requests, which pyiceberg brings

    for name in IMPORTING_MODULES:
        module = library(name, "iceberg")
        if not hasattr(module, "importlib"):
            raise ConnectorError(
                f"This version of pyiceberg imports modules in another way than Rowsieve can guard ({name}). "
                f"Install the version that deploy/constraints.txt names."
            )
        module.importlib = _GUARD
    library("pyiceberg.catalog.rest", "iceberg").Session = GuardedSession


@contextmanager
def reading_iceberg(path: str) -> Iterator[None]:
    """Turn errors of pyiceberg and of its catalogs' clients while they read ``path`` into a CorruptError."""
    try:
        with reading_table(path, "Iceberg", ValueError):
            yield
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
            rows = sum(batch.num_rows for batch in self._batches(table, task, []))
        return SourceShard(task.file.file_path, 0, 1, rows, 0, int(task.file.file_size_in_bytes))

    def read(self, shard: SourceShard, columns: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Read the named columns of one data file."""
        with reading_iceberg(shard.path):
            table, tasks = _planned(self.metadata, self.snapshot, self.properties, self.spec.filter)
            batches = self._batches(table, tasks[shard.path], columns)
            return gather(self.spec, shard, batches, columns, schema)

    def _batches(self, table: Any, task: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        cheapest = min(table.schema().fields, key=lambda field: len(str(field.field_type))).name
        selected = tuple(columns) or (cheapest,)  # pyiceberg yields no row of no columns
        scan = table.scan(selected_fields=selected, snapshot_id=self.snapshot)
        everything = library("pyiceberg.expressions", "iceberg").AlwaysTrue()
        reader = library("pyiceberg.io.pyarrow", "iceberg").ArrowScan
        found = reader(table.metadata, table.io, scan.projection(), everything).to_record_batches([task])
        yield from found


@lru_cache(maxsize=4)
def _planned(
    metadata: str, snapshot: int, properties: Properties, wanted: Predicate | None
) -> tuple[Any, dict[str, Any]]:
    """Return the table and its tasks by path, planned once: a data file and the files of its deleted rows."""
    guard_imports()
    table = library("pyiceberg.table", "iceberg").StaticTable.from_metadata(metadata, dict(properties))
    chosen = table.snapshot_by_id(snapshot)
    check_file(table, chosen.manifest_list)
    for manifest in chosen.manifests(table.io):
        check_file(table, manifest.manifest_path)
    scan = table.scan(snapshot_id=snapshot)
    if wanted is not None:
        scan = scan.filter(_expression(wanted))
    found = list(scan.plan_files())
    for path in {file.file_path for task in found for file in (task.file, *task.delete_files)}:
        check_file(table, path)
    tasks = {task.file.file_path: task for task in sorted(found, key=lambda task: task.file.file_path)}
    if len(tasks) < len(found):
        raise ConnectorError(
            f"{metadata} lists a data file twice, so that its rows count twice. Repair the table."
        )
    return table, tasks


def _identity(task: Any) -> str:
    """Return the identity of a data file, which never changes, with the files of its deleted rows."""
    places = [[file.file_path, getattr(file, "content_offset", None)] for file in task.delete_files]
    return fingerprint([task.file.file_path, task.file.file_size_in_bytes, sorted(places, key=str)])


def _expression(wanted: Predicate) -> Any:
    """Return a filter in pyiceberg's terms."""
    terms = library("pyiceberg.expressions", "iceberg")
    found: Any = terms.AlwaysFalse()
    for clauses in wanted.conjunctions:
        every: Any = terms.AlwaysTrue()
        for clause in clauses:
            every = terms.And(every, _clause(terms, clause))
        found = terms.Or(found, every)
    return found


def _clause(terms: Any, clause: Clause) -> Any:
    name, operation, value = clause
    if value is None:
        return (terms.NotNull if operation == "!=" else terms.IsNull)(name)
    return getattr(terms, COMPARISONS[operation])(name, value)
