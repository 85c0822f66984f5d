"""Near duplicates that lie in another split than the older row: found for every method of ``split``.

``fit`` stores the part that the method's rule gives to every row, one byte for each, in
``parts-<first row>.npy`` of each shard. A shard looks its older rows up in these files, which are mapped into
memory.
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

from operators.arrays import Ids, Int64
from operators.base import DUPLICATE_OF, PART, ROW_ID, SPLIT, Apply, Context, Executor, Resources
from operators.parts.held_out import FITTED
from operators.parts.held_out import VALIDATION as HELD_OUT_VALIDATION
from operators.splits.hashed_split import DROPPED, FOLD, NO_FOLD, PARTS, TEST, VALIDATION

CROSSING = "duplicates_in_other_split"
"""Metric: rows that nearly duplicate an older row in another split."""
HELD_OUT = -1
"""Part of a row that the reader of ``fit`` leaves out: it is held out from every fit."""
PartIndices = npt.NDArray[np.int8]
"""Index into ``PARTS`` of each row, or ``HELD_OUT``."""


class Rule(NamedTuple):
    """A method's own function from a shard's rows to their parts, and what it reads. Picklable."""

    apply: Apply
    columns: tuple[str, ...]
    """Columns that the function reads."""
    held_out: bool
    """Whether the column ``part`` is one of them, and names rows that are held out, whatever the function
    says."""


def store_parts(
    context: Context, rule: Rule, shards: Sequence[int], executor: Executor, resources: Resources
) -> dict[str, float]:
    """Store the parts of some shards; return how many of their rows cross, and how many of each part do."""
    for _ in executor.map(partial(_store, context, rule), shards, resources=resources):
        pass
    totals = np.zeros(len(PARTS), np.int64)
    for counts in executor.map(partial(_count, context), shards, resources=resources):
        totals += counts
    crossing = int(totals.sum())
    return {CROSSING: float(crossing)} | {
        name: float(n) for name, n in zip(PARTS, totals, strict=True) if name != PARTS[DROPPED]
    }


def crossing_text(crossing: int, *, drops: bool) -> str:
    """Return a sentence on near duplicates in another split than the older row, with the remedy."""
    what = (
        f"{crossing:,} {'row nearly duplicates' if crossing == 1 else 'rows nearly duplicate'} an older row "
        "in another split"
    )
    if drops:
        return (
            f"{what}. They are published with split = dropped, so that no validation or test row has its "
            "oldest copy among the training rows, nor the reverse."
        )
    return (
        f"{what}, and duplicates.weight: 1 leaves them there: scores on validation and test rows are too "
        "good. Set duplicates.weight below 1 to drop them, or give duplicates a common key and name it as "
        "split.key."
    )


def without_crossing(rule: Rule, state: Path, table: pa.Table) -> pa.Table:
    """Return the columns of a method's rule, with the rows dropped whose older row is in another split."""
    columns = rule.apply(table)
    parts = _named_parts(rule, table, columns)
    crosses = StoredParts(state).cross(table, parts)
    parts[crosses] = DROPPED
    named = pa.DictionaryArray.from_arrays(pa.array(parts), pa.array(PARTS))
    found = columns.set_column(columns.column_names.index(SPLIT), SPLIT, named)
    if FOLD in found.column_names:
        folds = np.where(crosses, NO_FOLD, found[FOLD].to_numpy()).astype(np.int32)
        found = found.set_column(found.column_names.index(FOLD), FOLD, pa.array(folds))
    return found


class StoredParts:
    """The parts of all rows that ``fit`` and ``partial_fit`` have stored, mapped into memory."""

    def __init__(self, state: Path) -> None:
        paths = sorted(state.glob("parts-*.npy"))
        self._firsts = [int(path.stem.removeprefix("parts-")) for path in paths]
        self._files: list[PartIndices] = [np.load(path, mmap_mode="r") for path in paths]

    def of(self, row_ids: Ids) -> PartIndices:
        """Return the part (n,) of each row; ``HELD_OUT`` for rows that nothing is stored of."""
        found = np.full(len(row_ids), HELD_OUT, np.int8)
        files = np.searchsorted(self._firsts, row_ids, side="right") - 1
        for number in np.unique(files[files >= 0]):
            mine = np.flatnonzero(files == number)
            places = row_ids[mine] - self._firsts[number]
            inside = places < len(self._files[number])
            found[mine[inside]] = self._files[number][places[inside]]
        return found

    def cross(self, table: pa.Table, parts: PartIndices) -> npt.NDArray[np.bool_]:
        """Return whether each row (n,), of one of ``parts``, nearly duplicates an older row of another.

        A held-out older row counts as a test row, as which it is published unless ``source.holdout`` says
        otherwise.
        """
        older = table[DUPLICATE_OF]
        rows = np.flatnonzero(pc.is_valid(older).to_numpy())
        theirs, own = self.of(older.drop_null().to_numpy()), parts[rows]
        theirs[theirs == HELD_OUT] = TEST
        apart = (own != theirs) & (own != DROPPED) & (theirs != DROPPED)
        found = np.zeros(len(parts), np.bool_)
        found[rows[apart]] = True
        return found


def _store(context: Context, rule: Rule, shard: int) -> None:
    info = context.shards.shards[shard]
    table = context.shards.read(shard, rule.columns)
    parts = np.full(info.n_rows, HELD_OUT, np.int8)
    if table.num_rows:
        parts[table[ROW_ID].to_numpy() - info.first_row] = _named_parts(rule, table, rule.apply(table))
    np.save(context.state / f"parts-{info.first_row:015d}.npy", parts)


def _count(context: Context, shard: int) -> Int64:
    """Count the rows of a shard that cross, by their own part (4,)."""
    table = context.shards.read(shard, [DUPLICATE_OF])
    if not table.num_rows:
        return np.zeros(len(PARTS), np.int64)
    stored = StoredParts(context.state)
    parts = stored.of(table[ROW_ID].to_numpy())
    return np.bincount(parts[stored.cross(table, parts)], minlength=len(PARTS)).astype(np.int64)


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
