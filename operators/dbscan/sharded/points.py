"""Rows of several files as the points of one product."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.dbscan.distances import Index, Matrix, Points, blocks
from operators.dbscan.sharded.layout import Frame, Layout
from operators.dbscan.tiles import Tiles
from operators.models import device_for


class BlockPoints(Points):
    """Points that were prepared elsewhere, in the frame of all rows; ``raw`` may lie on disk."""

    def __init__(self, raw: Any, vectors: Matrix, half: Matrix, frame: Frame) -> None:
        self._X = raw
        self.n = len(vectors)
        self.vectors, self.half = vectors, half
        self.metric, self.centre, self.unit = frame


class Stacked:
    """Two matrices indexed as one; only the rows asked for are read."""

    def __init__(self, head: Matrix, tail: Matrix) -> None:
        self._head, self._tail = head, tail
        self.shape = (len(head) + len(tail), head.shape[1])
        self.dtype = head.dtype

    def __getitem__(self, rows: Index) -> Matrix:
        """Copies of the given rows."""
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        first = rows < len(self._head)
        out[first] = self._head[rows[first]]
        out[~first] = self._tail[rows[~first] - len(self._head)]
        return out


class Rows(NamedTuple):
    """Some rows, raw and prepared."""

    number: Index
    raw: Matrix
    vectors: Matrix
    half: Matrix


def prepare(raw: Matrix, frame: Frame) -> tuple[Matrix, Matrix]:
    """``vectors`` and ``half`` of :class:`~operators.dbscan.distances.Points`, to the bit."""
    points = BlockPoints(raw, np.empty(raw.shape, raw.dtype), np.empty(len(raw), raw.dtype), frame)
    for rows in blocks(len(raw)):
        points.vectors[rows] = points.prepared(rows)
    return points.vectors, points._half_norms(points.vectors).astype(raw.dtype)


def read_rows(layout: Layout, numbers: Index) -> Rows:
    """Given rows (ascending), from the blocks that hold them."""
    raw = np.empty((len(numbers), layout.n_features), layout.load("raw", 0, mapped=True).dtype)
    vectors, half = np.empty_like(raw), np.empty(len(numbers), raw.dtype)
    for block, where in by_block(layout, numbers):
        inside = numbers[where] - block * layout.block_rows
        raw[where] = layout.load("raw", block, mapped=True)[inside]
        vectors[where] = layout.load("vectors", block, mapped=True)[inside]
        half[where] = layout.load("half", block, mapped=True)[inside]
    return Rows(numbers, raw, vectors, half)


def by_block(layout: Layout, numbers: Index) -> list[tuple[int, npt.NDArray[np.intp]]]:
    """Blocks that hold some of the rows, and the positions in ``numbers`` of those it holds."""
    block = numbers // layout.block_rows
    order = np.argsort(block, kind="stable")
    found, starts = np.unique(block[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True)) if len(found) else []


class Window:
    """Some rows (the head) beside one block at a time (the tail): at most so much is in memory.

    ``limits`` are the radii as gaps, as in :class:`~operators.dbscan.tiles.Tiles`.
    """

    def __init__(self, layout: Layout, head: Rows) -> None:
        self._layout, self._head, self.n_head = layout, head, len(head.number)
        size = self.n_head + min(layout.block_rows, layout.n)
        self._vectors = np.empty((size, layout.n_features), head.vectors.dtype)
        self._half = np.empty(size, head.half.dtype)
        self._vectors[: self.n_head], self._half[: self.n_head] = head.vectors, head.half
        points = BlockPoints(head.raw, head.vectors, head.half, layout.frame)
        self.limits = np.array([points.limit(eps) for eps in layout.eps])

    def beside(self, block: int) -> Tiles:
        """Products of the head's rows (numbered first) and the block's (numbered after them)."""
        vectors = self._layout.load("vectors", block, mapped=True)
        end = self.n_head + len(vectors)
        self._vectors[self.n_head : end] = vectors
        self._half[self.n_head : end] = self._layout.load("half", block, mapped=True)
        raw = Stacked(self._head.raw, self._layout.load("raw", block, mapped=True))
        points = BlockPoints(raw, self._vectors[:end], self._half[:end], self._layout.frame)
        return Tiles(points, self._layout.eps, device_for(self._layout.gpus))
