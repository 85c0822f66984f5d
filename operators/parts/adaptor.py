"""``parts`` over shards: names the part of every row from the source alone, before anything is fitted.

The engine adds this operator in front of all others where rows are held out: the readers that it hands to
``fit`` leave out the rows that are not :data:`~operators.parts.held_out.FITTED`. Two things are decided by
all rows: whether the texts of a column are all numbers or dates, and of what kind it is if they are not; and
what the classes are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from operators.base import PART, ROW_ID, Apply, Context, Cost, Executor, Operator, ShardReader
from operators.bounded_json import read_json
from operators.explanations import ExplainedRow, Fact
from operators.hashing import Hashes
from operators.parts.content import table_hashes, value_hashes
from operators.parts.held_out import FITTED, TEST, VALIDATION, By, Draw, Parts
from operators.parts.params import PartsParams
from operators.row_identity import key_hashes, position_identities

NAME = "parts"
STATE = "parts.json"
NAMES = ("train", "validation", "test")
MIN_ROWS = 20
"""A class with fewer rows is not drawn from: all its rows are training rows but those of ``holdout``."""
MAX_CLASSES = 10_000
"""Beyond as many labels `ingest` refuses the label column, and no class is looked for here."""

Counts = Counter[tuple[int, int, int]]
"""Hash of a label, part by ``draw``, and part by ``holdout`` (FITTED if not held) -> number of rows."""


class RowParts(Operator[PartsParams]):
    """Adds ``part``: 0 for rows that operators learn from, 1 for validation and 2 for test rows."""

    name = NAME
    version = 3
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
        by: By = "content"
        counts = self._counts(context, executor, by)
        if draw is not None and draw.key is None and _is_lumpy(counts, draw.validation, draw.test):
            by = "position"
            counts = self._counts(context, executor, by)
        small = _small_classes(counts) if draw is not None else []
        state = {"by": by, "small_classes": small}
        (context.state / STATE).write_text(json.dumps(state), "utf-8")
        totals = Counter[int]()
        for (label, drawn, held), n in counts.items():
            totals[held if held != FITTED else FITTED if label in small else drawn] += n
        return {name: float(totals[part]) for part, name in enumerate(NAMES)}

    def open(self, context: Context) -> Apply:
        """Load the state once, and return the function that gives rows their part."""
        state = read_json(context.state / STATE)
        rows = _Rows(self.params, context.shards, context.seed, state["by"], tuple(state["small_classes"]))
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

    def _counts(self, context: Context, executor: Executor, by: By) -> Counts:
        rows = _Rows(self.params, context.shards, context.seed, by)
        shards = range(len(context.shards.shards))
        total = Counts()
        for counts in executor.map(partial(_count, rows), shards, resources=self.params.resources):
            total.update(counts)
        return total


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

    def __init__(
        self, params: PartsParams, reader: ShardReader, seed: int, by: By, small: Sequence[int] = ()
    ) -> None:
        self.params, self.reader, self.by = params, reader, by
        self._small = np.array(small, np.uint64)
        self._seed = seed

    def parts(self, table: pa.Table) -> Parts:
        """Return the part (n,) of each row of a table with ``row_id`` and the operator's source columns."""
        drawn, held = self.drawn(table), self.held(table)
        return np.where(held == FITTED, drawn, held).astype(np.int8)

    def drawn(self, table: pa.Table) -> Parts:
        """Return the part (n,) of each row by ``draw``, whether or not the row is held out."""
        draw = self.params.draw
        if draw is None:
            return np.zeros(table.num_rows, np.int8)
        how = Draw(draw.validation, draw.test, self._seed, "parts/draw", validation_first=True)
        found = how.parts(self._identities(table, draw.key, self.by))
        if len(self._small):
            found[np.isin(self.labels(table), self._small)] = FITTED
        return found

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
    columns = RowParts(rows.params).source_columns
    table = rows.reader.read_source(shard, columns)
    info = rows.reader.shards[shard]
    ids = np.arange(info.first_row, info.first_row + table.num_rows, dtype=np.int64)
    table = table.append_column(ROW_ID, pa.array(ids))
    labels, places = np.unique(rows.labels(table), return_inverse=True)
    if len(labels) > MAX_CLASSES:
        labels, places = np.zeros(1, np.uint64), np.zeros_like(places)
    kinds = np.stack([places.ravel(), rows.drawn(table), rows.held(table)])
    cells, n = np.unique(kinds, axis=1, return_counts=True)
    found = Counts()
    for (place, drawn, held), rows_of_cell in zip(cells.T.tolist(), n.tolist(), strict=True):
        found[int(labels[place]), drawn, held] += rows_of_cell
    return found


def _small_classes(counts: Counts) -> list[int]:
    """Return the hashes of labels that would have too few rows to learn from."""
    sizes, learnt = Counter[int](), Counter[int]()
    for (label, drawn, held), n in counts.items():
        sizes[label] += n
        learnt[label] += n if drawn == held == FITTED else 0
    if len(sizes) > MAX_CLASSES:
        return []
    return [label for label in sorted(sizes) if sizes[label] < MIN_ROWS or not learnt[label]]


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
