"""Lance datasets to write to: fragments, then one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.tables.common import library
from connectors.tables.export import (
    CommitConflictError,
    CommitResult,
    Export,
    PendingExport,
    VersionContent,
    VersionTag,
    fitted,
)
from connectors.tables.legacy import content_of


@dataclass(frozen=True)
class LanceWriter:
    """Writes parts as fragments."""

    path: str
    schema: pa.Schema
    mode: str

    def __call__(self, table: pa.Table, number: int) -> list[str]:
        """Return the fragments as JSON."""
        write = library("lance.fragment", "lance").write_fragments
        found = write(fitted(table, self.schema), self.path, schema=self.schema, mode=self.mode)
        return [json.dumps(fragment.to_json()) for fragment in found]


@dataclass(frozen=True)
class LanceExport(Export):
    """Exports versions to a Lance dataset. The version tag stands in the transaction's properties."""

    format = "lance"

    def committed_state(self, tag: VersionTag) -> str:
        """Return the dataset's version that holds ``tag``, or an empty text."""
        return self._find(self._dataset(), tag)

    def _find(self, dataset: Any, tag: VersionTag) -> str:
        if dataset is None:
            return ""
        newest, oldest = dataset.version, min(entry["version"] for entry in dataset.versions())
        for version in range(newest, oldest - 1, -1):
            found = dataset.read_transaction(version)
            written = content_of(found.transaction_properties) if found else None
            if written == tag.content:
                return f"version {version}"
            if written is not None and self.mode == "overwrite":
                return ""
        return ""

    def start_export(
        self, schema: pa.Schema, tag: VersionTag, content: VersionContent | None = None
    ) -> PendingExport:
        """Prepare the writer of fragments and their single commit, after checking mode and columns."""
        self.check_links()
        dataset = self._dataset()
        self.check_absent(dataset is not None)
        adds = self._adds(dataset)
        if dotted := [name for name in schema.names if "." in name]:
            raise ConnectorError(
                f"{self.path}: Lance takes no column with a dot in its name, such as {dotted[0]!r}. Name it "
                f"{dotted[0].replace('.', '_')!r} with source.rename and run again, or export to delta, "
                "iceberg or parquet."
            )
        wanted = pa.schema([_storable(field) for field in schema])
        if adds:
            self.check_columns(dataset.schema, wanted)
            wanted = pa.schema([dataset.schema.field(name) for name in dataset.schema.names])
        mode = "create" if dataset is None else "append" if adds else "overwrite"
        return PendingExport(LanceWriter(self.path, wanted, mode), partial(self._commit, adds, wanted, tag))

    def _adds(self, dataset: Any) -> bool:
        """Return whether there are rows to add to; with none, rows to append replace nothing."""
        return self.mode == "append" and dataset is not None and bool(dataset.get_fragments())

    def _commit(
        self, adds: bool, schema: pa.Schema, tag: VersionTag, records: Sequence[list[str]]
    ) -> CommitResult:
        """Try to commit once.

        Lance lets appends pass each other. This one is therefore an update that leaves one fragment as it is:
        two updates of a fragment conflict. What replaces all rows is refused on any newer version.
        """
        lance, fragment = library("lance", "lance"), library("lance.fragment", "lance")
        refused = library("lance.commit", "lance").CommitConflictError
        dataset = self._dataset()
        if known := self._find(dataset, tag):
            return CommitResult(known, written=False)
        self.check_absent(dataset is not None)
        self.check_unchanged(self._adds(dataset), adds)
        found = [fragment.FragmentMetadata.from_json(record) for record in chain.from_iterable(records)]
        if adds:
            kept = dataset.get_fragments()[0].metadata
            work = lance.LanceOperation.Update(updated_fragments=[kept], new_fragments=found)
        else:
            work = lance.LanceOperation.Overwrite(schema, found)
        version = 0 if dataset is None else dataset.version
        transaction = lance.Transaction(version, work, transaction_properties=tag.properties)
        try:
            done = lance.LanceDataset.commit(self.path, transaction, max_retries=20 if adds else 0)
        except (OSError, ValueError, RuntimeError, refused) as error:
            text = f"{self.path} did not take the version: {' '.join(str(error).split())}"
            now = self._dataset()
            moved = now is not None and now.version != version
            raise (CommitConflictError if moved else ConnectorError)(text) from error
        return CommitResult(f"version {done.version}", written=True)

    def _dataset(self) -> Any:
        lance = library("lance", "lance")
        try:
            return lance.dataset(self.path)
        except ValueError as error:
            if "not found" in str(error).lower():
                return None
            raise ConnectorError(f"{self.path} cannot be opened: {error}") from error


def _storable(field: pa.Field) -> pa.Field:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return pa.field(field.name, kind)
