"""Records in an output of the tables that hold its versions: ``exported/<version>/<digest>.json``.

:func:`engine.publish.export.export` writes one for each table, so that a withdrawal finds every table,
whether a recipe or the command `rowsieve export` wrote it. The records are untrusted, as everything in a
shared output. They stay where a version is pruned, since the tables still hold it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from connectors.storage import Place
from connectors.tables.export import Export
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.json_files import DamagedFileError, read_json, write_json
from engine.core.redaction import redact
from engine.publish.lineage_facets import catalog_name

FOLDER = "exported"
MAX_TEXT = 4_000
"""Characters of a path, and of a state."""
_Text = Annotated[str, Field(max_length=MAX_TEXT)]


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: str
    format: _Text
    path: _Text
    catalog: _Text
    mode: _Text
    state: _Text
    at: float


@dataclass(frozen=True)
class ExportedTable:
    """A table that a version was exported to.

    Attributes
    ----------
    format, path, catalog
        The table; ``catalog`` is empty except for Iceberg.
    mode
        create, append or overwrite.
    state
        The table's name for its state with the version; empty if the export may not have ended.
    at
        When it was exported last, in seconds since 1970; 0 if an earlier release did it.
    replaced_by
        The version that was written in its place since; empty if none was. ``create`` counts too: it needs a
        place where nothing is, so that whoever used it had removed the table.

    """

    format: str
    path: str
    catalog: str = ""
    mode: str = "create"
    state: str = ""
    at: float = 0.0
    replaced_by: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """The format, path and catalog that tell the table from others."""
        return self.format, self.path, self.catalog

    def __str__(self) -> str:
        return f"{self.format} {self.path}" + (f" in {self.catalog}" if self.catalog else "")


def record_export(output: Place, version: str, table: Export, state: str, *, written: bool) -> None:
    """Keep that a table has a version. Raises OSError.

    Parameters
    ----------
    state
        The table's name for its state with the version; empty before the commit.
    written
        Whether this export writes it. If an earlier one did, the time of that export stays: another version
        may have been written over it since.

    """
    catalog = catalog_name(table.path, table.catalog)[0] if table.catalog else ""
    named = {"format": table.format, "path": redact(table.path), "catalog": redact(catalog)}
    place = output / FOLDER / version / f"{digest(named)}.json"
    at, mode = time.time(), str(table.mode)
    if not written:
        with suppress(InputError, FileNotFoundError):
            earlier = _read(output, version, place)
            at, mode = earlier.at, earlier.mode
    values = named | {"version": version, "mode": mode, "state": state, "at": at}
    write_json(place, values, root=output)


def exported_tables(output: Place, version: str, earlier: Iterable[Any] = ()) -> list[ExportedTable]:
    """Return the tables that a version was exported to, the same table once.

    Parameters
    ----------
    earlier
        Further tables, as objects with ``format`` and ``path``: those of an earlier release's run record.

    Raises
    ------
    InputError
        A record is damaged.

    """
    found = {table.place: table for table in _stored(output, version)}
    for one in earlier:
        table = ExportedTable(str(one["format"]), str(one["path"]), state=str(one.get("state", "")))
        if not any(table.place[:2] == place[:2] for place in found):
            found[table.place] = table
    writers = [(name, table) for name in _recorded_versions(output) for table in _stored(output, name)]
    newest = {
        table.place: name
        for name, table in sorted(writers, key=lambda pair: pair[1].at)
        if table.state and (name == version or table.mode != "append")
    }
    replaced = {place: name for place, name in newest.items() if name != version}
    return [replace(table, replaced_by=replaced.get(place, "")) for place, table in sorted(found.items())]


def _recorded_versions(output: Place) -> list[str]:
    try:
        return sorted(entry.name for entry in (output / FOLDER).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _stored(output: Place, version: str) -> list[ExportedTable]:
    try:
        files: list[Place] = sorted((output / FOLDER / version).iterdir(), key=lambda file: file.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [_read(output, version, file) for file in files if file.name.endswith(".json")]


def _read(output: Place, version: str, file: Place) -> ExportedTable:
    try:
        stored = _Stored.model_validate(read_json(file, root=output))
        if stored.version != version:
            raise ValueError(f"it names the version {stored.version[:60]!r}")
    except (OSError, DamagedFileError, ValidationError, ValueError) as error:
        reason = "it is not such a record" if isinstance(error, ValidationError) else str(error)
        raise InputError(
            f"{file} says which table holds the version {version}, but cannot be read: {reason.rstrip('.')}. "
            "Find the table by other means, and remove the file."
        ) from None
    return ExportedTable(**stored.model_dump(exclude={"version"}))
