"""Edges between core samples that hubs do not connect, and the clusters that follow from all edges.

Two core samples that no hub connects at a level can be connected there only if one of them joins the largest
component ("the giant") at a higher level than the one at which it becomes core. Only such rows are compared
with the blocks (:func:`link`): a group of them, the head, with one block after another, the tail. Each row is
compared up to the level at which it is known to join the giant, until that is its
own core level. :func:`resolve` and :func:`write_nodes` add the edges for smaller ``min_samples`` and for
border rows from the density search and the hubs; :func:`number_clusters` numbers the clusters of one
``min_samples`` at every radius.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Index, Mask
from operators.dbscan import tiles as t
from operators.dbscan.bounding_boxes import Blocks, box, halve
from operators.dbscan.sharded.blocks import Arrays, BlockRows, Layout, Slices, Window, group_rows, read_rows
from operators.dbscan.sharded.density import boxes, core_of
from operators.dbscan.sharded.hubs import Attachment, attachment, attachments, load_hubs, outside
from operators.dbscan.sharded.level_forest import Edges, LevelForest, lightest
from operators.dbscan.tiles import Level, Tiles, pieces
from operators.disjoint_sets import DisjointSets
from operators.points import coordinates

OWN_TILES = 64
"""Rows of one hub from which they have tiles of their own, so that rows joined to all of them are skipped."""


def link(layout: Layout, round_: int, key: int, slices: Slices) -> int:
    """Store, as ``links``, the edges of a group of outside rows, and return their number.

    An end that is attached to its hub at the edge's level is replaced by the hub.
    """
    numbers = group_rows(layout, lambda block: outside(layout, round_, block), slices)
    edges = _Linker(layout, round_, read_rows(layout, numbers)).run(slices[0][0])
    layout.pack("links", key, edges._asdict())
    return len(edges.a)


class _Linker:
    """Finds the edges of the head's rows. Nodes of its forest are hubs, the head's rows, the tail's rows."""

    def __init__(self, layout: Layout, round_: int, head: BlockRows) -> None:
        self._layout, self._round, self._head = layout, round_, head
        self._hubs = load_hubs(layout, round_)
        self._to = attachments(layout, round_, head.number)
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

    def _parents(self, to: Attachment, first: int) -> npt.NDArray[np.intp]:
        """Return the parents (n_levels, n) of rows numbered from ``first``: roots of their hubs, or
        themselves.
        """
        levels = np.arange(len(self._layout.eps))[:, None]
        if not self._first:
            return np.tile(first + np.arange(len(to.hub)), (len(levels), 1))
        return np.where(to.level <= levels, self._hubs.parent[:, to.hub], first + np.arange(len(to.hub)))

    def _cut(self, at: Float64) -> tuple[list[int], Blocks]:
        """Return tiles of rows, each with the hub to which all of its rows are attached once core, or -1."""
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
        """Compare the rows with all blocks, beginning with ``first``."""
        n = len(self._layout.blocks)
        for k in range(n):
            if (self._joins <= self._core).all():
                break
            self._compare_with((first + k) % n)
            self._found = [lightest(Edges.joined(self._found))]
        return Edges.joined(self._found)

    def _compare_with(self, block: int) -> None:
        to, core = attachment(self._layout, self._round, block), self._layout.load("core", block)[-1]
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
                self._compare(tiles, rows, cols, _Tail(block, core, to))

    def _joined_to(self, hub: int, rows: Index, cols: Index, core: Level, to: Attachment) -> Mask:
        """Return the columns that are joined to all rows of a hub as soon as both are core."""
        if hub < 0:
            return np.zeros(len(cols), np.bool_)
        level = np.maximum(core[cols], self._core[rows].min())
        nodes = cols + self._first_tail
        joined = self._forest.together(nodes, np.full_like(nodes, hub), level)
        return np.asarray((to.level[cols] <= level) & joined)

    def _compare(self, tiles: Tiles, rows: Index, cols: Index, tail: _Tail) -> None:
        """Find and record the edges of some tiles."""
        n_head, n_levels = len(self._core), len(self._layout.eps)
        for some in pieces(cols, tiles.cols):
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
                self._record(i[new], j[new], level[new], tail)

    def _together(self, i: Index, j: Index, level: Level) -> Mask:
        return self._forest.together(i + self._first, j + self._first_tail, level)

    def _record(self, i: Index, j: Index, level: Level, tail: _Tail) -> None:
        numbers = j + tail.block * self._layout.block_rows
        a = end_nodes(self._head.number[i], Attachment(self._to.hub[i], self._to.level[i]), level)
        b = end_nodes(numbers, Attachment(tail.to.hub[j], tail.to.level[j]), level)
        self._found.append(lightest(Edges(a, b, level)))
        self._forest.union(i + self._first, j + self._first_tail, level)
        rows = np.flatnonzero(self._joins > self._core)
        self._joins[rows] = self._join_levels(rows)

    def _join_levels(self, rows: Index) -> Level:
        """Return the level from which each row is joined to the giant."""
        n_levels = len(self._layout.eps)
        if not self._first:
            return np.full(len(rows), n_levels, np.int16)
        levels = np.arange(n_levels)[:, None]
        giant = self._forest.find(levels, np.array([self._hubs.giant]))
        apart = self._forest.find(levels, rows + self._first) != giant
        return np.asarray(apart.sum(axis=0), np.int16)


class _Tail(NamedTuple):
    """The block with which the head is compared."""

    block: int
    core: Level
    to: Attachment


def end_nodes(numbers: Index, to: Attachment, level: Level) -> Index:
    """Return the nodes of the ends of edges: the hub, if a row is attached to it at the edge's level."""
    return np.where(to.level <= level, -1 - to.hub.astype(np.intp), numbers)


def resolve(layout: Layout, round_: int, key: int) -> None:
    """Store, for a group's pairs, the core levels and hubs of the neighbours, and the edges per min_samples.

    A pair is an edge from the first radius that holds it and at which both rows are core. For the largest
    min_samples such edges are already known.
    """
    found = layout.unpack("density", key)
    rows, level = found["number"][found["pair_row"]], found["pair_level"]
    cols = found["pair_col"]
    core, to = core_of(layout, cols), attachments(layout, round_, cols)
    layout.pack("reached", key, {"core": core, "hub": to.hub, "level": to.level})
    core_row, to_row = core_of(layout, rows), attachments(layout, round_, rows)
    for m in range(len(layout.least) - 1):
        at = np.maximum(level, np.maximum(core[m], core_row[m])).astype(np.int16)
        use = at < len(layout.eps)
        ends = [
            end_nodes(numbers[use], Attachment(who.hub[use], who.level[use]), at[use])
            for numbers, who in ((rows, to_row), (cols, to))
        ]
        edges = lightest(Edges(ends[0], ends[1], at[use]))
        layout.pack(f"edges{m}", key, edges._asdict())


def write_nodes(layout: Layout, round_: int, n_hubs: int, block: int) -> None:
    """Store the rows of a block that are core, per min_samples, before they are attached to a hub.

    Also stored: the lowest row that is attached to each hub at each level (n where there is none).
    """
    core, to = layout.load("core", block), attachment(layout, round_, block)
    shift = block * layout.block_rows
    sooner = np.minimum(to.level, len(layout.eps))
    parts: Arrays = {}
    for m in range(len(layout.least)):
        rows = np.flatnonzero(core[m] < sooner)
        parts[f"row{m}"], parts[f"core{m}"] = rows + shift, core[m][rows]
        parts[f"hub{m}"], parts[f"level{m}"] = to.hub[rows], to.level[rows]
    lowest = np.full((len(layout.eps), n_hubs), layout.n, np.intp)
    for level in range(len(layout.eps)):
        rows = np.flatnonzero(to.level <= level)
        np.minimum.at(lowest[level], to.hub[rows], rows + shift)
    layout.pack("nodes", block, {**parts, "lowest": lowest})


def number_clusters(layout: Layout, keys: tuple[int, int], edges: Edges, m: int) -> list[int]:
    """Number the clusters of one min_samples at every radius, and return how many there are at each.

    Stores ``numbers``, (n_levels, n_hubs + n_nodes) int32: the cluster of each hub and of each of the rows
    ``node_rows``, -1 for none. Clusters are numbered by their lowest core row. One worker does this for all
    rows. Its memory grows with the number of rows that reach no hub when they become core (8 bytes a level
    each), not with the number of rows.

    Parameters
    ----------
    keys : number of groups of the density search and of the link search.
    edges : edges between hubs, as nodes.
    """
    row, core, hub, level, lowest = _nodes(layout, m)
    n_hubs = lowest.shape[1]
    names = [f"edges{m}"] * keys[0] if m + 1 < len(layout.least) else []
    several = [Edges(**layout.unpack(name, key)) for key, name in enumerate(names)]
    several += [Edges(**layout.unpack("links", key)) for key in range(keys[1])]
    ties = level < len(layout.eps)
    several += [edges, Edges(row[ties], -1 - hub[ties].astype(np.intp), level[ties])]
    all_edges = lightest(Edges.joined(several))
    ends = [_positions(nodes, row, n_hubs) for nodes in (all_edges.a, all_edges.b)]
    forest = DisjointSets(n_hubs + len(row))
    numbers = np.full((len(layout.eps), n_hubs + len(row)), -1, np.int32)
    n_clusters = []
    for at in range(len(layout.eps)):
        here = all_edges.level == at
        forest.union(ends[0][here], ends[1][here])
        first = np.append(lowest[at], np.where(core <= at, row, layout.n))
        present = np.flatnonzero(first < layout.n)
        root = forest.find(present)
        least = np.full(len(first), layout.n, np.intp)
        np.minimum.at(least, root, first[present])
        clusters, number = np.unique(least[root], return_inverse=True)
        numbers[at, present] = number
        n_clusters.append(len(clusters))
    layout.save("numbers", m, numbers)
    layout.save("node_rows", m, row)
    return n_clusters


def _nodes(layout: Layout, m: int) -> tuple[npt.NDArray[Any], ...]:
    """Read the nodes of all blocks that :func:`write_nodes` stored."""
    parts = []
    lowest = layout.unpack("nodes", 0)["lowest"]
    for block in layout.blocks:
        stored = layout.unpack("nodes", block)
        np.minimum(lowest, stored["lowest"], out=lowest)
        parts.append([stored[f"{name}{m}"] for name in ("row", "core", "hub", "level")])
    return *(np.concatenate(column) for column in zip(*parts, strict=True)), lowest


def _positions(nodes: Index, row: Index, n_hubs: int) -> Index:
    """Map hub -1 - h to h, and a row to ``n_hubs`` plus its place among the rows."""
    return np.where(nodes < 0, -1 - nodes, n_hubs + np.searchsorted(row, nodes))
