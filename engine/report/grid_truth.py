"""ARI of every setting that was tried, where the truth is known and the labels of all settings were kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.plan.model import Plan
from engine.report.selection import Grid
from engine.report.statistics import adjusted_rand_index
from engine.report.survey import Survey, cast_or_null
from operators.base import LABEL, ROW_ID
from operators.grasp.state import grid_path, read_grid

MOST_TRUE_GROUPS = 200
"""More distinct values than that are no groups, and would make the tables large."""
Tables = dict[tuple[int, int], NDArray[np.int64]]


def grid_aris(plan: Plan, found: Survey, grids: list[Grid]) -> dict[int, NDArray[np.float64]]:
    """(n_eps, n_min_samples) ARI of each class whose grid was kept; empty without a truth column.

    Adds up one table of counts per setting, shard by shard: rows of a label and a true group. Memory:
    the tables and the grid of one shard's rows.
    """
    names = sorted({str(name) for name in found.total(lambda key: key.true_group)})
    if plan.recipe.truth.group is None or len(names) > MOST_TRUE_GROUPS:
        return {}
    kept = {grid.index: grid for grid in grids if grid_path(_state(plan), grid.index).exists()}
    tables: dict[int, Tables] = {index: _empty(grid, len(names)) for index, grid in kept.items()}
    for info in plan.shards if kept else ():
        rows, labels, true = _shard(plan, info.index, names)
        for index in set(kept).intersection(np.unique(labels).tolist()):
            own = labels == index
            _add(tables[index], plan, index, rows[own], true[own])
    return {index: _scores(tables[index], kept[index]) for index in kept}


def _shard(
    plan: Plan, shard: int, names: list[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row id, class and true group (its place among ``names``) of a shard's valid rows."""
    reader, column = plan.reader(), str(plan.recipe.truth.group)
    table = reader.read_all(shard, [LABEL])
    true = cast_or_null(reader.read_unhidden(shard, [column]).column(column), pa.string())
    place = pc.index_in(pc.fill_null(true, "None"), pa.array(names))
    valid = pc.is_valid(table.column(LABEL)).to_numpy()
    labels = table.column(LABEL).fill_null(-1).to_numpy()
    return table.column(ROW_ID).to_numpy()[valid], labels[valid], place.to_numpy()[valid]


def _empty(grid: Grid, n_true: int) -> Tables:
    """A table of zeros for each setting: labels from -1 by true groups."""
    return {(e, m): np.zeros((int(n) + 1, n_true), np.int64) for (e, m), n in np.ndenumerate(grid.groups)}


def _add(tables: Tables, plan: Plan, index: int, rows: NDArray[np.int64], true: NDArray[np.int64]) -> None:
    """Add rows of a class to its tables, in place."""
    for cell, groups in read_grid(_state(plan), index, rows):
        table = tables[cell]
        pairs = (groups.astype(np.int64) + 1) * table.shape[1] + true
        table += np.bincount(pairs, minlength=table.size).reshape(table.shape)


def _state(plan: Plan) -> Path:
    return plan.store.state(plan.fingerprint_of("groups"))


def _scores(tables: Tables, grid: Grid) -> NDArray[np.float64]:
    scores = np.zeros(grid.groups.shape)
    for cell, table in tables.items():
        counts = {(int(a), int(b)): int(table[a, b]) for a, b in np.argwhere(table)}
        scores[cell] = adjusted_rand_index(counts)
    return scores
