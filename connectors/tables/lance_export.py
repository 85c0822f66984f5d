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
from connectors.tables.exporting import CONTENT, Begun, Edition, Export, fitted


@dataclass(frozen=True)
class LanceWriter:
    """Writes parts as fragments."""

    path: str
    schema: pa.Schema
    mode: str

    def __call__(self, table: pa.Table, number: int) -> list[str]:
        """The fragments as JSON."""
        write = library("lance.fragment", "lance").write_fragments
        found = write(fitted(table, self.schema), self.path, schema=self.schema, mode=self.mode)
        return [json.dumps(fragment.to_json()) for fragment in found]


@dataclass(frozen=True)
class LanceExport(Export):
    """See :class:`connectors.tables.exporting.Export`. The edition stands in the transaction's properties."""

    format = "lance"

    def held(self, edition: Edition) -> str:
        """See :class:`Export`."""
        dataset = self._dataset()
        if dataset is None:
            return ""
        newest, oldest = dataset.version, min(entry["version"] for entry in dataset.versions())
        for version in range(newest, oldest - 1, -1):
            found = dataset.read_transaction(version)
            written = (found.transaction_properties or {}).get(CONTENT) if found else None
            if written == edition.content:
                return f"version {version}"
            if written is not None and self.mode == "overwrite":
                return ""
        return ""

    def begin(self, schema: pa.Schema, edition: Edition) -> Begun:
        """See :class:`Export`."""
        dataset = self._dataset()
        self.check_absent(dataset is not None)
        append = dataset is not None and self.mode == "append"
        wanted = pa.schema([_storable(field) for field in schema])
        if append:
            self.check_columns(dataset.schema, wanted)
            wanted = pa.schema([dataset.schema.field(name) for name in dataset.schema.names])
        commit = partial(_commit, self.path, append, dataset and dataset.version, wanted, edition)
        mode = "create" if dataset is None else self.mode
        return Begun(LanceWriter(self.path, wanted, mode), commit)

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


def _commit(
    path: str,
    append: bool,
    version: int | None,
    schema: pa.Schema,
    edition: Edition,
    records: Sequence[list[str]],
) -> str:
    lance, fragment = library("lance", "lance"), library("lance.fragment", "lance")
    found = [fragment.FragmentMetadata.from_json(record) for record in chain.from_iterable(records)]
    work = lance.LanceOperation.Append(found) if append else lance.LanceOperation.Overwrite(schema, found)
    transaction = lance.Transaction(version or 0, work, transaction_properties=edition.properties)
    try:
        dataset = lance.LanceDataset.commit(path, transaction)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConnectorError(f"{path} did not take the version: {' '.join(str(error).split())}") from error
    return f"version {dataset.version}"
