"""Connects most core samples through a few random ones (hubs), at every radius at once.

The core level of a row is the first radius at which it is a core sample for the largest min_samples. A row is
attached to the hub that it reaches at the lowest level, which is at least the core level of both. Hubs are
connected through rows that reach several of them. Rows that are connected through hubs at a level are not
compared there. Half of the later hubs are drawn from the rows that are not yet connected to the largest
component ("the giant") when they become core.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import Index
from operators.dbscan.sharded.blocks import BlockRows, Layout, Window, by_block, ranked_rows, read_rows
from operators.dbscan.sharded.density import core_of
from operators.dbscan.sharded.level_forest import Edges, level_parents, lightest
from operators.dbscan.tiles import Level, Tiles, pieces

NO_HUB = -1


class Hubs(NamedTuple):
    """Components of the hubs at each level. The driver writes this small record."""

    parent: npt.NDArray[np.intp]
    """(n_levels, n_hubs) lowest hub of the component of each hub."""
    giant: int
    """A hub of the largest component."""


class Attachment(NamedTuple):
    """Hubs to which rows are attached."""

    hub: npt.NDArray[np.int32]
    """(n,) hub of each row, -1 for none."""
    level: Level
    """(n,) level from which the row is attached to it."""


def attachment(layout: Layout, round_: int, block: int) -> Attachment:
    """Return the hubs to which a block's rows are attached before round ``round_``."""
    if round_ == 0:
        n = len(layout.rows(block))
        return Attachment(np.full(n, NO_HUB, np.int32), np.full(n, len(layout.eps), np.int16))
    return Attachment(**layout.unpack("attachment", round_ * len(layout.blocks) + block))


def attachments(layout: Layout, round_: int, numbers: Index) -> Attachment:
    """Return the hubs to which the rows ``numbers`` of any blocks are attached before round ``round_``."""
    found = Attachment(np.empty(len(numbers), np.int32), np.empty(len(numbers), np.int16))
    for block, where in by_block(layout, numbers):
        stored, inside = attachment(layout, round_, block), numbers[where] - block * layout.block_rows
        found.hub[where], found.level[where] = stored.hub[inside], stored.level[inside]
    return found


def save_hubs(layout: Layout, round_: int, hubs: Hubs) -> None:
    """Store the hubs as known before a round."""
    layout.pack("hubs", round_, {"parent": hubs.parent, "giant": np.array(hubs.giant)})


def load_hubs(layout: Layout, round_: int) -> Hubs:
    """Read the hubs that :func:`save_hubs` stored."""
    found = layout.unpack("hubs", round_)
    return Hubs(found["parent"], int(found["giant"]))


def structure(n_levels: int, edges: Edges, sizes: npt.NDArray[np.int64]) -> Hubs:
    """Join the hubs by ``edges`` (node h: hub h), and find one hub in the largest component at each level."""
    parent = level_parents(n_levels, len(sizes), edges)
    inside = np.arange(len(sizes))
    for level in reversed(range(n_levels)):
        weight = np.bincount(parent[level, inside], weights=sizes[inside])
        inside = inside[parent[level, inside] == np.argmax(weight)]
    return Hubs(parent, int(inside[np.argmax(sizes[inside])]))


def joins_giant(hubs: Hubs, to: Attachment) -> Level:
    """Return the level from which each row is known to be joined to the giant; n_levels for never."""
    n_levels = len(hubs.parent)
    found = np.full(len(to.hub), n_levels, np.int16)
    for level in reversed(range(n_levels)):
        here = (to.level <= level) & (hubs.parent[level, to.hub] == hubs.parent[level, hubs.giant])
        found[here] = level
    return found


def outside(layout: Layout, round_: int, block: int) -> Index:
    """Return the core samples of a block that join the giant at a higher level than they become core."""
    core = layout.load("core", block)[-1]
    if round_ == 0:
        return np.flatnonzero(core < len(layout.eps))
    joins = joins_giant(load_hubs(layout, round_), attachment(layout, round_, block))
    return np.flatnonzero(core < joins)


def count_outside(layout: Layout, round_: int, block: int) -> int:
    """Return the number of :func:`outside` rows of a block."""
    return len(outside(layout, round_, block))


def inside(layout: Layout, block: int) -> Index:
    """Return the rows of a block that are core at some level for the largest min_samples."""
    return np.flatnonzero(layout.load("core", block, mapped=True)[-1] < len(layout.eps))


def draw_hubs(
    layout: Layout, round_: int, cores: list[int], outsiders: list[int], ranks: tuple[Index, Index]
) -> int:
    """Store new hubs, core samples of given ranks among all and among those outside; return their number."""
    some = ranked_rows(layout, lambda block: inside(layout, block), cores, ranks[0])
    others = ranked_rows(layout, lambda block: outside(layout, round_, block), outsiders, ranks[1])
    rows = read_rows(layout, np.unique(np.concatenate([some, others])))
    layout.pack("pivots", round_, {**rows._asdict(), "core": core_of(layout, rows.number)[-1]})
    return len(rows.number)


def attach(layout: Layout, round_: int, first: int, block: int) -> tuple[Edges, npt.NDArray[np.int64]]:
    """Attach a block's rows to the round's hubs, numbered from ``first``, that they reach at a lower level.

    Returns
    -------
    The edges between hubs (node h is hub h) that follow from the rows, and the number of rows at each hub.
    """
    found = layout.unpack("pivots", round_)
    core_hub = found.pop("core")
    hubs, core = BlockRows(**found), layout.load("core", block)[-1]
    to = attachment(layout, round_, block)
    own = np.flatnonzero(hubs.number // layout.block_rows == block)
    own_rows = hubs.number[own] - block * layout.block_rows
    rows = np.union1d(outside(layout, round_, block), own_rows)
    edges = Edges.joined([])
    if len(rows):
        window = Window(layout, hubs)
        tiles = window.beside(block)
        for some in pieces(rows, tiles.fitting(window.n_head)):
            level = _reached(tiles, some + window.n_head, window.n_head)
            level = np.maximum(level, np.maximum(core[some, None], core_hub)).astype(np.int16)
            here = np.isin(own_rows, some)
            level[np.searchsorted(some, own_rows[here]), own[here]] = core_hub[own[here]]
            edges = lightest(Edges.joined([edges, _take(to, some, level, first, len(layout.eps))]))
    layout.pack("attachment", (round_ + 1) * len(layout.blocks) + block, to._asdict())
    n_hubs = first + len(hubs.number)
    return edges, np.bincount(to.hub[to.hub >= 0], minlength=n_hubs)


def _reached(tiles: Tiles, rows: Index, n_hubs: int) -> Level:
    """Return the first level (len(rows), n_hubs) at which a row certainly is a neighbour, n_levels if at
    none.
    """
    side = tiles.side(np.arange(n_hubs))
    buffer = tiles.buffer()
    products = tiles.products(rows, side, buffer)
    level = np.full(products.shape, len(tiles.eps), np.int16)
    for k in range(len(tiles.eps)):
        level -= tiles.near(products, tiles.at_least(rows, side, k, certain=True), buffer)
    return level


def _take(to: Attachment, rows: Index, level: Level, first: int, n_levels: int) -> Edges:
    """Attach ``rows`` to the nearest of the new hubs, in place; return the edges between hubs that follow."""
    best = np.argmin(level, axis=1)
    reached = level[np.arange(len(rows)), best]
    old_hub, old_level = to.hub[rows].astype(np.intp), to.level[rows].copy()
    better = reached < old_level
    to.hub[rows[better]], to.level[rows[better]] = first + best[better], reached[better]
    again = better & (old_level < n_levels)
    parts = [Edges(to.hub[rows[again]].astype(np.intp), old_hub[again], old_level[again])]
    # Of the edges between two hubs only the one of the lowest level is kept.
    centre = to.hub[rows]
    order = np.argsort(centre, kind="stable")
    centres, starts = np.unique(centre[order], return_index=True)
    shown = np.minimum.reduceat(level[order], starts, axis=0)
    c, p = np.nonzero((shown < n_levels) & (centres[:, None] != NO_HUB))
    parts.append(Edges(centres[c].astype(np.intp), (p + first).astype(np.intp), shown[c, p]))
    return Edges.joined(parts)
