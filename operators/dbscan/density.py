"""Core samples at each radius of a grid, without counting the neighbours of most rows.

The radii of a grid are levels in ascending order. A row with ``goal`` neighbours at one level has them at
all larger levels, so one number per row suffices: the largest level at which it has fewer, -1 if there is
none.

1. Up to ``MAX_ROWS`` rows with few neighbours: :func:`compare_all_pairs` compares all pairs.
2. Otherwise :func:`decide_by_samples` compares rows with random samples. Most rows of a large cluster have
   ``goal`` neighbours within a small sample and need no further comparison. The next sample is drawn from
   the rows that are left, in which smaller clusters have a larger share.
3. :class:`Search` compares the rows that samples do not decide with all others, and keeps the
   neighbourhoods it finds while they are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Index
from operators.dbscan import tiles as t
from operators.dbscan.bounding_boxes import Blocks, BoxIndex
from operators.dbscan.tiles import Level, Side, Tiles, in_threads, pieces

SAMPLE_PER_GOAL = 5
"""Rows of the first sample per ``goal``: a row with a fifth of all rows near it meets the goal there."""
MIN_SAMPLE = 64
GROWTH = 4
"""Factor of the sample size from one round to the next."""
MAX_SAMPLE_GROWTH = 4
"""Largest sample as a multiple of the first one."""
STALLED = 0.2
"""Sampling ends if a sample lowers the level of at most this share of the open rows."""
AGAIN = 0.5
"""Sampling ends if a sample of the largest size decides at most this share of the open rows."""
MIN_TILE_ROWS = 64
"""Rows of a tile, however large the sample."""
MAX_SAMPLE_SHARE = 0.25
"""Largest sample as a share of all rows."""

Pairs: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Level]


@dataclass(eq=False)
class Density:
    """Result of the density search for each row.

    Attributes
    ----------
    level : (n,) int16: largest level at which the row has fewer than ``goal`` neighbours, -1 if none.
    counts : (n_levels, n) float64: neighbours (or their weight) at each level; exact for levels
        <= ``level``, a lower bound or nothing above it.
    pairs : rows (ascending), neighbours, and first level of every neighbourhood at levels <= ``level``,
        but for the rows themselves; None where they were too many to keep.
    """

    level: Level
    counts: Float64
    pairs: Pairs | None


def decide_by_samples(tiles: Tiles, goal: float, level: Level, random: np.random.Generator) -> None:
    """Lower ``level``, in place, for rows of which a random sample alone holds ``goal`` neighbours."""
    size = max(MIN_SAMPLE, int(SAMPLE_PER_GOAL * goal))
    largest = min(MAX_SAMPLE_GROWTH * size, int(MAX_SAMPLE_SHARE * tiles.n))
    open_rows = np.flatnonzero(level >= 0)
    while len(open_rows) > size and size <= largest:
        # Half from the open rows, for their clusters; half from all rows, for the border of decided clusters.
        drawn = random.choice(tiles.n, size, replace=False)
        drawn[: size // 2] = random.choice(open_rows, size // 2, replace=False)
        sample = tiles.side(np.unique(drawn))

        def lowered(rows: Index, sample: Side = sample) -> Level:
            return lowered_levels(tiles, rows, sample, level[rows], goal)

        parts = in_threads(lowered, pieces(open_rows, max(MIN_TILE_ROWS, tiles.fitting(size))))
        new = np.concatenate(list(parts))
        moved, decided = np.mean(new < level[open_rows]), np.mean(new < 0)
        level[open_rows] = new
        if moved <= STALLED or (size == largest and decided <= AGAIN):
            return
        open_rows = open_rows[new >= 0]
        size = min(GROWTH * size, largest)


def lowered_levels(tiles: Tiles, rows: Index, sample: Side, level: Level, goal: float) -> Level:
    """Return the levels of ``rows`` after those at which ``sample`` holds ``goal`` certain neighbours."""
    buffer = tiles.buffer(len(rows) * len(sample.rows))
    products = tiles.products(rows, sample, buffer)
    short, met = np.full_like(level, -1), level + np.int16(1)
    while True:  # bisection over the levels; rows that are done give the same answer again
        middle = np.minimum((short + met + 1) // 2, level).astype(np.int16)
        least = tiles.at_least(rows, sample, middle, certain=True)
        dense = tiles.count_near(products, least, buffer) >= goal
        met, short = np.where(dense, np.minimum(met, middle), met), np.where(dense, short, middle)
        if (met - short <= 1).all():
            return np.asarray(met - np.int16(1))


MAX_ROWS = 1024
"""Largest number of rows of which all pairs are compared."""
MAX_PAIRS = 1 << 16
"""Largest number of neighbour pairs that :func:`compare_all_pairs` returns."""
PROBE_ROWS = 256
"""Rows after which the number of pairs is extrapolated to all rows."""


def compare_all_pairs(tiles: Tiles) -> Density | None:
    """Return counts and complete neighbourhoods at every level, or None if there are too many rows or
    pairs.
    """
    everyone, top = np.arange(tiles.n), len(tiles.eps) - 1
    if tiles.n > MAX_ROWS:
        return None
    found: list[Pairs] = []
    n_found = 0
    for some in pieces(everyone, PROBE_ROWS):
        i, j, products = tiles.candidates(some, everyone, top, tiles.buffer(len(some) * tiles.n))
        n_found += len(i)
        if n_found * tiles.n > MAX_PAIRS * (some[-1] + 1):
            return None
        i = some[i]
        level = tiles.decide(i, j, products)
        use = np.flatnonzero((level <= top) & (i != j))
        found.append((i[use].astype(np.int32), j[use].astype(np.int32), level[use]))
    rows, cols, first = (np.concatenate(part) for part in zip(*found, strict=True))
    counts = np.bincount(first.astype(np.intp) * tiles.n + rows, minlength=(top + 1) * tiles.n)
    counts = np.cumsum(counts.reshape(top + 1, tiles.n), axis=0) + 1  # with itself: also a zero row
    return Density(np.full(tiles.n, top, np.int16), counts.astype(np.float64), (rows, cols, first))


AT_ONCE = 1 << 14
"""Pairs that are found before they are counted."""
ENTRIES_PER_ROW = 100
"""Largest mean number of kept neighbours per row; with more, none are kept."""
ENTRIES = 1 << 23
"""Neighbours that are kept whatever their mean number."""


class Search:
    """Counts the neighbours of every row whose ``level`` is at least 0, and keeps them if they are few.

    Parameters
    ----------
    tiles : products of the n rows.
    goal : number (or weight) of neighbours at which a row is decided at a level.
    level : (n,) int16, lowered in place as rows meet the goal.
    weight : (n,) float64 whole numbers >= 0: how many times each row counts; None for once.
    """

    def __init__(self, tiles: Tiles, goal: float, level: Level, weight: Float64 | None) -> None:
        self._tiles, self._goal, self._level, self._weight = tiles, goal, level, weight
        self._counts = np.zeros((tiles.n, len(tiles.eps)))  # by the level at which a neighbour comes in
        # Each row is its own neighbour, also a zero row.
        self._counts[:, 0] = 1.0 if weight is None else weight
        # A row below the goal has fewer than ``goal`` neighbours to keep, unless some have weight 0.
        few = weight is None or bool((weight >= 1).all())
        self._kept: list[Pairs] | None = [] if few else None
        self._n_kept, self._prune_at = 0, ENTRIES
        self._level[self._counts[:, 0] >= goal] = -1
        self._lock = Lock()

    def run(self, space: BoxIndex) -> Density:
        """Compare all open rows with each other, where one product serves both rows, and then with the
        others.
        """
        decided = np.flatnonzero(self._level < 0)
        self._among_open(self._open_blocks(space))
        open_ = self._open_blocks(space)
        if open_.rows:
            self._against(open_, space.among(decided))
        counts = np.ascontiguousarray(np.cumsum(self._counts, axis=1).T)
        return Density(self._level, counts, self._pairs())

    def _open_blocks(self, space: BoxIndex) -> Blocks:
        """Return the open rows in blocks of one level each, the largest level first."""
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
            self._compare(rows, rows, both=False)
            self._compare(rows, np.concatenate([*later, rows[:0]]), both=True)

        for _ in in_threads(work, range(len(blocks.rows))):
            pass

    def _against(self, blocks: Blocks, others: Blocks) -> None:
        def work(position: int) -> None:
            rows = blocks.rows[position]
            top = self._tiles.limits[self._level[rows].max()]
            near = others.nearest(blocks.low[position], blocks.high[position], top)
            self._compare(rows, np.concatenate([*(others.rows[k] for k in near), rows[:0]]), both=False)

        for _ in in_threads(work, range(len(blocks.rows))):
            pass

    def _compare(self, rows: Index, cols: Index, both: bool) -> None:
        """Record the pairs of some tiles for the rows and, with ``both``, for the columns too."""
        tiles, level, buffer = self._tiles, self._level, self._tiles.buffer()
        found: list[tuple[Index, Index, Any]] = []
        n_found, n_cols = 0, 0
        for some in pieces(cols, tiles.cols):
            n_cols += len(some)
            if not both:
                rows = rows[level[rows] >= 0]
            wanted = np.maximum(level[rows], level[some].max()) if both else level[rows]
            if (wanted >= 0).any():
                i, j, products = tiles.candidates(rows, some, wanted, buffer)
                found.append((rows[i], some[j], products))
                n_found += len(i)
            if found and (n_found >= AT_ONCE or n_cols == len(cols)):
                self._decide(found, both)
                found, n_found = [], 0

    def _decide(self, found: list[tuple[Index, Index, Any]], both: bool) -> None:
        """Record pairs whose products are known, and lower the levels of their rows."""
        i, j, products = (np.concatenate(part) for part in zip(*found, strict=True))
        i, j, products = i[i != j], j[i != j], products[i != j]
        first = self._tiles.decide(i, j, products)
        with self._lock:
            self._record(i, j, first)
            if both:
                self._record(j, i, first)

    def _record(self, rows: Index, cols: Index, first: Level) -> None:
        """Count and keep the neighbours of ``rows`` at levels at which these are not yet decided."""
        use = np.flatnonzero(first <= self._level[rows])
        rows, cols, first = rows[use], cols[use], first[use]
        where = rows * self._counts.shape[1] + first
        np.add.at(self._counts.reshape(-1), where, 1.0 if self._weight is None else self._weight[cols])
        if self._kept is not None:
            self._n_kept += len(rows)
            self._kept.append((rows.astype(np.int32), cols.astype(np.int32), first))
        self._lower(rows)
        if self._n_kept > self._prune_at:
            self._prune()

    def _prune(self) -> None:
        """Drop kept neighbours at levels at which their rows are decided by now, or all if they are too
        many.
        """
        self._kept = [_undecided(self._kept, self._level)] if self._kept else None
        self._n_kept = len(self._kept[0][0]) if self._kept else 0
        if self._n_kept > max(ENTRIES, ENTRIES_PER_ROW * self._tiles.n):
            self._kept, self._n_kept = None, 0
        self._prune_at = max(ENTRIES, 2 * self._n_kept)

    def _lower(self, rows: Index) -> None:
        """Lower the levels of ``rows``, which may repeat, to those at which their counts are below the
        goal.
        """
        touched = np.zeros(self._tiles.n, np.bool_)
        touched[rows] = True
        rows = np.flatnonzero(touched)
        short = np.cumsum(self._counts[rows], axis=1) < self._goal
        self._level[rows] = np.minimum(self._level[rows], short.sum(axis=1) - 1)

    def _pairs(self) -> Pairs | None:
        if not self._kept:
            return None if self._kept is None else _no_pairs()
        rows, cols, first = _undecided(self._kept, self._level)
        order = np.argsort(rows, kind="stable")
        return rows[order], cols[order], first[order]


def _undecided(kept: list[Pairs], level: Level) -> Pairs:
    """Return the kept pairs at levels at which their rows are not decided."""
    rows, cols, first = (np.concatenate(part) for part in zip(*kept, strict=True))
    use = first <= level[rows]
    return rows[use], cols[use], first[use]


def _no_pairs() -> Pairs:
    return np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int16)
