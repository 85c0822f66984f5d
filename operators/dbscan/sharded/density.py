"""Core levels of the rows of a class in blocks; :mod:`operators.dbscan.density` explains the method."""

from __future__ import annotations

import numpy as np

from operators.arrays import Float64, Index
from operators.dbscan import tiles as t
from operators.dbscan.bounding_boxes import BLOCK, SAMPLE, Blocks, box, halve
from operators.dbscan.density import MIN_TILE_ROWS, lowered_levels
from operators.dbscan.sharded.blocks import (
    Arrays,
    BlockRows,
    Layout,
    Slices,
    Window,
    by_block,
    group_rows,
    ranked_rows,
    read_rows,
)
from operators.dbscan.tiles import Level, Tiles, pieces
from operators.points import coordinates, principal


def open_rows(layout: Layout, round_: int, block: int) -> Index:
    """Return the rows of a block that samples have not decided at every level."""
    return np.flatnonzero(layout.load("level", _key(layout, round_, block)) >= 0)


def start(layout: Layout, block: int) -> int:
    """Store the levels before the first round, at which no row is decided; return the number of open rows."""
    # Each row is its own neighbour, also a zero row.
    top = len(layout.eps) - 1 if layout.least[-1] > 1 else -1
    rows = layout.rows(block)
    layout.save("level", _key(layout, 0, block), np.full(len(rows), top, np.int16))
    return len(rows) if top >= 0 else 0


def draw_sample(layout: Layout, round_: int, counts: list[int], drawn: tuple[Index, Index]) -> None:
    """Store the rows of a sample: ``drawn`` row numbers, and ranks among the open rows."""
    ranked = ranked_rows(layout, lambda block: open_rows(layout, round_, block), counts, drawn[1])
    rows = read_rows(layout, np.unique(np.concatenate([drawn[0], ranked])))
    layout.pack("sample", round_, rows._asdict())


def decide_block(layout: Layout, round_: int, block: int) -> tuple[int, int]:
    """Lower the levels of a block by the round's sample; return the open rows left, and the rows lowered."""
    level = layout.load("level", _key(layout, round_, block))
    open_ = np.flatnonzero(level >= 0)
    n_moved = 0
    if len(open_):
        window = Window(layout, BlockRows(**layout.unpack("sample", round_)))
        tiles = window.beside(block)
        sample = tiles.side(np.arange(window.n_head))
        for rows in pieces(open_, max(MIN_TILE_ROWS, tiles.fitting(window.n_head))):
            new = lowered_levels(tiles, rows + window.n_head, sample, level[rows], layout.least[-1])
            n_moved += int(np.count_nonzero(new < level[rows]))
            level[rows] = new
    layout.save("level", _key(layout, round_ + 1, block), level)
    return int(np.count_nonzero(level >= 0)), n_moved


def choose_directions(layout: Layout, round_: int, counts: list[int], random_state: int) -> None:
    """Store the directions of the coordinates, from a sample that has half of its rows from the open ones."""
    random = np.random.default_rng(random_state)
    some = [np.sort(random.choice(layout.n, min(layout.n, SAMPLE // 2), replace=False))]
    n_open = sum(counts)
    ranks = np.sort(random.choice(n_open, min(n_open, SAMPLE // 2), replace=False)) if n_open else some[0][:0]
    some.append(ranked_rows(layout, lambda block: open_rows(layout, round_, block), counts, ranks))
    vectors = read_rows(layout, np.concatenate(some)).vectors
    layout.save("directions", 0, principal(vectors.astype(np.float64), random))


def write_boxes(layout: Layout, block: int) -> None:
    """Divide a block into boxes of rows that lie close together, and store them."""
    at = coordinates(np.asarray(layout.load("vectors", block)), layout.load("directions", 0))
    blocks = box(at, halve(at, np.arange(len(at)), BLOCK))
    sizes = np.array([len(rows) for rows in blocks.rows])
    order = np.concatenate(blocks.rows).astype(np.int32)
    layout.pack("boxes", block, {"order": order, "sizes": sizes, "low": blocks.low, "high": blocks.high})


def boxes(layout: Layout, block: int) -> Blocks:
    """Read the boxes of a block."""
    found = layout.unpack("boxes", block)
    rows = np.split(found["order"].astype(np.intp), np.cumsum(found["sizes"])[:-1])
    return Blocks(rows, found["low"], found["high"])


def search(layout: Layout, round_: int, key: int, slices: Slices) -> int:
    """Find and store the neighbours of a group of open rows among all rows; return the number of kept
    pairs.
    """
    numbers = group_rows(layout, lambda block: open_rows(layout, round_, block), slices)
    level = np.empty(len(numbers), np.int16)
    for block, where in by_block(layout, numbers):
        stored = layout.load("level", _key(layout, round_, block), mapped=True)
        level[where] = stored[numbers[where] - block * layout.block_rows]
    found = _Search(layout, read_rows(layout, numbers), level).run(slices[0][0])
    layout.pack("density", key, found)
    return len(found["pair_row"])


class _Search:
    """Counts and keeps the neighbours of the head's rows, one block at a time."""

    def __init__(self, layout: Layout, head: BlockRows, level: Level) -> None:
        self._layout, self._head, self._level = layout, head, level
        self._goal = layout.least[-1]
        self._window = Window(layout, head)
        self._counts = np.zeros((len(level), len(layout.eps)), np.int64)
        self._counts[:, 0] = 1  # itself
        none = np.empty(0, np.intp)
        self._kept: list[tuple[Index, Index, Level]] = [(none, none, np.empty(0, np.int16))]
        self._queries = self._cut(coordinates(head.vectors, layout.load("directions", 0)))

    def _cut(self, at: Float64) -> Blocks:
        rows: list[Index] = []
        for level in range(len(self._layout.eps) - 1, -1, -1):
            rows += halve(at, np.flatnonzero(self._level == level), t.TILE_ROWS)
        return box(at, rows)

    def run(self, first: int) -> Arrays:
        """Compare the rows with all blocks, beginning with ``first``, so that tasks read different files."""
        n = len(self._layout.blocks)
        for k in range(n):
            if (self._level < 0).all():
                break
            self._compare_with((first + k) % n)
        rows, cols, at = (np.concatenate(part) for part in zip(*self._kept, strict=True))
        order = np.lexsort((cols, rows))
        return {
            "number": self._head.number,
            "level": self._level,
            "counts": np.cumsum(self._counts, axis=1),
            "pair_row": rows[order].astype(np.int32),
            "pair_col": cols[order],
            "pair_level": at[order],
        }

    def _compare_with(self, block: int) -> None:
        tail, tiles = boxes(self._layout, block), None
        for position, rows in enumerate(self._queries.rows):
            rows = rows[self._level[rows] >= 0]
            if not len(rows):
                continue
            limit = self._window.limits[self._level[rows].max()]
            near = tail.nearest(self._queries.low[position], self._queries.high[position], limit)
            if not len(near):
                continue
            tiles = tiles or self._window.beside(block)
            self._compare(tiles, rows, np.concatenate([tail.rows[k] for k in near]), block)
        rows, cols, level = (np.concatenate(part) for part in zip(*self._kept, strict=True))
        use = level <= self._level[rows]
        self._kept = [(rows[use], cols[use], level[use])]

    def _compare(self, tiles: Tiles, rows: Index, cols: Index, block: int) -> None:
        shift = block * self._layout.block_rows
        for some in pieces(cols, tiles.cols):
            rows = rows[self._level[rows] >= 0]
            if not len(rows):
                return
            columns = some + self._window.n_head
            i, j, products = tiles.candidates(rows, columns, self._level[rows], tiles.buffer())
            i, j, number = rows[i], columns[j], some[j] + shift
            other = number != self._head.number[i]
            i, number = i[other], number[other]
            first = tiles.decide(i, j[other], products[other])
            use = first <= self._level[i]
            i, number, first = i[use], number[use], first[use]
            np.add.at(self._counts.reshape(-1), i * self._counts.shape[1] + first, 1)
            self._kept.append((i, number, first))
            self._lower(np.unique(i))

    def _lower(self, rows: Index) -> None:
        short = np.cumsum(self._counts[rows], axis=1) < self._goal
        self._level[rows] = np.minimum(self._level[rows], short.sum(axis=1) - 1)


def core_levels(layout: Layout, round_: int, keys: list[list[int]], block: int) -> int:
    """Store the level from which each row is core, per min_samples (n_levels if never).

    Returns the number of rows that are core for the largest min_samples. ``keys`` has, for each block, the
    groups of :func:`search` that hold its rows.
    """
    level = layout.load("level", _key(layout, round_, block))
    core = np.tile(level + np.int16(1), (len(layout.least), 1))
    for key in keys[block]:
        found = layout.unpack("density", key)
        mine = found["number"] // layout.block_rows == block
        rows = found["number"][mine] - block * layout.block_rows
        known = found["level"][mine].astype(np.int64)
        counts = found["counts"][mine]
        unknown = np.arange(counts.shape[1]) > known[:, None]
        for m, least in enumerate(layout.least):
            # Above its level a row reaches the largest min_samples, and hence every other.
            core[m, rows] = np.argmax(
                np.c_[unknown | (counts >= least), np.ones(len(rows), np.bool_)], axis=1
            )
    layout.save("core", block, core)
    return int(np.count_nonzero(core[-1] < len(layout.eps)))


def core_of(layout: Layout, numbers: Index) -> Level:
    """Return the core levels (n_min_samples, len(numbers)) of rows of any blocks."""
    core = np.empty((len(layout.least), len(numbers)), np.int16)
    for block, where in by_block(layout, numbers):
        core[:, where] = layout.load("core", block, mapped=True)[
            :, numbers[where] - block * layout.block_rows
        ]
    return core


def _key(layout: Layout, round_: int, block: int) -> int:
    return round_ * len(layout.blocks) + block
