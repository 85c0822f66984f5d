"""A folder of Parquet files to write to: one folder a version, marked once it is whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.storage import ObjectPath, Place, place_of, remove_tree, write_whole
from connectors.tables.export import (
    CommitResult,
    Export,
    ParquetWriter,
    PendingExport,
    VersionContent,
    VersionTag,
    read_record,
)
from connectors.tables.legacy import LEGACY_RECORD, content_of, version_of
from connectors.tables.staging import remove_abandoned, staged_name

RECORD = "_rowsieve.json"
"""Readers leave out names that begin with an underscore."""


@dataclass(frozen=True)
class ParquetExport(Export):
    """Exports versions to folders of Parquet files. The version tag stands in ``_rowsieve.json``.

    A local folder is renamed in whole. An object store cannot do that: there the record is put last, under
    the condition that none is there, and a version without it is unfinished.
    """

    format = "parquet"

    def committed_state(self, tag: VersionTag) -> str:
        """Return the folder that holds ``tag`` with the same content, or an empty text."""
        for name in (RECORD, LEGACY_RECORD):
            found = read_record(self._folder(tag), name)
            if found is None:
                continue
            same = (version_of(found), content_of(found)) == (tag.version, tag.content)
            return f"folder {tag.version}" if same else ""
        return ""

    def start_export(
        self, schema: pa.Schema, tag: VersionTag, content: VersionContent | None = None
    ) -> PendingExport:
        """Check the folder and prepare the writer. Raises ConnectorError, also for mode ``overwrite``."""
        if self.mode == "overwrite":
            raise ConnectorError(
                f"{self.path}: Parquet files cannot be replaced all at once. Export with mode create or "
                f"append, or to delta, iceberg or lance."
            )
        entries = _names(place_of(self.path)) - {tag.version}
        self.check_absent(any(not name.startswith(("_", ".")) for name in entries))
        target = self._folder(tag)
        if isinstance(target, Path):
            staged = target.with_name(staged_name(tag.version))
            return PendingExport(ParquetWriter(staged, schema, tag), partial(self._rename, staged, tag))
        if strange := sorted(name for name in _names(target) if not name.startswith(tag.stem)):
            raise ConnectorError(
                f"{target} holds files that are not of this export, such as {strange[0]}. Export to another "
                f"place."
            )
        return PendingExport(ParquetWriter(target, schema, tag), partial(self._mark, target, tag))

    def _folder(self, tag: VersionTag) -> Place:
        return place_of(self.path) / tag.version

    def _rename(self, staged: Path, tag: VersionTag, files: Sequence[dict[str, Any]]) -> CommitResult:
        known, target = self.committed_state(tag), staged.with_name(tag.version)
        try:
            if not known:
                write_whole(staged / RECORD, json.dumps(tag.properties).encode())
                staged.rename(target)
        except OSError as error:
            known = self.committed_state(tag)
            if not known:
                raise _failed(target, error.strerror) from error
        for rest in staged.parent.glob(f"_{tag.version}.*"):  # of exports that died or came too late
            remove_tree(rest)
        remove_abandoned(staged.parent)
        return CommitResult(known or f"folder {tag.version}", written=not known)

    def _mark(self, target: ObjectPath, tag: VersionTag, files: Sequence[dict[str, Any]]) -> CommitResult:
        try:
            (target / RECORD).create(json.dumps(tag.properties).encode())
        except FileExistsError as error:
            known = self.committed_state(tag)
            if not known:
                raise _failed(target, "it is there already") from error
            return CommitResult(known, written=False)
        return CommitResult(f"folder {tag.version}", written=True)


def _failed(target: Place, reason: str | None) -> ConnectorError:
    """Return the error of a folder that a version cannot be put into; it may hold something else."""
    if not target.exists():
        return ConnectorError(f"{target}: {reason}. Export to another place.")
    held = "another version of this name" if (target / RECORD).exists() else "files that no export wrote"
    return ConnectorError(f"{target}: {reason}; it holds {held}. Export to another place.")


def _names(folder: Place) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
