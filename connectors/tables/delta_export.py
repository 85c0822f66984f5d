"""Delta tables to write to: data files, then one entry in the log."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.tables.common import library, plain
from connectors.tables.delta_log import check_log
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
from connectors.tables.legacy import application_names, content_of

ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
"""A percent-encoded byte of a URI."""


@dataclass(frozen=True)
class DeltaExport(Export):
    """Exports versions to a Delta table. The version tag stands in the commit info.

    It is also an application transaction, which Delta keeps when its log is cleaned.
    """

    format = "delta"

    def __post_init__(self) -> None:
        """Raise ConnectorError for a local path with ``%20`` or the like, which the library decodes."""
        where = unquote(self.path.removeprefix("file://")) if self.path.startswith("file://") else self.path
        escape = ESCAPE.search(where) if "://" not in where else None
        if escape is not None:
            raise ConnectorError(
                f"{self.path}: the Delta library reads {escape.group()} in the name of a folder as the "
                f"character {unquote(escape.group())!r}, and would not find the table again. Export to a "
                f"folder without it."
            )

    def committed_state(self, tag: VersionTag) -> str:
        """Return the table's version that holds ``tag``, or an empty text."""
        return self._find(self._table(), tag)

    def _find(self, table: Any, tag: VersionTag) -> str:
        if table is None:
            return ""
        commits = [commit for commit in table.history() if content_of(commit) is not None]  # newest first
        if self.mode == "overwrite":
            commits = commits[:1]
        for commit in commits:
            if content_of(commit) == tag.content:
                return f"version {commit['version']}"
        names = application_names(tag.content)
        known = any(table.transaction_version(name) is not None for name in names)
        return "a version that is no longer in the log" if known and self.mode != "overwrite" else ""

    def start_export(
        self, schema: pa.Schema, tag: VersionTag, content: VersionContent | None = None
    ) -> PendingExport:
        """Check the table and prepare the writer. Raises ConnectorError for a partitioned table too."""
        self.check_links()
        wanted = self._fit(self._table(), storable(schema, "delta"))
        self._stored(wanted)
        return PendingExport(ParquetWriter(self.path, wanted, tag), partial(self._commit, wanted, tag))

    def _fit(self, table: Any, wanted: pa.Schema) -> pa.Schema:
        """Return the types that the table has. Raises ConnectorError where it cannot take the columns."""
        self.check_absent(table is not None)
        if table is None:
            return wanted
        self._check_plain(table)
        columns = plain(self.path, pa.schema(table.schema().to_arrow()))
        self.check_columns(columns, wanted)
        return columns

    def _commit(self, schema: pa.Schema, tag: VersionTag, files: Sequence[dict[str, Any]]) -> CommitResult:
        """Try to commit once. Delta refuses an application's second transaction on the same version."""
        deltalake, transaction = library("deltalake", "delta"), library("deltalake.transaction", "delta")
        table = self._table()
        if known := self._find(table, tag):
            return CommitResult(known, written=False)
        self.check_unchanged(self._fit(table, schema), schema)
        properties = deltalake.CommitProperties(
            custom_metadata=tag.properties,
            app_transactions=[deltalake.Transaction(application_names(tag.content)[0], 1)],
            max_commit_retries=0,  # `PendingExport.commit` tries again, on the state that is the newest then
        )
        actions, kind = _actions(transaction, files), self._stored(schema)
        try:
            if table is None:
                transaction.create_table_with_add_actions(
                    self.path, kind, actions, commit_properties=properties
                )
            else:
                mode = "overwrite" if self.mode == "overwrite" else "append"
                table.create_write_transaction(actions, mode, kind, commit_properties=properties)
        except deltalake.exceptions.DeltaError as error:
            text = f"{self.path} did not take the version: {' '.join(str(error).split())}"
            now = self._table()
            moved = now is not None and (table is None or now.version() != table.version())
            raise (CommitConflictError if moved else ConnectorError)(text) from error
        return CommitResult(f"version {deltalake.DeltaTable(self.path).version()}", written=True)

    def _stored(self, schema: pa.Schema) -> Any:
        """Return a schema in Delta's terms. Raises ConnectorError for a type that Delta lacks."""
        kind = library("deltalake", "delta").Schema
        for field in schema:
            try:
                kind.from_arrow(pa.schema([field]))
            except Exception as error:  # the library raises a bare one, with a backtrace in its text
                raise unstorable(self.path, field, "Delta") from error
        return kind.from_arrow(schema)

    def _check_plain(self, table: Any) -> None:
        """Raise ConnectorError for a table with partitions, renamed columns or constraints."""
        settings = table.metadata().configuration
        mapped = settings.get("delta.columnMapping.mode", "none") != "none"
        bound = any(key.startswith("delta.constraints.") for key in settings)
        if table.metadata().partition_columns or mapped or bound:
            kind = "renames its columns" if mapped else "has constraints" if bound else "is partitioned"
            raise ConnectorError(f"{self.path} {kind}. Export to another table.")

    def _table(self) -> Any:
        deltalake = library("deltalake", "delta")
        check_log(self.path, "output.export")
        return deltalake.DeltaTable(self.path) if deltalake.DeltaTable.is_deltatable(self.path) else None


def _actions(transaction: Any, files: Sequence[dict[str, Any]]) -> list[Any]:
    now = int(time.time() * 1000)
    return [
        transaction.AddAction(
            path=file["name"],
            size=file["bytes"],
            partition_values={},
            modification_time=now,
            data_change=True,
            stats=json.dumps({"numRecords": file["rows"]}),
        )
        for file in files
    ]
