"""The edges between base cores that hubs have not shown, found by comparing the rows outside the giant.

Two rows are joined at a level below which no hub joins them only if one of them joins the giant
later than that. So only such rows ask, each up to the level at which it joins the giant as far as is
known, and each only until that is its own core level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from operators.dbscan import tiles as t
from operators.dbscan.distances import Float64, Index, Mask
from operators.dbscan.projections import coordinates
from operators.dbscan.sharded.density import boxes, core_of
from operators.dbscan.sharded.hubs import Attached, attached, attached_of, load_hubs, outside
from operators.dbscan.sharded.layout import Layout
from operators.dbscan.sharded.levels import Edges, LevelForest, lightest
from operators.dbscan.sharded.points import Rows, Window, read_rows
from operators.dbscan.sharded.queries import Slices, group_rows
from operators.dbscan.space import Blocks, box, halve
from operators.dbscan.tiles import Level, Tiles, pieces

OWN_TILES = 64  # rows of one hub from which they get tiles of their own: rows joined to them are skipped


def link(layout: Layout, round_: int, key: int, slices: Slices) -> int:
    """Store, as ``links``, the edges that a group of outside rows shows; their number.

    An end that is attached to its hub at the edge's level is replaced by the hub.
    """
    numbers = group_rows(layout, lambda block: outside(layout, round_, block), slices)
    edges = _Linker(layout, round_, read_rows(layout, numbers)).run(slices[0][0])
    layout.pack("links", key, edges._asdict())
    return len(edges.a)


class _Linker:
    """Nodes of the forest: hubs, then the head's rows, then those of the block in view."""

    def __init__(self, layout: Layout, round_: int, head: Rows) -> None:
        self._layout, self._round, self._head = layout, round_, head
        self._hubs = load_hubs(layout, round_)
        self._to = attached_of(layout, round_, head.number)
        self._core = core_of(layout, head.number)[-1]
        self._window = Window(layout, head)
        self._first = self._hubs.parent.shape[1]
        self._first_tail = self._first + len(head.number)
        parent = np.tile(np.arange(self._first_tail + min(layout.block_rows, layout.n)), (len(layout.eps), 1))
        parent[:, : self._first] = self._hubs.parent
        parent[:, self._first : self._first_tail] = self._parents(self._to, self._first)
        self._forest = LevelForest(parent)
        self._joins = self._join_levels(np.arange(len(head.number)))
        self._keys, self._queries = self._cut(coordinates(head.vectors, layout.load("directions", 0)))
        self._found: list[Edges] = []

    def _parents(self, to: Attached, first: int) -> npt.NDArray[np.intp]:
        """(n_levels, n) parents of rows numbered from ``first``: their hubs' roots, or they themselves."""
        levels = np.arange(len(self._layout.eps))[:, None]
        if not self._first:
            return np.tile(first + np.arange(len(to.hub)), (len(levels), 1))
        return np.where(to.level <= levels, self._hubs.parent[:, to.hub], first + np.arange(len(to.hub)))

    def _cut(self, at: Float64) -> tuple[list[int], Blocks]:
        """Tiles of rows; where all are attached to one hub as soon as they are core, its number (else -1)."""
        key = np.where(self._to.level <= self._core, self._to.hub, -1)
        hubs, sizes = np.unique(key, return_counts=True)
        key[np.isin(key, hubs[sizes < OWN_TILES])] = -1
        keys: list[int] = []
        rows: list[Index] = []
        for hub in np.unique(key).tolist():
            some = halve(at, np.flatnonzero(key == hub), t.TILE_ROWS)
            rows += some
            keys += [hub] * len(some)
        return keys, box(at, rows)

    def run(self, first: int) -> Edges:
        """Look through all blocks, beginning with ``first``."""
        n = len(self._layout.blocks)
        for k in range(n):
            if (self._joins <= self._core).all():
                break
            self._look_through((first + k) % n)
            self._found = [lightest(Edges.joined(self._found))]
        return Edges.joined(self._found)

    def _look_through(self, block: int) -> None:
        to, core = attached(self._layout, self._round, block), self._layout.load("core", block)[-1]
        self._forest.reset(
            slice(self._first_tail, self._first_tail + len(core)), self._parents(to, self._first_tail)
        )
        tail, tiles = boxes(self._layout, block), None
        for position, rows in enumerate(self._queries.rows):
            rows = rows[self._joins[rows] > self._core[rows]]
            if not len(rows):
                continue
            top = int(self._joins[rows].max()) - 1
            near = tail.nearest(
                self._queries.low[position], self._queries.high[position], self._window.limits[top]
            )
            cols = np.concatenate([*(tail.rows[k] for k in near), rows[:0]])
            cols = cols[core[cols] <= top]
            cols = cols[~self._joined_to(self._keys[position], rows, cols, core, to)]
            if len(cols):
                tiles = tiles or self._window.beside(block)
                self._look(tiles, rows, cols, _Tail(block, core, to))

    def _joined_to(self, hub: int, rows: Index, cols: Index, core: Level, to: Attached) -> Mask:
        """Columns that are joined to all rows of a hub as soon as both are core."""
        if hub < 0:
            return np.zeros(len(cols), np.bool_)
        level = np.maximum(core[cols], self._core[rows].min())
        nodes = cols + self._first_tail
        joined = self._forest.together(nodes, np.full_like(nodes, hub), level)
        return np.asarray((to.level[cols] <= level) & joined)

    def _look(self, tiles: Tiles, rows: Index, cols: Index, tail: _Tail) -> None:
        """Find and note the edges of some tiles."""
        n_head, n_levels = len(self._core), len(self._layout.eps)
        for some in pieces(cols, t.TILE_COLS):
            rows = rows[self._joins[rows] > self._core[rows]]
            if not len(rows):
                return
            top = self._joins[rows] - np.int16(1)
            i, j, products = tiles.candidates(rows, some + n_head, top, tiles.buffer())
            i, j = rows[i], some[j]
            level = np.maximum(self._core[i], tail.core[j])
            apart = np.flatnonzero(~self._together(i, j, level))
            i, j = i[apart], j[apart]
            level = np.maximum(level[apart], tiles.decide(i, j + n_head, products[apart]))
            new = np.flatnonzero(level < n_levels)
            new = new[~self._together(i[new], j[new], level[new])]
            if len(new):
                self._note(i[new], j[new], level[new], tail)

    def _together(self, i: Index, j: Index, level: Level) -> Mask:
        return self._forest.together(i + self._first, j + self._first_tail, level)

    def _note(self, i: Index, j: Index, level: Level, tail: _Tail) -> None:
        numbers = j + tail.block * self._layout.block_rows
        a = end_nodes(self._head.number[i], Attached(self._to.hub[i], self._to.level[i]), level)
        b = end_nodes(numbers, Attached(tail.to.hub[j], tail.to.level[j]), level)
        self._found.append(lightest(Edges(a, b, level)))
        self._forest.union(i + self._first, j + self._first_tail, level)
        rows = np.flatnonzero(self._joins > self._core)
        self._joins[rows] = self._join_levels(rows)

    def _join_levels(self, rows: Index) -> Level:
        """Level from which each row is joined to the giant."""
        n_levels = len(self._layout.eps)
        if not self._first:
            return np.full(len(rows), n_levels, np.int16)
        levels = np.arange(n_levels)[:, None]
        giant = self._forest.find(levels, np.array([self._hubs.giant]))
        apart = self._forest.find(levels, rows + self._first) != giant
        return np.asarray(apart.sum(axis=0), np.int16)


class _Tail(NamedTuple):
    """The block in view."""

    block: int
    core: Level
    to: Attached


def end_nodes(numbers: Index, to: Attached, level: Level) -> Index:
    """Nodes of the ends of edges: the hub where a row is attached to it at the edge's level."""
    return np.where(to.level <= level, -1 - to.hub.astype(np.intp), numbers)
