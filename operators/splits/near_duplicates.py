"""Near duplicates of older rows in another split: found for every method of ``split``.

``fit`` stores the part that the method's rule gives to every row, one byte for each, in
``parts-<first row>.npy`` of each shard. A shard looks its older rows up in these files, which are mapped into
memory: first the oldest near row of each row, and where that is in the same part, all near ones, in the state
of ``duplicates``. Of two near rows in different parts the younger one crosses, so that without these rows no
row is near one of another part. The findings are kept in ``crossing-<first row>.npy``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Ids, Int64, Mask
from operators.base import DUPLICATE_OF, PART, ROW_ID, SPLIT, Apply, Context, Executor, Resources
from operators.duplicates.near_rows import near_other_kind
from operators.duplicates.params import DuplicatesParams
from operators.parts.held_out import FITTED
from operators.parts.held_out import VALIDATION as HELD_OUT_VALIDATION
from operators.splits.hashed_split import DROPPED, FOLD, NO_FOLD, PARTS, TEST, VALIDATION

CROSSING = "duplicates_in_other_split"
"""Metric: rows that nearly duplicate an older row in another split."""
HELD_OUT = -1
"""Part of a row that the reader of ``fit`` leaves out: it is held out from every fit."""
PartIndices = npt.NDArray[np.int8]
"""Index into ``PARTS`` of each row, or ``HELD_OUT``."""
NOT_LOOKED_AT = -1
"""In place of whether a row crosses (1) or not (0)."""
DUPLICATES = "duplicates"
"""The operator whose state is searched."""


class Rule(NamedTuple):
    """A method's own function from a shard's rows to their parts, and what it reads. Picklable."""

    apply: Apply
    columns: tuple[str, ...]
    """Columns that the function reads."""
    held_out: bool
    """Whether the column ``part`` is one of them, and names rows that are held out, whatever the function
    says."""
    duplicates: DuplicatesParams | None = None
    """Parameters of ``duplicates``. None: another operator adds the older rows, and only these are looked
    at."""


def store_parts(
    context: Context, rule: Rule, shards: Sequence[int], executor: Executor, resources: Resources
) -> dict[str, float]:
    """Store the parts of some shards; return how many of their rows cross, and how many of each part do."""
    for _ in executor.map(partial(_store, context, rule), shards, resources=resources):
        pass
    totals = np.zeros(len(PARTS), np.int64)
    for counts in executor.map(partial(_count, context, rule), shards, resources=resources):
        totals += counts
    crossing = int(totals.sum())
    return {CROSSING: float(crossing)} | {
        name: float(n) for name, n in zip(PARTS, totals, strict=True) if name != PARTS[DROPPED]
    }


def crossing_text(crossing: int, *, drops: bool) -> str:
    """Return a sentence on near duplicates of older rows in another split, with the remedy."""
    what = (
        f"{crossing:,} {'row nearly duplicates' if crossing == 1 else 'rows nearly duplicate'} an older row "
        "in another split"
    )
    if drops:
        return (
            f"{what}. They are published with split = dropped, so that no validation or test row has a near "
            "copy among the training rows, nor the reverse. This holds for the copies that `duplicates` "
            "finds: all near vectors, and of texts with one key the oldest 256 of another split."
        )
    return (
        f"{what}, and duplicates.weight: 1 leaves them there: scores on validation and test rows are too "
        "good. Set duplicates.weight below 1 to drop them, or give duplicates a common key and name it as "
        "split.key."
    )


def without_crossing(rule: Rule, state: Path, duplicates: Path | None, table: pa.Table) -> pa.Table:
    """Return the columns of a method's rule; rows near an older one of another part are dropped.

    ``duplicates`` is the state folder of that operator.
    """
    columns = rule.apply(table)
    parts = _named_parts(rule, table, columns)
    crosses = Crossing(rule, state, duplicates, is_fitted=True).of(table, parts)
    parts[crosses] = DROPPED
    named = pa.DictionaryArray.from_arrays(pa.array(parts), pa.array(PARTS))
    found = columns.set_column(columns.column_names.index(SPLIT), SPLIT, named)
    if FOLD in found.column_names:
        folds = np.where(crosses, NO_FOLD, found[FOLD].to_numpy()).astype(np.int32)
        found = found.set_column(found.column_names.index(FOLD), FOLD, pa.array(folds))
    return found


class ByRow:
    """One byte of each row that ``fit`` and ``partial_fit`` have stored.

    One file at a time is open, however many there are. It stays open until another one is asked for.
    """

    def __init__(self, state: Path, kind: str, missing: int) -> None:
        """Take the files of a kind, and the value of rows that nothing is stored of."""
        self._paths = sorted(state.glob(f"{kind}-*.npy"))
        self._missing = missing
        self._firsts = [int(path.stem.removeprefix(f"{kind}-")) for path in self._paths]
        self._opened: tuple[int, PartIndices] = (-1, np.empty(0, np.int8))

    def of(self, row_ids: Ids) -> PartIndices:
        """Return what is stored of each row (n,)."""
        found = np.full(len(row_ids), self._missing, np.int8)
        files = np.searchsorted(self._firsts, row_ids, side="right") - 1
        for number in np.unique(files[files >= 0]):
            mine = np.flatnonzero(files == number)
            places = row_ids[mine] - self._firsts[number]
            stored = self._file(int(number))
            inside = places < len(stored)
            found[mine[inside]] = stored[places[inside]]
        return found

    def _file(self, number: int) -> PartIndices:
        if number != self._opened[0]:
            self._opened = number, np.load(self._paths[number], mmap_mode="r")
        return self._opened[1]


class Crossing:
    """Finds the rows that are near an older one of another part."""

    def __init__(self, rule: Rule, state: Path, duplicates: Path | None, *, is_fitted: bool) -> None:
        """Take the rule, the state with the parts of all rows, and that of the operator ``duplicates``.

        Only of a fitted state, all of whose files are written, is what it says about rows that cross read.
        """
        self._parts = ByRow(state, "parts", HELD_OUT)
        self._known = ByRow(state, "crossing" if is_fitted else "none", NOT_LOOKED_AT)
        self._params, self._duplicates = rule.duplicates, duplicates

    def of(self, table: pa.Table, parts: PartIndices) -> Mask:
        """Return whether each row (n,), of one of ``parts``, nearly duplicates an older row of another.

        A held-out older row counts as a test row, as which it is published unless ``source.holdout`` says
        otherwise.
        """
        found = np.zeros(len(parts), np.bool_)
        rows = np.flatnonzero(pc.is_valid(table[DUPLICATE_OF]).to_numpy() & (parts != DROPPED))
        ids = table[ROW_ID].to_numpy()[rows]
        known = self._known.of(ids)
        found[rows[known == 1]] = True
        rows, ids = rows[known == NOT_LOOKED_AT], ids[known == NOT_LOOKED_AT]
        found[rows] = self._look(ids, table[DUPLICATE_OF].take(rows).to_numpy(), parts[rows])
        return found

    def _look(self, ids: Ids, oldest: Ids, parts: PartIndices) -> Mask:
        theirs = self._kept_parts(oldest)
        apart: Mask = (theirs >= 0) & (theirs != parts)
        if self._params and self._duplicates:
            left = np.flatnonzero(~apart)
            apart[left] = near_other_kind(
                self._duplicates, self._params, ids[left], parts[left], self._kept_parts
            )
        return apart

    def _kept_parts(self, row_ids: Ids) -> PartIndices:
        """Return the part (n,) as which each row is published; -1 for a row that the rule drops."""
        found = self._parts.of(row_ids)
        found[found == HELD_OUT] = TEST
        found[found == DROPPED] = -1
        return found


def _store(context: Context, rule: Rule, shard: int) -> None:
    info = context.shards.shards[shard]
    table = context.shards.read(shard, rule.columns)
    parts = np.full(info.n_rows, HELD_OUT, np.int8)
    if table.num_rows:
        parts[table[ROW_ID].to_numpy() - info.first_row] = _named_parts(rule, table, rule.apply(table))
    np.save(context.state / f"parts-{info.first_row:015d}.npy", parts)


def _count(context: Context, rule: Rule, shard: int) -> Int64:
    """Store which rows of a shard cross, and count them by their own part (4,)."""
    info, table = context.shards.shards[shard], context.shards.read(shard, [DUPLICATE_OF])
    known = np.full(info.n_rows, NOT_LOOKED_AT, np.int8)
    counts = np.zeros(len(PARTS), np.int64)
    if table.num_rows:
        ids = table[ROW_ID].to_numpy()
        parts = ByRow(context.state, "parts", HELD_OUT).of(ids)
        duplicates = context.states.get(DUPLICATES)
        crosses = Crossing(rule, context.state, duplicates, is_fitted=False).of(table, parts)
        known[ids - info.first_row] = crosses
        counts += np.bincount(parts[crosses], minlength=len(PARTS))
    np.save(context.state / f"crossing-{info.first_row:015d}.npy", known)
    return counts


def _named_parts(rule: Rule, table: pa.Table, columns: pa.Table) -> PartIndices:
    """Return the part (n,) of each row: the rule's, or the one as which the row is held out."""
    split = columns[SPLIT]
    array = split.combine_chunks() if isinstance(split, pa.ChunkedArray) else split
    parts = np.array(array.indices.to_numpy(zero_copy_only=False), np.int8)
    if rule.held_out:
        drawn = table[PART].to_numpy()
        held = drawn != FITTED
        as_part = np.where(drawn == HELD_OUT_VALIDATION, VALIDATION, TEST)
        parts[held] = as_part[held]
    return parts
