"""One pass over the shards: counts of everything the report speaks of, and which rows to draw.

Every count is kept in cells, one for each combination of the small columns in :class:`Key`; all
tables and scores are sums over cells. Rows to draw are chosen by a seeded hash of their row_id, so
that they do not depend on how the data is cut into shards.
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
from engine.report.sampling import (
    ROW,
    Rows,
    contested,
    first_per_group,
    judges,
    keep_strongest,
    row_hash,
    rows_of,
    suspects,
)
from engine.report.statistics import Stat
from engine.storage.reader import StoreReader
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

DRAWN_PER_GROUP = 1_000
DRAWN_SHARDS = 64
"""Gradients are wide: past this many shards, the rows to draw come from so many of them."""
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
"""Sidecar columns read for every row, and what they are cast to."""

H = TypeVar("H", bound=Hashable)


class Key(NamedTuple):
    """What the rows of a cell have in common. ``y`` is None for rows that were quarantined."""

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
    """What one pass found."""

    cells: dict[Key, Stat]
    """Rows that operators saw."""
    quarantined: int
    drawn: NDArray[np.int64]
    """Row ids for scatter plots, so ordered that any beginning holds each group as evenly as can be."""
    shown: dict[tuple[int, int], NDArray[np.int64]]
    """(class, group) -> row ids to show."""
    strongest: NDArray[np.int64]
    """Row ids of outliers and noise: marked ones first, then by falling loss."""
    contested: NDArray[np.int64]
    """Row ids on which the judges of outliers differ, in the same order."""

    def total(self, key: Callable[[Key], H]) -> dict[H, Stat]:
        """Sums of cells with the same ``key(cell)``."""
        found: dict[H, Stat] = {}
        for cell, stat in self.cells.items():
            name = key(cell)
            found[name] = found[name] + stat if name in found else stat
        return found


def survey(plan: Plan, executor: Executor) -> Survey:
    """Read the small columns of every shard once, on workers; summaries are added up in the shards' order."""
    hashes = row_hash(np.arange(len(plan.shards)), plan.recipe.seed)
    wide = set(np.argsort(hashes, kind="stable")[:DRAWN_SHARDS].tolist())
    look = ShardSurvey(
        plan.reader(),
        plan.recipe.truth,
        plan.recipe.seed,
        plan.recipe.report.rows_per_group,
        len(judges(plan)),
    )
    pieces = [(shard.index, shard.index in wide) for shard in plan.shards]
    whole = Summary({}, np.empty(0, ROW), np.empty(0, ROW), np.empty((0, 3)), np.empty((0, 3)))
    for found in executor.map(look, pieces):
        whole.add(found, look.rows_per_group)
    return whole.survey()


@dataclass
class Summary:
    """What some shards hold: it adds up, and its size does not depend on their rows."""

    cells: dict[Key, Stat]
    drawn: Rows
    shown: Rows
    strongest: NDArray[np.float64]
    contested: NDArray[np.float64]

    def add(self, other: Summary, rows_per_group: int) -> None:
        """Add the summary of other shards."""
        for key, stat in other.cells.items():
            self.cells[key] = self.cells.get(key, Stat()) + stat
        self.shown = first_per_group(np.concatenate([self.shown, other.shown]), rows_per_group)[0]
        self.drawn = first_per_group(np.concatenate([self.drawn, other.drawn]), DRAWN_PER_GROUP)[0]
        self.strongest = keep_strongest(np.concatenate([self.strongest, other.strongest]))
        self.contested = keep_strongest(np.concatenate([self.contested, other.contested]))

    def survey(self) -> Survey:
        """The whole, once every shard has been added."""
        drawn, rank = first_per_group(self.drawn, DRAWN_PER_GROUP)
        order, shown = np.lexsort((drawn["hash"], rank)), self.shown
        groups = np.unique(shown[["y", "group"]])
        return Survey(
            {key: stat for key, stat in self.cells.items() if key.y is not None},
            sum(stat.rows for key, stat in self.cells.items() if key.y is None),
            drawn["row_id"][order],
            {(int(y), int(g)): shown["row_id"][(shown["y"] == y) & (shown["group"] == g)] for y, g in groups},
            self.strongest[:, 2].astype(np.int64),
            self.contested[:, 2].astype(np.int64),
        )


@dataclass(frozen=True)
class ShardSurvey:
    """Summarises one shard on a worker. Picklable."""

    reader: StoreReader
    truth: TruthSection
    seed: int
    rows_per_group: int
    n_judges: int

    def __call__(self, piece: tuple[int, bool]) -> Summary:
        """``piece``: the shard, and whether rows to draw may come from it."""
        shard, wide = piece
        table = small_columns(self.reader, self.truth, shard)
        cells: dict[Key, Stat] = {}
        add_cells(cells, table)
        seen = table.filter(pc.is_valid(table.column(LABEL)))
        fresh = rows_of(seen, self.seed)
        differing = contested(seen, self.n_judges) if self.n_judges > 1 else np.empty((0, 3))
        return Summary(
            cells,
            first_per_group(fresh, DRAWN_PER_GROUP)[0] if wide else fresh[:0],
            first_per_group(fresh, self.rows_per_group)[0],
            keep_strongest(suspects(seen)),
            keep_strongest(differing),
        )


def small_columns(reader: StoreReader, truth: TruthSection, shard: int) -> pa.Table:
    """The columns of ``SMALL``, ``row_id`` and the truth of one shard; nulls for what is absent."""
    there = [name for name in SMALL if name in reader.columns]
    found = reader.read_all(shard, there)
    n = found.num_rows
    columns = {ROW_ID: found.column(ROW_ID)}
    for name, kind in SMALL.items():
        columns[name] = found.column(name).cast(kind) if name in there else pa.nulls(n, kind)
    source = reader.read_unhidden(shard, list(truth.columns)) if truth.columns else None
    for key, wanted, kind in (
        ("true_group", truth.group, pa.string()),
        ("true_outlier", truth.outlier, pa.bool_()),
    ):
        columns[key] = cast_or_null(source.column(wanted), kind) if source and wanted else pa.nulls(n, kind)
    return pa.table(columns)


def cast_or_null(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast; all nulls where the values cannot be cast (the scores then say so)."""
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([pa.nulls(len(column), kind)])


def add_cells(cells: dict[Key, Stat], table: pa.Table) -> None:
    """Add a shard's counts to ``cells``, in place."""
    right = pc.equal(table.column(PREDICTION), table.column(LABEL)).cast(pa.int64())
    keyed = table.append_column("right", right).group_by(list(Key._fields), use_threads=False)
    sums = keyed.aggregate([([], "count_all"), ("right", "sum"), (LOSS, "sum"), (WEIGHT, "sum")])
    for row in sums.to_pylist():
        right_sum, loss, weight = (_number(row[f"{name}_sum"]) for name in ("right", LOSS, WEIGHT))
        key = Key(*(row[name] for name in Key._fields))
        cells[key] = cells.get(key, Stat()) + Stat(row["count_all"], right_sum, loss, weight)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
