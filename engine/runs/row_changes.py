"""Every row that differs between two versions, as a table with the reason, part by part.

Rows are compared as :mod:`engine.runs.diff` does. The reason of a changed value is what the manifests tell of
the operator that made it: other parameters, another release, or a fit on other rows or other results.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from engine.core.errors import InputError
from engine.runs.row_matching import VALUES, CommonRows, PartReader, match_rows, part_places
from engine.training.version import Version
from operators.arrays import NOISE
from operators.base import GROUP, IS_OUTLIER, SPLIT, WEIGHT

MAKERS = {GROUP: "groups", SPLIT: "split", IS_OUTLIER: "outliers", WEIGHT: "weights"}
"""The operator that makes each value."""
SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("change", pa.string()),
        *((f"{name}_{side}", kind) for name, kind in VALUES.items() for side in ("before", "after")),
        ("reason", pa.string()),
    ]
)
"""``file`` and ``row`` (from 0) say where a row stands in the source; ``change`` is changed, new or gone."""


def write_row_changes(
    before: Version, after: Version, found: Mapping[str, Any], file: Path, *, tolerance: float = 0.01
) -> int:
    """Write the rows that are new, gone or changed as Parquet, and return how many they are.

    One part of each version is in memory at a time. The same versions give the same bytes.

    Parameters
    ----------
    found
        What :func:`engine.runs.diff.diff` returned for the two versions: a row of a group that has only got
        another number has not changed.
    tolerance
        As for ``diff``.

    Raises
    ------
    InputError
        The file cannot be written.

    """
    same = {one["before"]: one["after"] for one in found["groups"] if one["before"] is not None}
    pieces = match_rows(before.manifest, after.manifest)
    sides = (before, after)
    reasons = reasons_of(before.manifest, after.manifest)
    staged, rows = file.with_name(f".{file.name}.{os.getpid()}"), 0
    try:
        with pq.ParquetWriter(staged, SCHEMA) as writer:
            for table in _tables(pieces, sides, same | {NOISE: NOISE}, reasons, tolerance):
                writer.write_table(table)
                rows += table.num_rows
        staged.replace(file)
    except OSError as error:
        raise InputError(
            f"--rows {file} cannot be written: {error.strerror or error}. "
            "Name a file in a folder that exists."
        ) from None
    finally:
        staged.unlink(missing_ok=True)
    return rows


def reasons_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Return for each value why it may differ, by the entries of its operator in two manifests."""
    sides = [{one["name"]: one for one in manifest["operators"]} for manifest in (before, after)]
    return {name: _reason(maker, *(side.get(maker, {}) for side in sides)) for name, maker in MAKERS.items()}


def _reason(operator: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if not then or not now:
        return f"{operator} was not in both recipes"
    keys = sorted({*then["params"], *now["params"]})
    changed = [key for key in keys if then["params"].get(key) != now["params"].get(key)]
    if changed:
        return f"{operator}: other {', '.join(changed)}"
    if then["version"] != now["version"]:
        return f"{operator}: release {then['version']} became {now['version']}"
    if then["fingerprint"] != now["fingerprint"]:
        return f"{operator}: fitted on other rows, or on other results of the operators before it"
    return f"{operator}: other neighbours in the version"


def _tables(
    pieces: Sequence[CommonRows],
    versions: tuple[Version, Version],
    same: Mapping[int, int],
    reasons: Mapping[str, str],
    tolerance: float,
) -> Iterator[pa.Table]:
    """Yield the changed rows in the order of the parts before, then those that are gone, then new ones."""
    readers = [PartReader(version) for version in versions]
    for piece in pieces:
        sides = zip(readers, piece.parts, piece.starts, strict=True)
        then, now = (reader.rows(part, start, piece.rows) for reader, part, start in sides)
        yield _changed(piece, then, now, same, reasons, tolerance)
    for side, version in enumerate(versions):
        places = part_places(version.manifest)
        for part, start, rows in _rest(version, pieces, side):
            path, first = places[part]
            yield _only_here(readers[side].rows(part, start, rows), side, path, first + start)


def _changed(
    piece: CommonRows,
    then: pa.Table,
    now: pa.Table,
    same: Mapping[int, int],
    reasons: Mapping[str, str],
    tolerance: float,
) -> pa.Table:
    differs = {
        GROUP: np.array([same.get(g) for g in _list(then, GROUP)]) != np.array(_list(now, GROUP)),
        SPLIT: np.array(_list(then, SPLIT)) != np.array(_list(now, SPLIT)),
        IS_OUTLIER: np.array(_list(then, IS_OUTLIER)) != np.array(_list(now, IS_OUTLIER)),
        WEIGHT: np.abs(_weights(now) - _weights(then)) > tolerance,
    }
    rows = np.flatnonzero(np.logical_or.reduce([*differs.values()]))
    texts = ["; ".join(reasons[name] for name in MAKERS if differs[name][row]) for row in rows]
    return _table(
        [piece.path] * len(rows), piece.row + rows, "changed", then.take(rows), now.take(rows), texts
    )


def _rest(version: Version, pieces: Sequence[CommonRows], side: int) -> Iterator[tuple[int, int, int]]:
    """Yield part, first row and number of rows of a version's rows that no piece covers."""
    covered: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for piece in pieces:
        covered[piece.parts[side]].append((piece.starts[side], piece.starts[side] + piece.rows))
    for part, shard in enumerate(version.manifest["source"]["shards"]):
        first, n_rows = 0, int(shard["rows"])
        for start, stop in [*sorted(covered[part]), (n_rows, n_rows)]:
            if first < start:
                yield part, first, start - first
            first = max(first, stop)


def _only_here(found: pa.Table, side: int, path: str, first: int) -> pa.Table:
    """Return rows that one version has alone; the first of them is row ``first`` of the file ``path``.

    ``side`` is 0 for the version before, whose rows are gone, and 1 for the one after, whose rows are new.
    """
    rows = found.num_rows
    nothing = pa.table({name: pa.nulls(rows, kind) for name, kind in VALUES.items()})
    then, now = (found, nothing) if side == 0 else (nothing, found)
    reason = "not in the source of the other version at this place, or with other bytes in its file"
    change = ("gone", "new")[side]
    return _table([path] * rows, np.arange(first, first + rows), change, then, now, [reason] * rows)


def _table(
    files: Sequence[str],
    rows: npt.NDArray[np.int64],
    change: str,
    then: pa.Table,
    now: pa.Table,
    reasons: Sequence[str],
) -> pa.Table:
    columns = {"file": files, "row": rows, "change": [change] * len(rows), "reason": reasons}
    columns |= {f"{name}_before": then[name] for name in VALUES}
    columns |= {f"{name}_after": now[name] for name in VALUES}
    return pa.table({field.name: columns[field.name] for field in SCHEMA}, schema=SCHEMA)


def _list(table: pa.Table, name: str) -> list[Any]:
    found: list[Any] = table[name].to_pylist()
    return found


def _weights(table: pa.Table) -> npt.NDArray[np.float64]:
    return np.asarray(table[WEIGHT].to_numpy(), np.float64)
