"""Bounding boxes of blocks of nearby rows, so that blocks that are far apart are never compared.

Rows are divided into blocks by halving along the widest of the low-dimensional coordinates of
:mod:`operators.points`. The gap between the boxes of two blocks is a lower bound of every distance
between their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from operators.arrays import Float64, Index
from operators.points import PreparedRows

BLOCK = 256  # rows of a block of the rows that others are compared with
SAMPLE = 1024  # rows that the directions are computed from
WIDTH_SAMPLE = 128  # rows that show which coordinate is the widest


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows that are sorted into blocks, each with its bounding box.

    Attributes
    ----------
    rows : each block's row numbers.
    low, high : (n_blocks, n_coordinates) corners of each block's box.
    """

    rows: list[Index]
    low: Float64
    high: Float64

    def nearest(self, low: Float64, high: Float64, limit: float) -> Index:
        """Return the blocks that a box may reach within a gap of ``limit``, nearest first."""
        apart = np.maximum(np.maximum(self.low - high, low - self.high), 0.0)
        gaps = np.einsum("ij,ij->i", apart, apart) / 2
        # The error of coordinates is about 1e-15, that of float32 rows half a unit in the last place.
        reach = np.flatnonzero(gaps <= limit * (1 + 1e-5) + 1e-6)
        return reach[np.argsort(gaps[reach], kind="stable")]


class BoxIndex:
    """Low-dimensional coordinates of every row, and the bounding boxes that follow from them.

    Parameters
    ----------
    points : the n prepared rows.
    emphasis : rows that make up half of the sample from which directions are computed: those that the
        bounds should separate from the others.
    random : generator for the sample.
    """

    def __init__(self, points: PreparedRows, emphasis: Index, random: np.random.Generator) -> None:
        several = [random.choice(points.n, min(points.n, SAMPLE // 2), replace=False)]
        several.append(random.choice(emphasis, min(len(emphasis), SAMPLE // 2), replace=False))
        self._all: Blocks | None = None
        self._points, self._sample, self._random = points, np.concatenate(several), random

    @cached_property
    def at(self) -> Float64:
        """Coordinates (n, k). A distance between coordinates is at most that between the rows."""
        return self._points.coordinates(self._sample, self._random)

    def cut(self, rows: Index, size: int) -> Blocks:
        """Divide ``rows`` into blocks of at most ``size`` rows that lie close together."""
        return self.box(halve(self.at, rows, size))

    def among(self, rows: Index) -> Blocks:
        """Return ``rows`` in the blocks of one division of all rows, whose boxes may be larger than
        needed.
        """
        if self._all is None:
            self._all = self.cut(np.arange(len(self.at)), BLOCK)
        keep = np.zeros(len(self.at), np.bool_)
        keep[rows] = True
        kept = [block[keep[block]] for block in self._all.rows]
        some = [k for k, block in enumerate(kept) if len(block)]
        return Blocks([kept[k] for k in some], self._all.low[some], self._all.high[some])

    def box(self, rows: list[Index]) -> Blocks:
        """Return the given blocks with their boxes."""
        return box(self.at, rows)


def box(at: Float64, rows: list[Index]) -> Blocks:
    """Return the given blocks with their boxes, from the coordinates ``at`` of every row."""
    low = np.array([at[r].min(axis=0) for r in rows]).reshape(len(rows), at.shape[1])
    high = np.array([at[r].max(axis=0) for r in rows]).reshape(len(rows), at.shape[1])
    return Blocks(rows, low, high)


def halve(at: Float64, rows: Index, size: int) -> list[Index]:
    """Divide rows into blocks of ``size``, one of which may be smaller, by halving along the widest
    coordinate.
    """
    done: list[Index] = []
    open_ = [rows] if len(rows) else []
    while open_:
        rows = open_.pop()
        if len(rows) <= size:
            done.append(np.sort(rows))
            continue
        few = at[rows[:: 1 + len(rows) // WIDTH_SAMPLE]]
        widest = int(np.argmax(few.max(axis=0) - few.min(axis=0)))
        middle = size * (-(-len(rows) // size) // 2)  # whole blocks: comparing half of one costs as much
        parts = np.argpartition(at[rows, widest], middle)
        open_ += [rows[parts[middle:]], rows[parts[:middle]]]
    return done
