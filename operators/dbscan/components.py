"""Connected components of the core samples at one radius, with few comparisons.

Almost every core sample of a large cluster lies within ``eps`` of one of a few dozen random core samples
(pivots). Components that are connected through pivots are joined first, at the cost of one small product per
row. Only core samples outside the largest component are then compared with the other core samples, except
with those in their own component and those that the bounding boxes exclude. A row that has joined the largest
component is compared no further, but other rows are still compared with it.
"""

from __future__ import annotations

from threading import Lock

import numpy as np
import numpy.typing as npt

from operators.arrays import Index
from operators.dbscan import tiles as t
from operators.dbscan.bounding_boxes import Blocks, BoxIndex
from operators.dbscan.tiles import TileBuffer, Tiles, in_threads, pieces
from operators.disjoint_sets import DisjointSets

PIVOTS = 64
"""Pivots of a round: the bits of a word."""
PROGRESS = 0.8
"""A round of pivots must leave at most this share of the components outside the largest."""
OWN_BLOCKS = 64
"""Rows from which a component has blocks of its own, which are then skipped together."""

Words = npt.NDArray[np.uint64]


class Joiner:
    """Joins core samples within one radius in a forest.

    Parameters
    ----------
    tiles : products of all rows.
    level : the radius.
    forest : grows; edges already in it must be edges at this radius.
    space : coordinates for the bound.
    random : generator that draws the pivots; the components do not depend on it.
    """

    def __init__(
        self, tiles: Tiles, level: int, forest: DisjointSets, space: BoxIndex, random: np.random.Generator
    ) -> None:
        self._tiles, self._level, self._forest = tiles, level, forest
        self._space, self._random = space, random
        self._lock = Lock()

    def join(self, cores: Index) -> None:
        """Join all of ``cores`` that are connected through ``cores``."""
        if not len(cores):
            return
        inside, outside = self._split(cores)
        n_left = len(cores)
        while len(outside) > PIVOTS:
            self._through_pivots(inside, outside)
            inside, outside = self._split(cores)
            n_before, n_left = n_left, len(np.unique(self._forest.find(outside)))
            if n_left > PROGRESS * n_before:
                break
        if len(outside):
            self._search(inside, outside)

    def _split(self, cores: Index) -> tuple[Index, Index]:
        """Return the core samples within and outside the largest component."""
        roots = self._forest.find(cores)
        sizes = np.bincount(roots)
        largest = roots == np.argmax(sizes)
        return cores[largest], cores[~largest]

    def _through_pivots(self, inside: Index, outside: Index) -> None:
        """Join the rows outside through random pivots, half of them from inside and half from outside."""
        half = min(PIVOTS // 2, len(inside))
        drawn = [self._random.choice(inside, half, replace=False)]
        drawn.append(self._random.choice(outside, PIVOTS - half, replace=False))
        pivots = np.concatenate(drawn)
        side = self._tiles.side(pivots)

        def work(rows: Index) -> Words:
            tiles, buffer = self._tiles, self._tiles.buffer()
            least = tiles.at_least(rows, side, self._level, certain=True)
            near = tiles.near(tiles.products(rows, side, buffer), least, buffer)
            return np.packbits(near, axis=1, bitorder="little").view(np.uint64)[:, 0]

        rows = np.concatenate([outside, pivots])
        words = np.concatenate(list(in_threads(work, pieces(rows, self._tiles.fitting(PIVOTS)))))
        touching = words != 0
        words, rows = words[touching], rows[touching]
        lowest = np.bitwise_count((words & (~words + np.uint64(1))) - np.uint64(1))
        self._forest.union(rows, pivots[lowest])
        several = np.unique(words[words & (words - np.uint64(1)) != 0])
        for group in _linked(several):
            self._forest.union(pivots[group], np.full(len(group), pivots[group[0]]))

    def _search(self, inside: Index, outside: Index) -> None:
        """Find every edge of the rows outside that can still join two components."""
        blocks = self._own_blocks(outside)
        largest = self._space.among(inside)
        root = inside[:1]

        def work(position: int) -> None:
            rows, buffer = blocks.rows[position], self._tiles.buffer()
            limit = self._tiles.limits[self._level]
            near = blocks.nearest(blocks.low[position], blocks.high[position], limit)
            for k in near[near >= position]:
                # Rows that have joined the largest component take part: rows of later blocks may join by
                # them.
                self._compare(rows, blocks.rows[k], buffer)
            near = largest.nearest(blocks.low[position], blocks.high[position], limit)
            cols = np.concatenate([*(largest.rows[k] for k in near), rows[:0]])
            for some in pieces(cols, self._tiles.cols):
                rows = rows[self._roots(rows) != self._roots(root)]
                if not len(rows):
                    return
                self._compare(rows, some, buffer)

        for _ in in_threads(work, range(len(blocks.rows))):
            pass

    def _own_blocks(self, outside: Index) -> Blocks:
        """Put the rows outside in blocks that large components do not share with others."""
        _, member, sizes = np.unique(self._forest.find(outside), return_inverse=True, return_counts=True)
        alone = (sizes >= OWN_BLOCKS)[member]
        order = np.argsort(member, kind="stable")
        ends = np.cumsum(sizes)
        rows = [
            block
            for k in np.flatnonzero(sizes >= OWN_BLOCKS)
            for block in self._space.cut(outside[order[ends[k] - sizes[k] : ends[k]]], t.TILE_ROWS).rows
        ]
        if not alone.all():
            rows += self._space.cut(outside[~alone], t.TILE_ROWS).rows
        return self._space.box(rows)

    def _roots(self, rows: Index) -> Index:
        with self._lock:
            return self._forest.find(rows)

    def _compare(self, rows: Index, cols: Index, buffer: TileBuffer) -> None:
        """Join the pairs of one tile that are within the radius and not yet joined."""
        row_roots, col_roots = self._roots(rows), self._roots(cols)
        if not len(rows) or _all_equal(row_roots, col_roots):
            return
        i, j, products = self._tiles.candidates(rows, cols, self._level, buffer)
        apart = row_roots[i] != col_roots[j]
        i, j = rows[i[apart]], cols[j[apart]]
        within = self._tiles.decide(i, j, products[apart]) <= self._level
        with self._lock:
            self._forest.union(i[within], j[within])


def _all_equal(a: Index, b: Index) -> bool:
    return len(a) > 0 and bool((a == a[0]).all() and (b == a[0]).all())


def _linked(words: Words) -> list[Index]:
    """Return the sets of pivots that are connected by words with several bits set."""
    groups, done = [], np.uint64(0)
    for bit in range(PIVOTS):
        mask = np.uint64(1 << bit)
        if mask & done:
            continue
        while True:
            linked = mask | np.bitwise_or.reduce(words[(words & mask) != 0], initial=np.uint64(0))
            if linked == mask:
                break
            mask = linked
        done |= mask
        groups.append(np.flatnonzero(np.array([int(mask) >> k & 1 for k in range(PIVOTS)])))
    return [group for group in groups if len(group) > 1]
