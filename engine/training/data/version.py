"""Access to a published version by its name, part by part."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.storage import ObjectPath, Place, read_columns
from engine.core.errors import InputError
from engine.core.output_layout import output_of, split_version, version_folder
from engine.storage.manifest import check_parts, read_manifest
from engine.storage.removals import check_there
from engine.storage.state_files import check_state
from engine.storage.stores import store_of
from engine.storage.withdrawals import current_version, nothing_current, withdrawal_of, withdrawn_bases
from operators.base import ROW_ID, SPLIT, ShardInfo
from operators.groups.by_cue import NOT_SPLIT, WRONG_LABELS
from operators.groups.state import RECORD as GROUP_RECORD
from operators.groups.state import read_group_record
from operators.parts.adaptor import NAME as PARTS

_log = logging.getLogger("rowsieve")


@dataclass(frozen=True)
class Version:
    """One immutable version of a published dataset. Picklable."""

    folder: Place
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the version, such as ``v8332abe5d7e9``."""
        return str(self.manifest["version"])

    @property
    def output(self) -> Place:
        """The recipe's output folder; for a version that was copied elsewhere, the folder it lies in."""
        inside = self.folder.parent.name == "versions"
        return self.folder.parent.parent if inside else self.folder.parent

    @property
    def prefix(self) -> str:
        """Prefix of the columns that Rowsieve added. Raises InputError if none is."""
        names = [str(field["name"]) for field in self.manifest["schema"]]
        found = [name.removesuffix(ROW_ID) for name in names if name.endswith(ROW_ID)]
        if not found:
            raise InputError(f"{self.folder / 'manifest.json'} names no column {ROW_ID!r}. Publish again.")
        return found[-1]

    @property
    def undivided_groups(self) -> str:
        """Sentence for a version whose groups are its classes although rows break a shortcut; else empty.

        The worst group says nothing of these rows then, for which the weights are.
        """
        told = next((text for text in self.manifest.get("warnings", ()) if NOT_SPLIT in text), "")
        if not told:
            return ""
        why = told.removeprefix("operators.groups: ")
        return f"the groups are the classes, so that the worst group says nothing of a shortcut: {why}"

    def wrong_labels(self) -> dict[str, float]:
        """Return the share of wrong labels in each group that has some, as the operator `groups` keeps it.

        Empty where no operator has estimated it, or the run store no longer has the state of `groups`.
        """
        known = {entry["name"] for entry in self.manifest["operators"]}
        state = self.reader().stored_state("groups") if "groups" in known else None
        if state is None or not (state / GROUP_RECORD).exists():
            return {}
        return dict(read_group_record(state).get(WRONG_LABELS, {}))

    def reader(self) -> VersionReader:
        """Return a reader of the version's parts, which operators can read as shards."""
        return VersionReader(self.folder, self.manifest)


def root_of(version: Version, folder: Path) -> Path:
    """Return the version's output where a model's folder lies in it, else the folder.

    A model is written without following links beneath this folder; see :mod:`connectors.storage.beneath`.
    """
    output = version.output
    return output if isinstance(output, Path) and folder.is_relative_to(output) else folder


def open_version(dataset: str | Place, *, warn: bool = True) -> Version:
    """Open a version by its folder, or by the recipe's output folder: ``OUTPUT`` or ``OUTPUT@VERSION``.

    Raises InputError if there is none.

    Parameters
    ----------
    warn
        Log a warning if the version was withdrawn; False: records of withdrawals are not read.
    """
    place, name = (dataset, "") if isinstance(dataset, ObjectPath) else split_version(str(dataset))
    folder = output_of(place)
    place = place if isinstance(folder, Path) else folder  # without the keys of the URI
    if (folder / "manifest.json").exists() and not name:
        found = Version(folder, read_manifest(folder))
        if warn:
            _warn_if_withdrawn(folder.parent.parent, folder.name, found.manifest)
        return found
    asked, name = bool(name), name or current_version(folder) or ""
    if not name:
        raise nothing_current(folder, place)
    check_there(folder, name)
    here = version_folder(folder, name)
    found = Version(here, read_manifest(here))
    if warn:
        _warn_if_withdrawn(folder, name if asked else "", found.manifest)
    return found


def _warn_if_withdrawn(output: Place, name: str, manifest: Mapping[str, Any]) -> None:
    """Warn where the version ``name``, if one is asked for, or one that it continues from was withdrawn."""
    withdrawn = withdrawal_of(output, name) if name else None
    if withdrawn:
        _log.warning("The version %s was withdrawn: %s", name, withdrawn.why)
    for base, why in withdrawn_bases(output, manifest).items():
        _log.warning(
            "The version %s continues from %s, which was withdrawn: %s", manifest["version"], base, why
        )


@dataclass(frozen=True)
class VersionReader:
    """Implements ``operators.base.ShardReader`` over a version's parts. Picklable."""

    folder: Place
    manifest: dict[str, Any]
    fitting: bool = False
    """Whether something is learnt from this reader: rows that the run held out are not read."""

    @property
    def shards(self) -> list[ShardInfo]:
        """One shard for each part."""
        shards = self.manifest["source"]["shards"]
        return [ShardInfo(i, s["path"], s["first_row"], s["rows"], 0) for i, s in enumerate(shards)]

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return the same as :meth:`read_source`, as a version has no sidecars."""
        return self.read_source(shard, columns)

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return published columns of all rows of a shard; for a fit, of the rows to learn from, with ids."""
        path = self.folder / self.manifest["parts"][shard]["path"]
        try:
            table = read_columns(path, columns)
        except FileNotFoundError:
            check_parts(self.folder, self.manifest)
            raise
        if not self.fitting or not self.held_out_splits:
            return table
        mine = pa.array(self.held_out(shard))
        if ROW_ID not in columns:
            info = self.shards[shard]
            ids = np.arange(info.first_row, info.first_row + info.n_rows, dtype=np.int64)
            table = table.append_column(ROW_ID, pa.array(ids))
        return table.filter(pc.invert(mine))

    @property
    def held_out_splits(self) -> tuple[str, ...]:
        """Names of the splits from whose rows no operator of the run has learnt."""
        entries = {entry["name"]: entry["params"] for entry in self.manifest["operators"]}
        if entries.get(PARTS, {}).get("draw"):
            return ("validation", "test")
        holdout = self.manifest["source"].get("holdout")
        if holdout is None:
            return ()
        return ("test", "validation") if holdout["validation"] else ("test",)

    def held_out(self, shard: int) -> npt.NDArray[np.bool_]:
        """Return which rows (n,) of a shard no operator of the run has learnt from."""
        path = self.folder / self.manifest["parts"][shard]["path"]
        split = Version(self.folder, self.manifest).prefix + SPLIT
        names = read_columns(path, [split])[split].cast(pa.string())
        found: npt.NDArray[np.bool_] = pc.is_in(names, pa.array(self.held_out_splits, pa.string())).to_numpy()
        return found

    def stored_state(self, operator: str) -> Path | None:
        """Return the folder of an operator's state; None if the output's run store does not have it.

        Raises InputError where the state holds something that must not be read; see ``check_state``.
        """
        entries = {entry["name"]: entry for entry in self.manifest["operators"]}
        store = store_of(self.folder.parent.parent)
        fingerprint = entries[operator]["fingerprint"]
        if store.fitted(fingerprint) is None:
            return None
        folder = store.state(fingerprint)
        check_state(folder)
        return folder

    def stored(self, shard: int, operator: str) -> Place | None:
        """Return the path of an operator's sidecar of a shard; None if the run store does not have it."""
        entries = {entry["name"]: entry for entry in self.manifest["operators"]}
        store = store_of(self.folder.parent.parent)
        path = store.part(entries[operator]["fingerprint"], shard)
        return path if path.with_suffix(".json").exists() else None
