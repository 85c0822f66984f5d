"""Every row that differs between two versions, as a table with the reason, a bounded number at a time.

Rows are matched as :mod:`engine.runs.row_pairs` does. The reason of a changed value is what the manifests
tell of the operator that made it: other parameters, another release, or a fit on other rows or other results.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.core.errors import InputError
from engine.plan.chain import USUAL_ADDER, contract_columns
from engine.runs.row_matching import VALUES
from engine.runs.row_pairs import PLACE, RowBatch, RowPairs
from operators.arrays import NOISE, Float64
from operators.base import DUPLICATE_OF, GROUP, IS_OUTLIER, SPLIT, WEIGHT

DUPLICATES = "duplicates"
COMPARED = (GROUP, SPLIT, IS_OUTLIER, WEIGHT)
"""The values that are compared."""
SOURCE = "source"
SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("key", pa.string()),
        ("change", pa.string()),
        *((f"{name}_{side}", kind) for name, kind in VALUES.items() for side in ("before", "after")),
        ("reason", pa.string()),
    ]
)
"""``file`` and ``row`` (from 0) say where a row stands in the source, in the later version if it is there;
``row`` counts the rows of the file that ``source.filter`` leaves, as a version does not hold the others.
``key`` is its key if rows were matched by one; ``change`` is changed, new or gone."""


def write_row_changes(
    pairs: RowPairs, found: Mapping[str, Any], file: Path, *, tolerance: float = 0.01
) -> int:
    """Write the rows that are new, gone or changed as Parquet, and return how many they are.

    Memory is bounded as :class:`RowPairs` says. The same versions give the same bytes.

    Parameters
    ----------
    found
        What :func:`engine.runs.diff.compare` returned for these rows: a row of a group that has only got
        another number has not changed.
    tolerance
        As for ``compare``.

    Raises
    ------
    InputError
        The file cannot be written, or has another ending than ``.parquet``.

    """
    if file.suffix != ".parquet":
        raise InputError(
            f"--rows {file}: the rows are written as Parquet. Name the file {file.with_suffix('.parquet')}."
        )
    same = {one["before"]: one["after"] for one in found["groups"] if one["before"] is not None}
    reasons = reasons_of(pairs.before.manifest, pairs.after.manifest)
    staged, rows = file.with_name(f".{file.name}.{os.getpid()}"), 0
    try:
        with pq.ParquetWriter(staged, SCHEMA) as writer:
            for table in _tables(pairs, same | {NOISE: NOISE}, reasons, tolerance):
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
    """Return for each value why it may differ, by the entries of its operator in two manifests.

    Under ``duplicate_of`` stands how ``duplicates`` differs, where both have it and it does.
    """
    sides = [{one["name"]: one for one in manifest["operators"]} for manifest in (before, after)]
    found = {}
    for name in COMPARED:
        makers = [contract_columns(manifest).get(name, {}) for manifest in (before, after)]
        names = [maker.get("operator", USUAL_ADDER[name]) for maker in makers]
        entries = (side.get(maker, {}) for side, maker in zip(sides, names, strict=True))
        found[name] = (
            _reason(names[1], *entries) if names[0] == names[1] else f"{names[1]} replaced {names[0]}"
        )
    then, now = (side.get(DUPLICATES) for side in sides)
    if then and now and then != now:
        found[DUPLICATE_OF] = _reason(DUPLICATES, then, now)
    return found


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
    pairs: RowPairs, same: Mapping[int, int], reasons: Mapping[str, str], tolerance: float
) -> Iterator[pa.Table]:
    """Yield the changed rows of each batch, then those that are gone, then new ones, where there are any."""
    for batch in pairs.batches():
        changed = _changed(batch, same, reasons, tolerance)
        tables = (changed, _only_here(batch.gone, 0), _only_here(batch.new, 1))
        yield from (table for table in tables if table.num_rows)


def _changed(
    batch: RowBatch, same: Mapping[int, int], reasons: Mapping[str, str], tolerance: float
) -> pa.Table:
    then, now = batch.then, batch.now
    differs = {
        GROUP: np.array([same.get(g) for g in _list(then, GROUP)]) != np.array(_list(now, GROUP)),
        SPLIT: np.array(_list(then, SPLIT)) != np.array(_list(now, SPLIT)),
        IS_OUTLIER: np.array(_list(then, IS_OUTLIER)) != np.array(_list(now, IS_OUTLIER)),
        WEIGHT: np.abs(_weights(now) - _weights(then)) > tolerance,
        SOURCE: batch.rewritten,
        DUPLICATE_OF: batch.other_duplicate,
    }
    rows = np.flatnonzero(np.logical_or.reduce([*differs.values()]))
    why = {**reasons, SOURCE: "other values in its source columns"}
    older, weighs = now[DUPLICATE_OF].take(rows).to_pylist(), differs[SPLIT] | differs[WEIGHT]
    texts = []
    for row, of in zip(rows, older, strict=True):
        duplicate = [_duplicate_text(of)] if differs[DUPLICATE_OF][row] else []
        if of is not None and weighs[row] and not duplicate and DUPLICATE_OF in why:
            duplicate = [f"{why[DUPLICATE_OF]}, and it nearly duplicates the older row {of}"]
        found = (why[name] for name in (*COMPARED, SOURCE) if differs[name][row])
        texts.append("; ".join([*duplicate, *found]))
    return _table(now.take(rows), "changed", then.take(rows), now.take(rows), texts)


def _duplicate_text(of: int | None) -> str:
    what = "no older row any more" if of is None else f"the older row {of} now"
    return f"{DUPLICATES}: it nearly duplicates {what}"


def _only_here(found: pa.Table, side: int) -> pa.Table:
    """Return rows that one version has alone: gone ones (side 0, before) or new ones (side 1)."""
    rows = found.num_rows
    nothing = pa.table({name: pa.nulls(rows, kind) for name, kind in VALUES.items()})
    then, now = (found, nothing) if side == 0 else (nothing, found)
    reason = "no row of the other version matches it"
    return _table(found, ("gone", "new")[side], then, now, [reason] * rows)


def _table(places: pa.Table, change: str, then: pa.Table, now: pa.Table, reasons: Sequence[str]) -> pa.Table:
    columns: dict[str, Any] = {name: places.column(name) for name in PLACE.names}
    columns |= {"change": [change] * len(reasons), "reason": reasons}
    columns |= {f"{name}_before": then[name] for name in VALUES}
    columns |= {f"{name}_after": now[name] for name in VALUES}
    return pa.table({field.name: columns[field.name] for field in SCHEMA}, schema=SCHEMA)


def _list(table: pa.Table, name: str) -> list[Any]:
    found: list[Any] = table[name].to_pylist()
    return found


def _weights(table: pa.Table) -> Float64:
    return np.asarray(table[WEIGHT].to_numpy(), np.float64)
