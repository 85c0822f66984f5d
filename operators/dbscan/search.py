"""Complete neighbourhoods of the few rows that samples do not settle."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np

from operators.dbscan import tiles as t
from operators.dbscan.density import Density, Pairs
from operators.dbscan.distances import Float64, Index
from operators.dbscan.space import Blocks, Space
from operators.dbscan.tiles import Level, Tiles, in_threads, pieces

AT_ONCE = 1 << 14  # pairs found before they are counted, and dense rows dropped
ENTRIES_PER_ROW = 100  # neighbours kept, on average over all rows; where there are more, none are kept
ENTRIES = 1 << 23  # but so many always


class Search:
    """Counts, and where they are few keeps, the neighbours of every row whose ``level`` is open.

    Parameters
    ----------
    tiles : products of the n rows.
    goal : neighbours (or weight) from which a row needs no further looking at a level.
    level : (n,) int16, lowered in place as rows meet the goal.
    weight : (n,) what each row counts for, or None for 1.
    """

    def __init__(self, tiles: Tiles, goal: float, level: Level, weight: Float64 | None) -> None:
        self._tiles, self._goal, self._level, self._weight = tiles, goal, level, weight
        self._counts = np.zeros((tiles.n, len(tiles.eps)))  # by the level at which a neighbour comes in
        # Each row is its own neighbour, also a zero row.
        self._counts[:, 0] = 1.0 if weight is None else weight
        # Below the goal there are fewer than ``goal`` neighbours to keep, unless they have weights.
        self._kept: list[Pairs] | None = [] if weight is None else None
        self._n_kept, self._tidy_at = 0, ENTRIES
        # A sum with negative weights may fall again: such rows are looked at to the end.
        self._grows = weight is None or float(weight.min()) >= 0
        self._margin = 0.0 if weight is None else _rounding(weight)
        if self._grows:
            self._level[self._counts[:, 0] >= goal + self._margin] = -1
        self._lock = Lock()

    def run(self, space: Space) -> Density:
        """Search all open rows, first among each other, where each product serves both, then the rest."""
        settled = np.flatnonzero(self._level < 0)
        self._among_open(self._open_blocks(space))
        open_ = self._open_blocks(space)
        if open_.rows:
            self._against(open_, space.among(settled))
        counts = np.ascontiguousarray(np.cumsum(self._counts, axis=1).T)
        if self._margin:
            self._sum_again(counts)
        return Density(self._level, counts, self._pairs())

    def _open_blocks(self, space: Space) -> Blocks:
        """Open rows, those with the largest radius first, so that a block shares one radius."""
        rows: list[Index] = []
        for level in range(len(self._tiles.eps) - 1, -1, -1):
            rows += space.cut(np.flatnonzero(self._level == level), t.TILE_ROWS).rows
        return space.box(rows)

    def _among_open(self, blocks: Blocks) -> None:
        def work(position: int) -> None:
            rows = blocks.rows[position]
            top = max(int(self._level[r].max()) for r in blocks.rows[position:])
            if top < 0:
                return
            near = blocks.nearest(blocks.low[position], blocks.high[position], self._tiles.limits[top])
            later = [blocks.rows[k] for k in near if k > position]
            if (self._level[rows] < 0).all():
                later = [r[self._level[r] >= 0] for r in later]
            self._look(rows, rows, both=False)
            self._look(rows, np.concatenate([*later, rows[:0]]), both=True)

        for _ in in_threads(work, range(len(blocks.rows))):
            pass

    def _against(self, blocks: Blocks, others: Blocks) -> None:
        def work(position: int) -> None:
            rows = blocks.rows[position]
            top = self._tiles.limits[self._level[rows].max()]
            near = others.nearest(blocks.low[position], blocks.high[position], top)
            self._look(rows, np.concatenate([*(others.rows[k] for k in near), rows[:0]]), both=False)

        for _ in in_threads(work, range(len(blocks.rows))):
            pass

    def _look(self, rows: Index, cols: Index, both: bool) -> None:
        """Note the pairs of some tiles; with ``both``, for the columns as well as for the rows."""
        tiles, level, room = self._tiles, self._level, self._tiles.buffer()
        found: list[tuple[Index, Index, Any]] = []
        n_found, n_cols = 0, 0
        for some in pieces(cols, t.TILE_COLS):
            n_cols += len(some)
            if not both:
                rows = rows[level[rows] >= 0]
            wanted = np.maximum(level[rows], level[some].max()) if both else level[rows]
            if (wanted >= 0).any():
                i, j, products = tiles.candidates(rows, some, wanted, room)
                found.append((rows[i], some[j], products))
                n_found += len(i)
            if found and (n_found >= AT_ONCE or n_cols == len(cols)):
                self._settle(found, both)
                found, n_found = [], 0

    def _settle(self, found: list[tuple[Index, Index, Any]], both: bool) -> None:
        """Note pairs of which the products are known, and lower the levels of their rows."""
        i, j, products = (np.concatenate(part) for part in zip(*found, strict=True))
        i, j, products = i[i != j], j[i != j], products[i != j]
        first = self._tiles.decide(i, j, products)
        with self._lock:
            self._note(i, j, first)
            if both:
                self._note(j, i, first)

    def _note(self, rows: Index, cols: Index, first: Level) -> None:
        """Count, and keep, neighbours of ``rows`` that still matter to them."""
        use = np.flatnonzero(first <= self._level[rows])
        rows, cols, first = rows[use], cols[use], first[use]
        where = rows * self._counts.shape[1] + first
        np.add.at(self._counts.reshape(-1), where, 1.0 if self._weight is None else self._weight[cols])
        if self._kept is not None:
            self._n_kept += len(rows)
            self._kept.append((rows.astype(np.int32), cols.astype(np.int32), first))
        self._lower(rows)
        if self._n_kept > self._tidy_at:
            self._tidy()

    def _tidy(self) -> None:
        """Forget neighbours at levels that their rows have since been found dense at; or all, if too many."""
        self._kept = [_of_use(self._kept, self._level)] if self._kept else None
        self._n_kept = len(self._kept[0][0]) if self._kept else 0
        if self._n_kept > max(ENTRIES, ENTRIES_PER_ROW * self._tiles.n):
            self._kept, self._n_kept = None, 0
        self._tidy_at = max(ENTRIES, 2 * self._n_kept)

    def _lower(self, rows: Index) -> None:
        """Bring the levels of ``rows``, repeats allowed, up to date with their counts."""
        if self._grows:
            touched = np.zeros(self._tiles.n, np.bool_)
            touched[rows] = True
            rows = np.flatnonzero(touched)
            short = np.cumsum(self._counts[rows], axis=1) < self._goal + self._margin
            self._level[rows] = np.minimum(self._level[rows], short.sum(axis=1) - 1)

    def _sum_again(self, counts: Float64) -> None:
        """Sum weights that rounding leaves at the goal in the order that scikit-learn does."""
        points, everyone = self._tiles.points, np.arange(self._tiles.n)
        close = (np.abs(counts - self._goal) <= self._margin) & (
            self._level >= np.arange(len(counts))[:, None]
        )
        for level, row in zip(*np.nonzero(close), strict=True):
            inside = points.within(np.array([row]), everyone, self._tiles.eps[level])[0]
            inside[row] = True
            counts[level, row] = self._weight[inside].sum()  # type: ignore[index]

    def _pairs(self) -> Pairs | None:
        if not self._kept:
            return None if self._kept is None else _no_pairs()
        rows, cols, first = _of_use(self._kept, self._level)
        order = np.argsort(rows, kind="stable")
        return rows[order], cols[order], first[order]


def _of_use(kept: list[Pairs], level: Level) -> Pairs:
    """All kept pairs that still matter to their rows."""
    rows, cols, first = (np.concatenate(part) for part in zip(*kept, strict=True))
    use = first <= level[rows]
    return rows[use], cols[use], first[use]


def _no_pairs() -> Pairs:
    return np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int16)


def _rounding(weight: Float64) -> float:
    """Bound on the rounding of a sum of weights; whole numbers are summed exactly."""
    if (weight == np.rint(weight)).all():
        return 0.0
    return float(len(weight) * np.finfo(np.float64).eps * np.abs(weight).sum())
