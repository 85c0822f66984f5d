"""Contract of exports to other tables: workers write files, and one commit makes all of them visible."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

import pyarrow as pa

from connectors.base import ConnectorError
from connectors.column_names import check_same_names
from connectors.foundation.json_text import parse_json_text
from connectors.schema import is_list
from connectors.sink import write_parquet
from connectors.storage import Place, make_folder, place_of, read_whole
from connectors.tables.common import library, location
from connectors.tables.legacy import CONTENT, VERSION

Format = Literal["delta", "hf", "iceberg", "lance", "parquet"]
Mode = Literal["create", "append", "overwrite"]
FILE_ENDINGS = frozenset({".csv", ".tsv", ".txt", ".json", ".jsonl", ".xlsx"})
"""Endings of paths that promise a file of another format."""
LARGEST_PRECISION = 38
"""Digits of a decimal number in Delta and Iceberg."""
TRIES = 20
"""Attempts to commit while other writers change the table."""

KINDS = {
    "delta": ("deltalake", "DeltaExport"),
    "hf": ("pyarrow", "HfExport"),
    "iceberg": ("pyiceberg", "IcebergExport"),
    "lance": ("lance", "LanceExport"),
    "parquet": ("pyarrow", "ParquetExport"),
}


@dataclass(frozen=True)
class VersionTag:
    """Name and digest of a version, which a table keeps in its own metadata."""

    version: str
    content: str

    @property
    def properties(self) -> dict[str, str]:
        """The tag as key-value metadata."""
        return {VERSION: self.version, CONTENT: self.content}

    @property
    def stem(self) -> str:
        """Beginning of the names of all data files of the version."""
        return f"rowsieve-{self.content}-"

    def file(self, number: int) -> str:
        """Return the name of a data file: the same in another attempt, which then replaces it."""
        return f"{self.stem}{number:05d}.parquet"


MAX_RECORD_BYTES = 4096
"""Largest record that is read."""


def read_record(folder: Place, name: str) -> dict[str, Any] | None:
    """Return the record with a version's tag that an export left in its folder; None where there is none.

    Others may write to the folder. Raises ConnectorError for a record of another form, a link and a pipe.
    """
    try:
        found = parse_json_text(read_whole(folder / name, root=folder, max_bytes=MAX_RECORD_BYTES))
    except OSError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConnectorError(
            f"{folder / name} is not a record of an export: it is damaged or forged. Remove it."
        )
    return found


@dataclass(frozen=True)
class VersionContent:
    """Facts about a version that a folder holds for readers who do not have its manifest."""

    split: str | None
    """The column with the split of each row."""
    card: Callable[[Mapping[str, str]], bytes]
    """Makes the dataset card from a pattern of data files for each split."""
    label: str | None = None
    """The column with the class of each row, if its values are texts."""
    classes: Callable[[], Sequence[str]] = tuple
    """Returns all values of the label, in the order of the classes; for formats that number them."""


class CommitConflictError(Exception):
    """Another writer changed the table after its history was read; the caller tries again."""


@dataclass(frozen=True)
class CommitResult:
    """The table's name for the state that holds a version; ``written`` is False if another commit made it."""

    state: str
    written: bool


@dataclass(frozen=True)
class PendingExport:
    """An export in progress. Readers see nothing of it until ``commit`` returns."""

    write: Callable[[pa.Table, int], Any]
    """Writes part ``number`` and returns a small record. Picklable; runs on workers."""
    attempt: Callable[[Sequence[Any]], CommitResult]
    """Takes the records in order, in the process that started the export. Reads the history and commits on
    the very state that it read. Raises CommitConflictError where that is no longer the newest state, and
    ConnectorError."""

    def commit(self, records: Sequence[Any]) -> CommitResult:
        """Make all of it visible, unless another export of the tag has. Raises ConnectorError."""
        for tried in range(TRIES):
            try:
                return self.attempt(records)
            except CommitConflictError as error:
                last = error
            time.sleep(random.uniform(0, 0.1 * 2 ** min(tried, 5)))
        raise ConnectorError(
            f"{last}. {TRIES} commits failed, as other writers were faster. Run again when fewer are writing."
        ) from last


@dataclass(frozen=True)
class Export(ABC):
    """A table to write to. ``path`` is absolute or a URI, or a name in a catalog."""

    path: str
    mode: Mode
    catalog: str | dict[str, str] | None = None

    format: ClassVar[Format]

    @abstractmethod
    def committed_state(self, tag: VersionTag) -> str:
        """Return the table's name for the state that holds this version already; empty if none does.

        With ``overwrite`` only the tag written last counts: an older one may be wanted back.
        """

    @abstractmethod
    def start_export(
        self, schema: pa.Schema, tag: VersionTag, content: VersionContent | None = None
    ) -> PendingExport:
        """Start an export of rows with this schema. Raises ConnectorError if the table cannot take them.

        ``content`` is for formats without metadata of their own; tables do not need it.
        """

    def check_absent(self, exists: bool) -> None:
        """Raise ConnectorError if the table exists and ``mode`` is to create it."""
        if exists and self.mode == "create":
            raise ConnectorError(
                f"{self.path} is there already. Export with mode append or overwrite, or to another place."
            )

    def check_links(self, place: str = "") -> None:
        """Raise ConnectorError where a folder of an existing local table is a link that leads out of it.

        Others may write to the table; behind the link, files would be written with the rights of this run.
        ``place`` is the table's folder; empty: ``path``.
        """
        folder = place_of(place or self.path)
        if not isinstance(folder, Path) or not folder.is_dir():
            return
        inside = folder.resolve()
        for entry in folder.iterdir():
            if entry.is_symlink() and not entry.resolve().is_relative_to(inside):
                raise ConnectorError(
                    f"{entry} is a link that leads out of the table. Nothing is written behind it: find out "
                    f"who put it there, and put the folder back, or export to another place."
                )

    def check_columns(self, existing: pa.Schema, schema: pa.Schema) -> None:
        """Raise ConnectorError unless an existing table has the columns of ``schema``."""
        check_same_names("The version", schema.names, self.path, existing.names)

    def check_unchanged(self, now: object, at_start: object) -> None:
        """Raise ConnectorError if the table is no longer as at the start of the export, before the commit."""
        if now != at_start:
            raise ConnectorError(
                f"{self.path} was made or got other columns while the version was written. Run again."
            )


def open_export(
    format: Format, path: str, mode: Mode, catalog: str | dict[str, str] | None = None, root: str = ""
) -> Export:
    """Return a table to write to; relative local paths start at ``root`` or the working directory.

    Opens nothing, but imports the format's library. Raises ConnectorError where it is not installed, for a
    ``catalog`` with another format than ``iceberg``, for properties of one that a recipe may not set, and for
    a path that ends as a file of another format does.
    """
    if (format == "iceberg") != (catalog is not None):
        fix = "needs the key catalog" if format == "iceberg" else "knows no catalog: remove that key"
        raise ConnectorError(f"output.export: the format {format} {fix}.")
    needs, name = KINDS[format]
    library(needs, format)
    if isinstance(catalog, dict):
        from connectors.tables.iceberg_checks import check_properties  # imports what only Iceberg needs

        check_properties(catalog, "output.export.catalog")
    if (ending := PurePosixPath(path).suffix.lower()) in FILE_ENDINGS and catalog is None:
        raise ConnectorError(
            f"output.export: {path}: the format {format} makes a folder, not a file {ending}. Give a path "
            f"without this ending; for {ending[1:]}, read the folder with pandas and write it from there."
        )
    kind: type[Export] = getattr(import_module(f"connectors.tables.{format}_export"), name)
    where = path if catalog is not None else location(path, root, "output.export")
    if format in ("delta", "parquet"):
        place_of(where)  # its data files go there
    return kind(where, mode, catalog)


@dataclass(frozen=True)
class ParquetWriter:
    """Writes parts as Parquet files of a folder, each whole or not there."""

    folder: str | Place
    schema: pa.Schema
    tag: VersionTag

    def __call__(self, table: pa.Table, number: int) -> dict[str, Any]:
        """Return the name, rows and bytes of the file."""
        name = self.tag.file(number)
        place = place_of(self.folder)
        make_folder(place)
        written = write_parquet(fitted(table, self.schema), place / name)
        return {"name": name, "rows": table.num_rows, "bytes": written.n_bytes}


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of ``schema`` with its types. Raises ConnectorError for values that do not fit."""
    columns = [_fitted(table[field.name], field) for field in schema]
    return pa.table(columns, schema=schema)


def _fitted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        if column.null_count and not field.nullable:
            raise pa.ArrowInvalid("a value is missing, and the table takes none")
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise ConnectorError(
            f"The column {field.name!r} cannot be exported: its values of {column.type} do not fit "
            f"{field.type}, the type of the table: {str(error).splitlines()[0].rstrip('. ')}. Change the "
            f"values at the source, leave the column out with source.columns, or export to another table or "
            f"format."
        ) from error


def unstorable(path: str, field: pa.Field, kind: str) -> ConnectorError:
    """Return the error of a column whose type a kind of table lacks."""
    return ConnectorError(
        f"{path}: the column {field.name!r} has type {field.type}, which {kind} tables cannot hold. Leave it "
        f"out with source.columns, write it as text or as a number at the source, or export to parquet."
    )


def storable(schema: pa.Schema, format: Format) -> pa.Schema:
    """Return the schema in types that tables of a format hold: no dictionaries, fixed lengths or unsigned
    numbers.

    Delta and Iceberg have no zones but UTC, so that times are the same instants there. Delta has no times of
    day: these become texts.
    """
    return pa.schema([pa.field(field.name, _storable(field.type, format)) for field in schema])


def _storable(kind: pa.DataType, format: Format) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _storable(kind.value_type, format)
    if is_list(kind):
        return pa.list_(_storable(kind.value_type, format))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _storable(field.type, format)) for field in kind])
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz if kind.tz is None or format == "hf" else "UTC")
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
        pa.float16(): pa.float32(),
        pa.null(): pa.string(),
    }
    return _of_lakehouse(wider.get(kind, kind), format) if format != "hf" else wider.get(kind, kind)


def _of_lakehouse(kind: pa.DataType, format: Format) -> pa.DataType:
    """Return the type of Delta or Iceberg for values that Parquet holds in more ways."""
    if pa.types.is_time(kind):
        return pa.time64("us") if format == "iceberg" else pa.string()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_decimal256(kind) and kind.precision <= LARGEST_PRECISION:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.int32() if format == "iceberg" and kind in (pa.int8(), pa.int16()) else kind
