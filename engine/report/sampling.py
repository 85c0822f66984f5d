"""Which rows to draw or show, and how to get them: bounded, seeded, one shard at a time.

Rows are chosen by a seeded hash of their row_id, so that the choice does not depend on how the data
is cut into shards, nor on their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.plan.model import Plan
from operators.base import GROUP, IS_OUTLIER, LABEL, LOSS, MARKED_BY, ROW_ID

NOISE = -1
STRONGEST = 24
ROW = np.dtype([("y", "i8"), ("group", "i8"), ("hash", "u8"), ("row_id", "i8")])
Rows = NDArray[np.void]


def rows_of(table: pa.Table, seed: int) -> Rows:
    """Class, group, hash and row id of each row."""
    rows = np.empty(table.num_rows, ROW)
    for name, column in (("y", LABEL), ("group", GROUP), ("row_id", ROW_ID)):
        rows[name] = table.column(column).to_numpy()
    rows["hash"] = row_hash(rows["row_id"], seed)
    return rows


def row_hash(row_ids: NDArray[Any], seed: int) -> NDArray[np.uint64]:
    """A 64-bit hash of each row id (splitmix64's finaliser: Steele, Lea, Flood, OOPSLA 2014)."""
    z = row_ids.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def first_per_group(rows: Rows, k: int) -> tuple[Rows, NDArray[np.int64]]:
    """The k rows with the smallest hash of each (class, group), and their ranks (from 0) in it."""
    rows = rows[np.lexsort((rows["hash"], rows["group"], rows["y"]))]
    starts = np.ones(len(rows), bool)
    starts[1:] = (rows["y"][1:] != rows["y"][:-1]) | (rows["group"][1:] != rows["group"][:-1])
    position = np.arange(len(rows))
    rank = position - np.maximum.accumulate(np.where(starts, position, 0))
    return rows[rank < k], rank[rank < k]


def suspects(table: pa.Table) -> NDArray[np.float64]:
    """(m, 3): whether marked, loss and row id of the rows that are marked or noise."""
    marked = table.column(IS_OUTLIER).to_numpy()
    loss = np.nan_to_num(table.column(LOSS).to_numpy(), nan=0.0)
    wanted = marked.astype(bool) | (table.column(GROUP).to_numpy() == NOISE)
    found = np.column_stack([marked, loss, table.column(ROW_ID).to_numpy()])
    return np.asarray(found[wanted], np.float64)


def judges(plan: Plan) -> tuple[str, ...]:
    """Names of the operators' marks that ``outliers`` decides between."""
    found = [getattr(planned.operator, "judges", ()) for planned in plan.operators]
    return next((tuple(names) for names in found if names), ())


def contested(table: pa.Table, n_judges: int) -> NDArray[np.float64]:
    """As :func:`suspects`, of the rows that some judges mark and others do not."""
    reasons = table.column(MARKED_BY).to_pylist()
    votes = np.array([len(text.split("+")) if text else 0 for text in reasons])
    loss = np.nan_to_num(table.column(LOSS).to_numpy(), nan=0.0)
    found = np.column_stack([table.column(IS_OUTLIER).to_numpy(), loss, table.column(ROW_ID).to_numpy()])
    return np.asarray(found[(votes > 0) & (votes < n_judges)], np.float64)


def keep_strongest(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ``STRONGEST`` first of :func:`suspects` rows."""
    return rows[np.lexsort((rows[:, 2], -rows[:, 1], -rows[:, 0]))[:STRONGEST]]


def gather(plan: Plan, row_ids: NDArray[np.int64], sidecar: list[str], source: list[str]) -> pa.Table:
    """Columns of the given rows, in row order. Reads one shard at a time, only those that have such rows."""
    reader = plan.reader()
    wanted = np.unique(row_ids)
    tables = []
    for info in plan.shards:
        places = wanted[(wanted >= info.first_row) & (wanted < info.first_row + info.n_rows)] - info.first_row
        if not len(places):
            continue
        table = reader.read_all(info.index, sidecar)
        if source:
            raw = reader.read_unhidden(info.index, source)
            for name in source:
                # A source column may have the name of a sidecar one.
                table = table.append_column(f"source.{name}", raw.column(name))
        tables.append(table.take(pa.array(places)))
    return pa.concat_tables(tables)
