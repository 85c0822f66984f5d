"""One pass over the shards: counts of rows by the small columns, and which rows to draw and to show.

All tables and scores of the report are sums over cells of counts; a cell is a combination of values of the
columns in :class:`Key`. Rows are chosen by a seeded hash of their row_id, so the choice depends neither on
how the data is cut into shards nor on their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.plan.model import Plan
from engine.recipe.recipe import TruthSection
from engine.storage.reader import StoreReader
from operators.arrays import NOISE, Float64
from operators.base import (
    GROUP,
    IS_OUTLIER,
    LABEL,
    LOSS,
    MARKED_BY,
    OUTLIER_SOURCE,
    PREDICTION,
    ROW_ID,
    SPLIT,
    WEIGHT,
    Executor,
)
from operators.columns import is_number
from operators.hashing import row_hashes
from operators.report import RowStatistics
from operators.report.statistics import first_rows

STRONGEST = 24
DRAWN_PER_GROUP = 1_000
MAX_TRUE_GROUPS = 10_000
"""Maximum number of true groups that are counted; a column with more distinct values holds no groups."""
DRAWN_SHARDS = 64
"""Maximum number of shards that rows with vector columns are drawn from, since vectors are wide."""
SMALL: dict[str, pa.DataType] = {
    LABEL: pa.int64(),
    GROUP: pa.int64(),
    SPLIT: pa.string(),
    IS_OUTLIER: pa.bool_(),
    OUTLIER_SOURCE: pa.string(),
    MARKED_BY: pa.string(),
    PREDICTION: pa.int64(),
    LOSS: pa.float64(),
    WEIGHT: pa.float64(),
}
"""Columns that are read for every row, and the types they are cast to."""
ROW = np.dtype([("y", "i8"), ("group", "i8"), ("hash", "u8"), ("row_id", "i8")])
BOOLEAN = "^(true|false|0|1)$"
"""Texts that Arrow reads as booleans."""
Rows = NDArray[np.void]
H = TypeVar("H", bound=Hashable)


class Key(NamedTuple):
    """Values that the rows of a cell have in common. ``y`` is None for rows that were quarantined."""

    y: int | None
    group: int | None
    split: str | None
    is_outlier: bool | None
    outlier_source: str | None
    marked_by: str | None
    true_group: str | None
    true_outlier: bool | None


@dataclass(frozen=True)
class Survey:
    """Counts and chosen rows of the whole dataset."""

    cells: dict[Key, RowStatistics]
    """Counts of the valid rows."""
    quarantined: int
    drawn: NDArray[np.int64]
    """Row ids for point maps, ordered so that any prefix holds the groups as evenly as possible."""
    shown: dict[tuple[int, int], NDArray[np.int64]]
    """(class, group) to the row ids to show."""
    strongest: NDArray[np.int64]
    """Row ids of outliers and noise: outliers first, then by falling loss."""
    has_many_true_groups: bool = False
    """Whether there are more than ``MAX_TRUE_GROUPS`` true groups; the cells then name none."""

    def total(self, key: Callable[[Key], H]) -> dict[H, RowStatistics]:
        """Add up the cells that have the same ``key(cell)``."""
        found: dict[H, RowStatistics] = {}
        for cell, stat in self.cells.items():
            name = key(cell)
            found[name] = found[name] + stat if name in found else stat
        return found

    @property
    def everything(self) -> RowStatistics:
        """Statistics of all valid rows."""
        return self.total(lambda key: None).get(None, RowStatistics())


def survey(plan: Plan, executor: Executor) -> Survey:
    """Read the small columns of every shard once, on workers, and add up in the order of the shards."""
    hashes = row_hashes(np.arange(len(plan.shards)), plan.recipe.seed, "report/shards")
    wide = set(np.argsort(hashes, kind="stable")[:DRAWN_SHARDS].tolist())
    rows_per_group = plan.recipe.report.rows_per_group
    summarise = ShardSurvey(plan.reader(), plan.recipe.truth, plan.recipe.seed, rows_per_group)
    pieces = [(shard.index, shard.index in wide) for shard in plan.shards]
    whole = Summary({}, np.empty(0, ROW), np.empty(0, ROW), np.empty((0, 3)))
    for found in executor.map(summarise, pieces):
        whole.add(found, rows_per_group)
    return whole.survey()


@dataclass
class Summary:
    """Counts and chosen rows of some shards. Its size does not depend on the number of rows."""

    cells: dict[Key, RowStatistics]
    drawn: Rows
    shown: Rows
    strongest: Float64
    has_many_true_groups: bool = False
    """Whether there are more than ``MAX_TRUE_GROUPS`` true groups; the cells then name none."""

    def add(self, other: Summary, rows_per_group: int) -> None:
        """Add the summary of other shards, in place."""
        for key, stat in other.cells.items():
            self.cells[key] = self.cells.get(key, RowStatistics()) + stat
        self.has_many_true_groups |= other.has_many_true_groups
        self._limit_true_groups()
        self.shown = first_per_group(np.concatenate([self.shown, other.shown]), rows_per_group)[0]
        self.drawn = first_per_group(np.concatenate([self.drawn, other.drawn]), DRAWN_PER_GROUP)[0]
        self.strongest = first_rows(np.concatenate([self.strongest, other.strongest]), STRONGEST)

    def _limit_true_groups(self) -> None:
        """Forget the true groups if there are too many, so that there are not as many cells as rows."""
        if not self.has_many_true_groups and len({key.true_group for key in self.cells}) <= MAX_TRUE_GROUPS:
            return
        cells, self.cells, self.has_many_true_groups = self.cells, {}, True
        for key, stat in cells.items():
            merged = key._replace(true_group=None)
            self.cells[merged] = self.cells.get(merged, RowStatistics()) + stat

    def survey(self) -> Survey:
        """Convert the summary of all shards."""
        drawn, rank = first_per_group(self.drawn, DRAWN_PER_GROUP)
        order = np.lexsort((drawn["hash"], rank))
        # The rows of ``shown`` are sorted by class and group.
        groups, starts = np.unique(self.shown[["y", "group"]], return_index=True)
        shown = np.split(self.shown["row_id"], starts[1:])
        return Survey(
            {key: stat for key, stat in self.cells.items() if key.y is not None},
            sum(stat.rows for key, stat in self.cells.items() if key.y is None),
            drawn["row_id"][order],
            {(int(y), int(g)): ids for (y, g), ids in zip(groups, shown, strict=False)},
            self.strongest[:, 2].astype(np.int64),
            self.has_many_true_groups,
        )


@dataclass(frozen=True)
class ShardSurvey:
    """Summarises one shard on a worker. Picklable."""

    reader: StoreReader
    truth: TruthSection
    seed: int
    rows_per_group: int

    def __call__(self, piece: tuple[int, bool]) -> Summary:
        """Summarise a shard; ``piece`` is its index, and whether rows for point maps may come from it."""
        shard, wide = piece
        table = small_columns(self.reader, self.truth, shard)
        has_many = len(table.column("true_group").unique()) > MAX_TRUE_GROUPS
        if has_many:
            place, kind = table.column_names.index("true_group"), pa.string()
            table = table.set_column(place, "true_group", pa.nulls(table.num_rows, kind))
        cells: dict[Key, RowStatistics] = {}
        add_cells(cells, table)
        valid = table.filter(pc.is_valid(table.column(LABEL)))
        rows = rows_of(valid, self.seed)
        return Summary(
            cells,
            first_per_group(rows, DRAWN_PER_GROUP)[0] if wide else rows[:0],
            first_per_group(rows, self.rows_per_group)[0],
            first_rows(outliers_and_noise(valid), STRONGEST),
            has_many,
        )


def small_columns(reader: StoreReader, truth: TruthSection, shard: int) -> pa.Table:
    """Read ``row_id``, the columns of ``SMALL`` and the truth of one shard; nulls for absent columns."""
    present = [name for name in SMALL if name in reader.columns]
    found = reader.read_all(shard, present)
    n = found.num_rows
    columns = {ROW_ID: found.column(ROW_ID)}
    for name, kind in SMALL.items():
        columns[name] = found.column(name).cast(kind) if name in present else pa.nulls(n, kind)
    source = reader.read_with_truth(shard, list(truth.columns)) if truth.columns else None
    for key, wanted, kind in (
        ("true_group", truth.group, pa.string()),
        ("true_outlier", truth.outlier, pa.bool_()),
    ):
        columns[key] = cast_or_null(source.column(wanted), kind) if source and wanted else pa.nulls(n, kind)
    return pa.table(columns)


def cast_or_null(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast a column; nulls for values that cannot be cast (the scores then say so), and for NaN.

    Of texts, each row counts by itself: those of one shard may all be booleans, and those of another not. Of
    numbers only 0 and 1 are booleans.
    """
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_boolean(kind) and (
        pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    ):
        column = pc.if_else(pc.match_substring_regex(column, BOOLEAN, ignore_case=True), column, None)
    if pa.types.is_boolean(kind) and is_number(column.type):
        column = column.cast(pa.float64(), safe=False)
        column = pc.if_else(pc.is_in(column, pa.array([0.0, 1.0])), column, None)
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([pa.nulls(len(column), kind)])


def add_cells(cells: dict[Key, RowStatistics], table: pa.Table) -> None:
    """Add a shard's counts to ``cells``, in place."""
    right = pc.equal(table.column(PREDICTION), table.column(LABEL)).cast(pa.int64())
    keyed = table.append_column("right", right).group_by(list(Key._fields), use_threads=False)
    sums = keyed.aggregate([([], "count_all"), ("right", "sum"), (LOSS, "sum"), (WEIGHT, "sum")])
    for row in sums.to_pylist():
        right_sum, loss, weight = (_number(row[f"{name}_sum"]) for name in ("right", LOSS, WEIGHT))
        key = Key(*(row[name] for name in Key._fields))
        stat = RowStatistics(row["count_all"], right_sum, loss, weight)
        cells[key] = cells.get(key, RowStatistics()) + stat


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def rows_of(table: pa.Table, seed: int) -> Rows:
    """Return class, group, hash and row id of each row."""
    rows = np.empty(table.num_rows, ROW)
    for name, column in (("y", LABEL), ("group", GROUP), ("row_id", ROW_ID)):
        rows[name] = table.column(column).to_numpy()
    rows["hash"] = row_hashes(rows["row_id"], seed, "report/rows")
    return rows


def first_per_group(rows: Rows, k: int) -> tuple[Rows, NDArray[np.int64]]:
    """Return the k rows with the smallest hash of each (class, group), and their ranks (from 0) in it."""
    rows = rows[np.lexsort((rows["hash"], rows["group"], rows["y"]))]
    starts = np.ones(len(rows), bool)
    starts[1:] = (rows["y"][1:] != rows["y"][:-1]) | (rows["group"][1:] != rows["group"][:-1])
    position = np.arange(len(rows))
    rank = position - np.maximum.accumulate(np.where(starts, position, 0))
    return rows[rank < k], rank[rank < k]


def outliers_and_noise(table: pa.Table) -> Float64:
    """Return (m, 3) whether an outlier, loss and row id of the rows that are outliers or noise."""
    outlier = table.column(IS_OUTLIER).to_numpy()
    loss = np.nan_to_num(table.column(LOSS).to_numpy(), nan=0.0)
    wanted = outlier.astype(bool) | (table.column(GROUP).to_numpy() == NOISE)
    found = np.column_stack([outlier, loss, table.column(ROW_ID).to_numpy()])
    return np.asarray(found[wanted], np.float64)


def gather(plan: Plan, row_ids: NDArray[np.int64], columns: list[str], source: list[str]) -> pa.Table:
    """Read columns of the given rows, in row order, one shard at a time.

    Parameters
    ----------
    columns
        Columns that operators add.
    source
        Columns of the source; they are returned as ``source.<name>``.
    """
    reader = plan.reader()
    wanted = np.unique(row_ids)
    tables = []
    for info in plan.shards:
        places = wanted[(wanted >= info.first_row) & (wanted < info.first_row + info.n_rows)] - info.first_row
        if not len(places):
            continue
        table = reader.read_all(info.index, columns)
        if source:
            raw = reader.read_with_truth(info.index, source)
            for name in source:
                # A source column may have the name of an operator's column.
                table = table.append_column(f"source.{name}", raw.column(name))
        tables.append(table.take(pa.array(places)))
    return pa.concat_tables(tables)
