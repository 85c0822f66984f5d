"""``parts`` over shards: names the part of every row from the source alone, before anything is fitted.

The engine adds this operator in front of all others where rows are held out: the readers that it hands to
``fit`` leave out the rows that are not :data:`~operators.parts.held_out.FITTED`. Two things are decided by
all rows: whether the texts of a column are all numbers or dates, and of what kind it is if they are not; and
what the classes are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from operators.base import (
    PART,
    ROW_ID,
    Apply,
    Context,
    Cost,
    DatasetDelta,
    Executor,
    Operator,
    ShardReader,
)
from operators.explanations import ExplainedRow, Fact
from operators.hashing import Hashes
from operators.parts.content import table_hashes, value_hashes
from operators.parts.held_out import FITTED, TEST, VALIDATION, By, Draw, Parts
from operators.parts.params import PartsParams
from operators.parts.small_classes import MAX_CLASSES, Classes, Counts, marks_of
from operators.row_identity import key_hashes, position_identities

NAME = "parts"
NAMES = ("train", "validation", "test")


class RowParts(Operator[PartsParams]):
    """Adds ``part``: 0 for rows that operators learn from, 1 for validation and 2 for test rows."""

    name = NAME
    version = 5
    cost = Cost(11.8, 8.43, 213)
    Params = PartsParams
    fits_on_all_rows = True

    @property
    def requires(self) -> tuple[str, ...]:
        """Return no column: the operator reads the source."""
        return ()

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Return the label, keys and the columns that identify a row."""
        params = self.params
        keys = [draw.key for draw in (params.holdout, params.draw) if draw is not None and draw.key]
        by_content = params.features if params.draw is not None else ()
        return tuple(dict.fromkeys((params.label, *keys, *by_content)))

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added column ``part``."""
        return (pa.field(PART, pa.int8()),)

    @property
    def can_predict(self) -> bool:
        """Return True: new rows are drawn as the others were."""
        return True

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Find classes that are too small to draw from, and how rows are identified; leaves ``parts.json``.

        Returns
        -------
        Rows of each part. Rows of classes with fewer than 20 rows, or with no training row otherwise, are
        training rows, except those that ``source.holdout`` takes: it does not look at classes, so that it may
        take all rows of a rare one. Where so many rows are equal that the parts would miss their shares by
        more than half, rows are drawn by their place in their file instead of by their content.
        """
        draw = self.params.draw
        shards = range(len(context.shards.shards))
        classes = Classes()
        counts = self._counts(context, executor, classes, shards)
        if draw is not None and draw.key is None and _is_lumpy(counts, draw.validation, draw.test):
            classes = Classes("position")
            counts = self._counts(context, executor, classes, shards)
        return self._add(context, executor, classes, counts, shards)

    def partial_fit(self, context: Context, delta: DatasetDelta, executor: Executor) -> dict[str, float]:
        """Count the classes with the new rows: one that has 20 rows by now is drawn from.

        Its rows of earlier runs stay training rows. Returns the rows of each part.
        """
        before = Classes.load(delta.state)
        shards: Sequence[int] = delta.new_shards
        if delta.rows_removed:
            shards = range(len(context.shards.shards))
            before = replace(before, sizes=dict.fromkeys(before.sizes, (0, 0)))
        counts = self._counts(context, executor, before, shards)
        totals = self._add(context, executor, before, counts, shards)
        known = {} if delta.rows_removed else delta.metrics
        return {name: n + known.get(name, 0.0) for name, n in totals.items()}

    def open(self, context: Context) -> Apply:
        """Load the state once, and return the function that gives rows their part."""
        rows = _Rows(self.params, context.shards, context.seed, Classes.load(context.state))
        return lambda table: pa.table({PART: pa.array(rows.parts(table))})

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Say whether operators have learnt from the row."""
        part = row.value(PART) if row.has(PART) else FITTED
        learnt = part == FITTED
        note = (
            "operators learn from it"
            if learnt
            else "no operator has learnt from it; it was placed afterwards"
        )
        return [Fact("drawn as", NAMES[part or 0], note)]

    def _counts(
        self, context: Context, executor: Executor, classes: Classes, shards: Sequence[int]
    ) -> Counts:
        # Without the small classes: what hashes draw tells whether they are still small.
        rows = _Rows(self.params, context.shards, context.seed, replace(classes, small=frozenset()))
        total = Counts()
        for counts in executor.map(partial(_count, rows), shards, resources=self.params.resources):
            total.update(counts)
        return total

    def _add(
        self, context: Context, executor: Executor, before: Classes, counts: Counts, shards: Sequence[int]
    ) -> dict[str, float]:
        """Save the classes with the counted rows of some shards; return how many are in each part."""
        classes = before.with_rows(counts) if self.params.draw is not None else before
        if classes.small:
            rows = _Rows(self.params, context.shards, context.seed, classes)
            found = executor.map(partial(_kept, rows), shards, resources=self.params.resources)
            classes = classes.with_kept(np.concatenate([np.empty(0, np.uint64), *found]))
        classes.save(context.state)
        totals = Counter[int]()
        for (label, drawn, held), n in counts.items():
            totals[held if held != FITTED else FITTED if label in classes.small else drawn] += n
        return {name: float(totals[part]) for part, name in enumerate(NAMES)}


def learnt_from(params: PartsParams) -> str:
    """Return the sentence that manifest, plan and report have on the rows that operators learn from."""
    draw = params.draw
    named = [f"source.holdout ({params.holdout.share:g})"] if params.holdout else []
    if draw is not None:
        what = f"the column {draw.key!r}" if draw.key else "their content"
        named.append(f"a hash of {what} (validation {draw.validation:g}, test {draw.test:g})")
    kinds = "validation and test rows" if draw is not None else "held-out rows"
    return (
        f"Operators learn from training rows only: {kinds} are drawn by {' and '.join(named)} "
        f"before anything is fitted, and are then placed as new rows are."
    )


class _Rows:
    """The parts of the rows of a shard. Picklable."""

    def __init__(self, params: PartsParams, reader: ShardReader, seed: int, classes: Classes) -> None:
        self.params, self.reader, self.classes = params, reader, classes
        self.seed = seed

    def parts(self, table: pa.Table) -> Parts:
        """Return the part (n,) of each row of a table with ``row_id`` and the operator's source columns."""
        drawn, held = self.drawn(table), self.held(table)
        return np.where(held == FITTED, drawn, held).astype(np.int8)

    def drawn(self, table: pa.Table) -> Parts:
        """Return the part (n,) of each row by ``draw``, whether or not the row is held out."""
        draw = self.params.draw
        if draw is None:
            return np.zeros(table.num_rows, np.int8)
        how = Draw(draw.validation, draw.test, self.seed, "parts/draw", validation_first=True)
        identities = self.identities(table)
        found = how.parts(identities)
        found[self.classes.stay(self.labels(table), identities)] = FITTED
        return found

    def identities(self, table: pa.Table) -> Hashes:
        """Return what ``draw`` knows each row (n,) by."""
        key = self.params.draw.key if self.params.draw is not None else None
        return self._identities(table, key, self.classes.by)

    def held(self, table: pa.Table) -> Parts:
        """Return the part (n,) of each row by ``holdout``; :data:`FITTED` for rows that it does not take."""
        holdout = self.params.holdout
        if holdout is None:
            return np.zeros(table.num_rows, np.int8)
        how = Draw(holdout.validation, holdout.share, 0, "source/holdout")
        return how.parts(self._identities(table, holdout.key, "position"))

    def labels(self, table: pa.Table) -> Hashes:
        """Return a hash (n,) of each row's label."""
        return value_hashes(table[self.params.label])

    def _identities(self, table: pa.Table, key: str | None, by: By) -> Hashes:
        if by == "content":
            found = table_hashes(table.select(self.params.features))
        else:
            ids = table[ROW_ID].to_numpy()
            found = position_identities(list(self.reader.shards), ids)
        if key is None or not table.num_rows:
            return found
        keys, has_value = key_hashes(table[key])
        return np.where(has_value, keys, found)


def _count(rows: _Rows, shard: int) -> Counts:
    table = _read(rows, shard)
    labels, places = np.unique(rows.labels(table), return_inverse=True)
    if len(labels) > MAX_CLASSES:
        labels, places = np.zeros(1, np.uint64), np.zeros_like(places)
    kinds = np.stack([places.ravel(), rows.drawn(table), rows.held(table)])
    cells, n = np.unique(kinds, axis=1, return_counts=True)
    found = Counts()
    for (place, drawn, held), rows_of_cell in zip(cells.T.tolist(), n.tolist(), strict=True):
        found[int(labels[place]), drawn, held] += rows_of_cell
    return found


def _kept(rows: _Rows, shard: int) -> Hashes:
    """Return the marks of a shard's rows that their hash draws, and that are of a small class."""
    table = rows.reader.read_source(shard, [rows.params.label])
    if not rows.classes.are_small(rows.labels(table)).any():
        return np.empty(0, np.uint64)
    table = _read(rows, shard)
    table = table.filter(pa.array(rows.classes.are_small(rows.labels(table)) & (rows.held(table) == FITTED)))
    alone = _Rows(rows.params, rows.reader, rows.seed, Classes(rows.classes.by))
    table = table.filter(pa.array(alone.drawn(table) != FITTED))
    return np.unique(marks_of(rows.labels(table), rows.identities(table)))


def _read(rows: _Rows, shard: int) -> pa.Table:
    """Return the operator's source columns of a shard, with ``row_id``."""
    table = rows.reader.read_source(shard, RowParts(rows.params).source_columns)
    info = rows.reader.shards[shard]
    ids = np.arange(info.first_row, info.first_row + table.num_rows, dtype=np.int64)
    return table.append_column(ROW_ID, pa.array(ids))


def _is_lumpy(counts: Counts, validation: float, test: float) -> bool:
    """Return whether equal rows, which stay together, make a part miss its share by half, beyond chance.

    Shares are those of the rows that ``source.holdout`` leaves.
    """
    drawn_from = Counter[int]()
    for (_, drawn, held), count in counts.items():
        drawn_from[drawn] += count if held == FITTED else 0
    n = drawn_from.total()
    for part, share in ((VALIDATION, validation), (TEST, test)):
        rows = drawn_from[part]
        off = abs(rows - share * n)
        if share and off > 0.5 * share * n and off > 5 * np.sqrt(share * (1 - share) * n):
            return True
    return False
