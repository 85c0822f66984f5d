"""A folder of Parquet files to write to: one folder a version, marked once it is whole."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.storage import ObjectPath, Place, place_of, remove_tree, write_whole
from connectors.tables.exporting import Begun, Edition, Export, ParquetWriter, Taken
from connectors.tables.legacy import LEGACY_RECORD, content_of, version_of

RECORD = "_rowsieve.json"
"""Readers leave out names that begin with an underscore."""


@dataclass(frozen=True)
class ParquetExport(Export):
    """See :class:`connectors.tables.exporting.Export`. The edition stands in ``_rowsieve.json``.

    A local folder is renamed in whole. An object store cannot do that: there the record is put last, under
    the condition that none is there, and a version without it is unfinished.
    """

    format = "parquet"

    def held(self, edition: Edition) -> str:
        """See :class:`Export`."""
        for name in (RECORD, LEGACY_RECORD):
            try:
                found = json.loads((self._folder(edition) / name).read_text("utf-8"))
            except OSError:
                continue
            same = (version_of(found), content_of(found)) == (edition.version, edition.content)
            return f"folder {edition.version}" if same else ""
        return ""

    def begin(self, schema: pa.Schema, edition: Edition) -> Begun:
        """See :class:`Export`. Raises ConnectorError for mode ``overwrite`` too."""
        if self.mode == "overwrite":
            raise ConnectorError(
                f"{self.path}: Parquet files cannot be replaced all at once. Export with mode create or "
                f"append, or to delta, iceberg or lance."
            )
        there = _names(place_of(self.path)) - {edition.version}
        self.check_absent(any(not name.startswith(("_", ".")) for name in there))
        target = self._folder(edition)
        if isinstance(target, Path):
            staged = target.with_name(f"_{edition.version}.{uuid.uuid4().hex}")
            return Begun(ParquetWriter(staged, schema, edition), partial(self._rename, staged, edition))
        if any(not name.startswith(edition.stem) for name in _names(target)):
            raise ConnectorError(f"{target} holds files of another export. Remove them.")
        return Begun(ParquetWriter(target, schema, edition), partial(self._mark, target, edition))

    def _folder(self, edition: Edition) -> Place:
        return place_of(self.path) / edition.version

    def _rename(self, staged: Path, edition: Edition, files: Sequence[dict[str, Any]]) -> Taken:
        known, target = self.held(edition), staged.with_name(edition.version)
        try:
            if not known:
                write_whole(staged / RECORD, json.dumps(edition.properties).encode())
                staged.rename(target)
        except OSError as error:
            known = self.held(edition)
            if not known:
                raise ConnectorError(f"{target}: {error.strerror}. Remove it.") from error
        for rest in staged.parent.glob(f"_{edition.version}.*"):  # of exports that died or came too late
            remove_tree(rest)
        return Taken(known or f"folder {edition.version}", written=not known)

    def _mark(self, target: ObjectPath, edition: Edition, files: Sequence[dict[str, Any]]) -> Taken:
        try:
            (target / RECORD).create(json.dumps(edition.properties).encode())
        except FileExistsError as error:
            known = self.held(edition)
            if not known:
                raise ConnectorError(f"{target} holds another version. Remove it.") from error
            return Taken(known, written=False)
        return Taken(f"folder {edition.version}", written=True)


def _names(folder: Place) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
