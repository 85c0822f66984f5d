"""Replay of quarantined rows, after the source or the function that raised has been repaired."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from connectors.storage import Place
from engine.core.errors import InputError
from engine.core.events import Listener, silent
from engine.core.json_files import write_text
from engine.core.output_layout import output_of, version_folder
from engine.core.redaction import redact
from engine.execution.quarantine import SCHEMA, read_records, with_file
from engine.plan.planner import make_plan
from engine.publish.results import RunResult
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from engine.storage.lease import hold_lease
from engine.storage.manifest import read_manifest
from engine.storage.stores import store_of
from engine.storage.withdrawals import current_version, nothing_current

PLACE = ["file", "row"]
_BLANK, _SIGN = r"[\s\x{a0}\x{3000}\x{200b}-\x{200f}\x{feff}]*", r"[=+\-@\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"
FORMULA = rf"^(?:{_BLANK}{_SIGN}|[\t\r\n])"
"""Beginning of a text that spreadsheets take for a formula."""
NUMBER = r"^[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?$"
"""A text that is a plain number. It is not a formula, whatever sign it begins with."""


@dataclass(frozen=True)
class ReplayResult:
    """The outcome of a replay for the quarantined rows of the version that was current before."""

    result: RunResult
    rows: int
    recovered: int
    """Rows that were quarantined before and no longer are: they are used now, or gone from the source.

    A row is known by its file, which may be renamed, and its place in it, so that deleting rows before it
    makes it another one.
    """
    new: int
    """Rows that are quarantined now and were not before."""


def replay(recipe: Recipe, *, listener: Listener = silent, verbose: bool = False) -> ReplayResult:
    """Run the recipe again with the quarantined rows, and count which of them still are.

    A repaired source has another content and so another plan. A repaired function does not change the plan:
    operators that quarantined rows are computed again under a new fingerprint, in a version of its own. This
    also holds for every further replay. Raises RowsieveError as a run does.
    """
    output = output_of(recipe.output.path)
    before = current_quarantine(output)
    files = _files_of(output, str(current_version(output)))
    plan = make_plan(recipe)
    with hold_lease(output, recipe.name):
        plan.store.replay(
            planned.fingerprint
            for planned in plan.operators
            if any(
                commit.skipped or (commit.quarantined and planned.name != "ingest")
                for commit in plan.store.committed(planned.fingerprint).values()
            )
        )
    result = run(recipe, listener=listener, verbose=verbose)
    then = _places(before, {})
    now = _places(_quarantine_of(output, result.version), _renamed(files, _files_of(output, result.version)))
    return ReplayResult(result, len(then), len(then - now), len(now - then))


def current_quarantine(output: Place) -> pa.Table:
    """Read the quarantined rows of the current version. Raises InputError if nothing is published."""
    version = current_version(output)
    if version is None:
        raise nothing_current(output)
    return _quarantine_of(output, version)


def _quarantine_of(output: Place, version: str) -> pa.Table:
    """Read the quarantined rows of a version, with the names that their files have in it."""
    manifest = read_manifest(version_folder(output, version))
    store = store_of(output)
    paths = [shard["path"] for shard in manifest["source"]["shards"]]
    tables = [SCHEMA.empty_table()]
    for entry in manifest["operators"]:
        for place in _sorted(store.folder(entry["fingerprint"])):
            records, shard = read_records(place), int(place.stem.removeprefix("quarantine-"))
            tables.append(with_file(records, paths[shard]) if shard < len(paths) else records)
    return pa.concat_tables(tables)


def _files_of(output: Place, version: str) -> dict[str, str]:
    """Return the identity of the content of each file of a version, by its name in the quarantine."""
    files = read_manifest(version_folder(output, version))["source"]["files"]
    return {redact(path): str(identity) for path, identity in files.items()}


def _renamed(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the earlier name of each file that has another one now and the same content."""
    names = {identity: path for path, identity in then.items() if now.get(path) != identity}
    return {
        path: names[identity]
        for path, identity in now.items()
        if then.get(path) != identity and identity in names
    }


def _places(table: pa.Table, renamed: Mapping[str, str]) -> set[tuple[str, int]]:
    """Return the file and the place in it of each row, under the earlier names of renamed files."""
    rows = table.select(PLACE).to_pylist()
    return {(renamed.get(row["file"], row["file"]), row["row"]) for row in rows}


def _sorted(folder: Place) -> list[Place]:
    return sorted(folder.glob("quarantine-*.parquet"), key=lambda path: path.name)


def export_rows(table: pa.Table, path: Path) -> None:
    """Write quarantined rows as Parquet, CSV or JSON lines, according to the suffix of the file.

    CSV is made for spreadsheets: see :func:`without_formulas`. The other formats hold the texts as they are.
    Raises InputError for another suffix, or if the file cannot be written.
    """
    try:
        if path.suffix == ".parquet":
            pq.write_table(table, path)
        elif path.suffix == ".csv":
            pv.write_csv(without_formulas(table), path)
        elif path.suffix in (".jsonl", ".ndjson"):
            lines = (json.dumps(row, ensure_ascii=False) for row in table.to_pylist())
            write_text(path, "".join(f"{line}\n" for line in lines))
        else:
            raise InputError(
                f"--to {path}: name it .parquet, .csv or .jsonl; that decides how it is written."
            )
    except OSError as error:
        raise InputError(
            f"--to {path}: cannot be written: {error.strerror or error}. Name a folder that is there."
        ) from None


def without_formulas(table: pa.Table) -> pa.Table:
    """Return a table whose texts no spreadsheet reads as formulas.

    A quarantined value comes from the source as it is, and a spreadsheet computes a text that begins with
    ``=``, ``+``, ``-``, ``@``, their full-width forms, a tab, a carriage return or a line feed; some programs
    first remove blanks and signs without a width. Such a text gets a ``'`` in front, by which
    spreadsheets know a text. Texts that are plain numbers, and columns of other types, stay as they are.

    Examples
    --------
    >>> found = without_formulas(pa.table({"value": ["=1+1", "-1.5", "-1+1", "a=b"], "row": [-1, 2, 3, 4]}))
    >>> found["value"].to_pylist()
    ["'=1+1", '-1.5', "'-1+1", 'a=b']

    """
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = table.column(index)
            number = pc.match_substring_regex(column, NUMBER)
            formula = pc.and_(pc.match_substring_regex(column, FORMULA), pc.invert(number))
            quoted = pc.binary_join_element_wise(
                pa.scalar("'", field.type), column, pa.scalar("", field.type)
            )
            table = table.set_column(index, field, pc.if_else(formula, quoted, column))
    return table
