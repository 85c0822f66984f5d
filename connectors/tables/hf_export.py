"""A dataset folder of the Hugging Face hub to write to: a file for each part and split, and the card."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from glob import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError
from connectors.sink import write_parquet
from connectors.storage import make_folder, place_of, remove_tree, write_whole
from connectors.tables.export import (
    CommitConflictError,
    CommitResult,
    Export,
    PendingExport,
    VersionContent,
    VersionTag,
    fitted,
    read_record,
    storable,
)
from connectors.tables.legacy import content_of, version_of
from connectors.tables.staging import remove_abandoned, replace_folder, staged_name

RECORD, CARD, DATA = "_rowsieve.json", "README.md", "data"
ALL = "all"
"""The split of versions that have no column for it."""
SPLIT = re.compile(r"[A-Za-z0-9_]{1,100}")
"""Names of splits, which become parts of names of files: others may have changed the version."""
FILE = re.compile(rf"{SPLIT.pattern}-\d{{5,}}\.parquet")


@dataclass(frozen=True)
class HfExport(Export):
    """Exports a version to a local folder that ``datasets.load_dataset`` opens and ``hf upload`` pushes.

    The folder holds one version: ``data/<split>-<part>.parquet``, the card ``README.md`` and the tag in
    ``_rowsieve.json``. It is written beside its place and put there as a whole.
    """

    format = "hf"

    def committed_state(self, tag: VersionTag) -> str:
        """Return the folder if it holds ``tag`` with the same content, or an empty text."""
        found = read_record(Path(self.path), RECORD)
        if found is None:
            return ""
        same = (version_of(found), content_of(found)) == (tag.version, tag.content)
        return f"folder {tag.version}" if same else ""

    def check_absent(self, exists: bool) -> None:
        """Raise ConnectorError if the folder is there and ``mode`` is to create it."""
        if exists and self.mode == "create":
            raise ConnectorError(
                f"{self.path} is there already. Export with mode overwrite, or to another folder."
            )

    def start_export(
        self, schema: pa.Schema, tag: VersionTag, content: VersionContent | None = None
    ) -> PendingExport:
        """Check the folder and prepare the writer.

        Raises ConnectorError for a place that is not a local folder, for mode ``append``, for a folder that
        holds other files, and for columns that ``datasets`` cannot read.
        """
        folder = place_of(self.path)
        if not isinstance(folder, Path):
            raise ConnectorError(f"{self.path}: a dataset folder is local. Export to a folder and push it.")
        if self.mode == "append":
            raise ConnectorError(
                f"{self.path}: a dataset folder holds one version. Export with mode create or overwrite."
            )
        _check_readable(schema)
        _check_own(folder)
        self.check_absent(bool(_names(folder)))
        staged = folder.with_name(staged_name(f"{folder.name}.{tag.version}"))
        split = content.split if content else None
        if split and split not in schema.names:
            raise ConnectorError(f"the version has no column {split!r} for its splits. Publish it again.")
        names = tuple(content.classes()) if content and content.label in schema.names else ()
        label = str(content.label) if content and names else ""
        writer = SplitWriter(staged, storable(schema, "hf"), split, label, names)
        return PendingExport(writer, partial(self._commit, staged, tag, content))

    def _commit(
        self, staged: Path, tag: VersionTag, content: VersionContent | None, parts: Sequence[Counter[str]]
    ) -> CommitResult:
        """Write the card and the tag, then put the folder in place."""
        known, folder = self.committed_state(tag), Path(self.path)
        if not known:
            splits = sum(parts, Counter[str]())
            if content:
                write_whole(
                    staged / CARD, content.card({name: f"{DATA}/{name}-*.parquet" for name in splits})
                )
            write_whole(staged / RECORD, json.dumps(tag.properties).encode())
            self._put(staged, folder)
        for rest in folder.parent.glob(f"_{escape(folder.name)}.{tag.version}.*"):
            remove_tree(rest)  # of this export, or of one that died
        remove_abandoned(folder.parent, f"{folder.name}.")
        return CommitResult(known or f"folder {tag.version}", written=not known)

    def _put(self, staged: Path, folder: Path) -> None:
        """Rename the staged folder, or for mode ``overwrite`` put it in the place of one that is there.

        Raises CommitConflictError where another export has put its folder there meanwhile.
        """
        try:
            if self.mode == "overwrite" and folder.exists():
                _check_own(folder)
                replace_folder(staged, folder)
            else:
                staged.rename(folder)
        except OSError as error:
            self.check_absent(folder.exists())
            raise CommitConflictError(f"{folder}: {error.strerror}") from error


@dataclass(frozen=True)
class SplitWriter:
    """Writes the rows of each split of a part into a Parquet file of their own.

    ``names`` are the values of the column ``label``, which is written as their numbers: with the feature in
    the file's metadata, ``datasets`` reads it as a ClassLabel. Without names it is written as it is.
    """

    folder: Path
    schema: pa.Schema
    split: str | None
    label: str = ""
    names: tuple[str, ...] = ()

    def __call__(self, table: pa.Table, number: int) -> Counter[str]:
        """Return the number of rows of each split."""
        make_folder(self.folder / DATA)
        rows = fitted(table, self.schema)
        counts = Counter(rows[self.split].to_pylist()) if self.split else Counter({ALL: len(rows)})
        if strange := [name for name in counts if not (name and SPLIT.fullmatch(name))]:
            raise ConnectorError(
                f"the column {self.split!r} holds {str(strange[0])[:60]!r}, which is not a name of a split: "
                "letters, digits and '_'. The version was changed, or not written by a run: publish again."
            )
        rows = self._numbered(rows)
        for name in sorted(counts):
            part = rows.filter(pc.equal(rows[self.split], name)) if self.split else rows
            write_parquet(
                part, self.folder / DATA / f"{name}-{number:05d}.parquet", metadata=self._metadata()
            )
        return counts

    def _numbered(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the number of each label in place of the label."""
        if not self.names:
            return rows
        place = rows.schema.get_field_index(self.label)
        numbers = pc.index_in(rows[self.label], pa.array(self.names, rows[self.label].type), skip_nulls=True)
        return rows.set_column(place, self.label, numbers.cast(pa.int64()))

    def _metadata(self) -> dict[str, str] | None:
        """Return the metadata by which ``datasets`` knows the features of a file."""
        feature = {"names": list(self.names), "_type": "ClassLabel"}
        features = {"info": {"features": {self.label: feature}}}
        return {"huggingface": json.dumps(features, ensure_ascii=False)} if self.names else None


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def _check_own(folder: Path) -> None:
    """Raise ConnectorError for a folder that holds anything but an export, which alone may be replaced."""
    names = _names(folder)
    strange = sorted(names - {RECORD, CARD, DATA})
    strange += sorted(f"{DATA}/{name}" for name in _names(folder / DATA) if not FILE.fullmatch(name))
    if names and read_record(folder, RECORD) is None:
        strange = strange or sorted(names)
    if strange:
        raise ConnectorError(
            f"{folder} holds files that are not of an export: {', '.join(strange[:5])}. Export to a folder "
            "of its own."
        )


def _check_readable(schema: pa.Schema) -> None:
    """Raise ConnectorError for a column that ``datasets`` has no feature for."""
    for field in schema:
        if "map<" in str(field.type):
            raise ConnectorError(
                f"column {field.name!r} has type {field.type}, which Hugging Face's datasets cannot "
                "read. Leave it out with source.exclude, or export to parquet."
            )
