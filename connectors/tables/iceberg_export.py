"""Iceberg tables to write to: data files in the table's place, then one transaction of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.tables.common import library, plain
from connectors.tables.export import (
    CommitConflictError,
    CommitResult,
    Export,
    ParquetWriter,
    PendingExport,
    VersionContent,
    VersionTag,
    storable,
    unstorable,
)
from connectors.tables.iceberg import load_catalog, reading_iceberg
from connectors.tables.iceberg_checks import check_written
from connectors.tables.legacy import content_of


@dataclass(frozen=True)
class IcebergExport(Export):
    """Exports versions to an Iceberg table. The version tag stands in the snapshot's summary."""

    format = "iceberg"

    def committed_state(self, tag: VersionTag) -> str:
        """Return the snapshot that holds ``tag``, or an empty text."""
        with reading_iceberg(self.path, "output.export"):
            return self._find(self._table(), tag)

    def _find(self, table: Any, tag: VersionTag) -> str:
        snapshots = [] if table is None else table.snapshots()
        for snapshot in sorted(snapshots, key=lambda found: found.timestamp_ms, reverse=True):
            written = snapshot.summary and content_of(snapshot.summary.additional_properties)
            if written == tag.content:
                return f"snapshot {snapshot.snapshot_id}"
            if written and self.mode == "overwrite":
                return ""
        return ""

    def start_export(
        self, schema: pa.Schema, tag: VersionTag, content: VersionContent | None = None
    ) -> PendingExport:
        """Check the table and prepare the writer. Raises ConnectorError for a partitioned table too."""
        with reading_iceberg(self.path, "output.export"):
            table = self._table()
            wanted = self._fit(table, storable(schema, "iceberg"))
            if table is None:
                self._catalog().create_namespace_if_not_exists(self.path.rpartition(".")[0])
            metadata = self._transaction(table, wanted).table_metadata
            self._check_place(metadata)
            folder = f"{metadata.location}/data"
        return PendingExport(ParquetWriter(folder, wanted, tag), partial(self._commit, wanted, folder, tag))

    def _fit(self, table: Any, wanted: pa.Schema) -> pa.Schema:
        """Return the types that the table has. Raises ConnectorError where it cannot take the columns."""
        self.check_absent(table is not None)
        if table is None:
            return wanted
        if not table.spec().is_unpartitioned():
            raise ConnectorError(f"{self.path} is partitioned. Export to a table that is not.")
        columns = plain(self.path, table.schema().as_arrow())
        self.check_columns(columns, wanted)
        return columns

    def _catalog(self) -> Any:
        return load_catalog(self.catalog or "default", "output.export.catalog")

    def _table(self) -> Any:
        catalog = self._catalog()
        return catalog.load_table(self.path) if catalog.table_exists(self.path) else None

    def _check_place(self, metadata: Any) -> None:
        """Raise ConnectorError where the table's metadata, or a link, lead an export elsewhere."""
        check_written(metadata, self.catalog or "default")
        self.check_links(metadata.location)

    def _transaction(self, table: Any, schema: pa.Schema) -> Any:
        unsupported = library("pyiceberg.io.pyarrow", "iceberg").UnsupportedPyArrowTypeException
        if table is None:
            try:
                return self._catalog().create_table_transaction(self.path, schema)
            except unsupported as error:
                raise unstorable(self.path, error.field, "Iceberg") from error
        # pyiceberg would add the files again to whatever has come in between. In memory alone.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table.transaction()

    def _commit(
        self, schema: pa.Schema, folder: str, tag: VersionTag, files: Sequence[dict[str, Any]]
    ) -> CommitResult:
        """Try to commit once. The catalog refuses if the current snapshot is no longer the one read."""
        errors = library("pyiceberg.exceptions", "iceberg")
        with reading_iceberg(self.path, "output.export"):
            table = self._table()
            if known := self._find(table, tag):
                return CommitResult(known, written=False)
            self.check_unchanged(self._fit(table, schema), schema)
            transaction = self._transaction(table, schema)
            self._check_place(transaction.table_metadata)
            if table is not None and self.mode == "overwrite":
                everything = library("pyiceberg.expressions", "iceberg").AlwaysTrue()
                transaction.delete(everything, snapshot_properties=tag.properties)
            paths = [f"{folder}/{file['name']}" for file in files]
            transaction.add_files(paths, snapshot_properties=tag.properties)
            try:
                done = transaction.commit_transaction()
            except (errors.CommitFailedException, errors.TableAlreadyExistsError) as error:
                raise CommitConflictError(f"{self.path} did not take the version: {error}") from error
        return CommitResult(f"snapshot {done.current_snapshot().snapshot_id}", written=True)
