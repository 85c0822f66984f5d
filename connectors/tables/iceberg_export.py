"""Iceberg tables to write to: data files in the table's place, then one transaction of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.tables.common import library, plain
from connectors.tables.exporting import CONTENT, Begun, Edition, Export, ParquetWriter, storable
from connectors.tables.iceberg import load_catalog, reading_iceberg


@dataclass(frozen=True)
class IcebergExport(Export):
    """See :class:`connectors.tables.exporting.Export`. The edition stands in the snapshot's summary."""

    format = "iceberg"

    def held(self, edition: Edition) -> str:
        """See :class:`Export`."""
        with reading_iceberg(self.path):
            catalog = self._catalog()
            if not catalog.table_exists(self.path):
                return ""
            snapshots = catalog.load_table(self.path).snapshots()
        for snapshot in sorted(snapshots, key=lambda found: found.timestamp_ms, reverse=True):
            written = snapshot.summary and snapshot.summary.additional_properties.get(CONTENT)
            if written == edition.content:
                return f"snapshot {snapshot.snapshot_id}"
            if written and self.mode == "overwrite":
                return ""
        return ""

    def begin(self, schema: pa.Schema, edition: Edition) -> Begun:
        """See :class:`Export`. Raises ConnectorError for a partitioned table too."""
        wanted = storable(schema, small_integers=False)
        with reading_iceberg(self.path):
            catalog = self._catalog()
            exists = catalog.table_exists(self.path)
            self.check_absent(exists)
            if exists:
                table = catalog.load_table(self.path)
                if not table.spec().is_unpartitioned():
                    raise ConnectorError(f"{self.path} is partitioned. Export to a table that is not.")
                there = plain(self.path, table.schema().as_arrow())
                self.check_columns(there, wanted)
                wanted = there
                new, folder = None, f"{table.location()}/data"
            else:
                catalog.create_namespace_if_not_exists(self.path.rpartition(".")[0])
                new = catalog.create_table_transaction(self.path, wanted)
                folder = f"{new.table_metadata.location}/data"
        return Begun(ParquetWriter(folder, wanted, edition), partial(self._commit, new, folder, edition))

    def _catalog(self) -> Any:
        return load_catalog(self.catalog or "default")

    def _commit(self, new: Any, folder: str, edition: Edition, files: Sequence[dict[str, Any]]) -> str:
        """Add the files; ``new`` is the transaction that makes the table, None where it is there."""
        with reading_iceberg(self.path):
            transaction = new or self._catalog().load_table(self.path).transaction()
            if new is None and self.mode == "overwrite":
                everything = library("pyiceberg.expressions", "iceberg").AlwaysTrue()
                transaction.delete(everything, snapshot_properties=edition.properties)
            paths = [f"{folder}/{file['name']}" for file in files]
            transaction.add_files(paths, snapshot_properties=edition.properties)
            table = transaction.commit_transaction()
        return f"snapshot {table.current_snapshot().snapshot_id}"
