"""The rows of one class in blocks of fixed size on disk: how blocks are written, read and compared.

Rows are numbered 0 to n - 1 in the order of their row ids and divided into blocks by number, whatever shards
they came from. Every array is written under a temporary name and then renamed, so a task that fails can be
run again. The driver knows only how many rows of each block are selected (:data:`Slices`); workers translate
ranks into row numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.array_files import save_array
from operators.arrays import Float64, Index, Matrix
from operators.dbscan.tiles import Tiles
from operators.models import device_for
from operators.points import SPAN, Metric, Points, blocks, power_of_two_above, span_sum
from operators.points import blocks as pieces_of

Arrays = dict[str, npt.NDArray[Any]]


class Preparation(NamedTuple):
    """Statistics of all rows with which one row can be prepared; see
    :class:`operators.points.Points`.
    """

    metric: Metric
    centre: Float64
    unit: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Layout:
    """Blocks of one class, and the grid. Picklable.

    Attributes
    ----------
    folder : scratch folder that all workers share.
    n, n_features, block_rows : rows, columns, and rows of each block but the last.
    eps : radii, ascending, no repeats.
    least : values of min_samples, ascending, no repeats.
    frame : statistics with which rows are prepared.
    query_rows : rows that one task compares with all blocks.
    gpus : GPUs of a worker; above 0 the GPU computes the products. The labels do not depend on it.
    """

    folder: Path
    n: int
    n_features: int
    block_rows: int
    eps: tuple[float, ...]
    least: tuple[int, ...]
    frame: Preparation
    query_rows: int
    gpus: float = 0.0

    @property
    def blocks(self) -> range:
        """The numbers of all blocks."""
        return range(-(-self.n // self.block_rows))

    def rows(self, block: int) -> Index:
        """Return the row numbers of a block."""
        return np.arange(block * self.block_rows, min((block + 1) * self.block_rows, self.n))

    def save(self, name: str, key: int, array: npt.NDArray[Any]) -> None:
        """Store one array in a file."""
        save_array(self.folder / f"{name}-{key}.npy", array)

    def load(self, name: str, key: int, *, mapped: bool = False) -> npt.NDArray[Any]:
        """Read an array that :meth:`save` stored; with ``mapped`` it is mapped into memory."""
        array: npt.NDArray[Any] = np.load(
            self.folder / f"{name}-{key}.npy", mmap_mode="r" if mapped else None
        )
        return array

    def pack(self, name: str, key: int, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Store several arrays in one file."""
        save_array(self.folder / f"{name}-{key}.npz", arrays)

    def unpack(self, name: str, key: int) -> Arrays:
        """Read the arrays that :meth:`pack` stored."""
        with np.load(self.folder / f"{name}-{key}.npz") as stored:
            return dict(stored)


class BlockPoints(Points):
    """Points that are already prepared with the statistics of all rows; ``raw`` may be mapped from disk."""

    def __init__(self, raw: Any, vectors: Matrix, half: Matrix, frame: Preparation) -> None:
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
        """Return copies of the given rows."""
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        first = rows < len(self._head)
        out[first] = self._head[rows[first]]
        out[~first] = self._tail[rows[~first] - len(self._head)]
        return out


class BlockRows(NamedTuple):
    """Some rows, raw and prepared."""

    number: Index
    raw: Matrix
    vectors: Matrix
    half: Matrix


def prepare(raw: Matrix, frame: Preparation) -> tuple[Matrix, Matrix]:
    """Make ``vectors`` and ``half`` of :class:`~operators.points.Points`, with the same bits."""
    points = BlockPoints(raw, np.empty(raw.shape, raw.dtype), np.empty(len(raw), raw.dtype), frame)
    for rows in blocks(len(raw)):
        points.vectors[rows] = points.prepared(rows)
    return points.vectors, points._half_norms(points.vectors).astype(raw.dtype)


def read_rows(layout: Layout, numbers: Index) -> BlockRows:
    """Read the given rows (ascending) from the blocks that hold them."""
    raw = np.empty((len(numbers), layout.n_features), layout.load("raw", 0, mapped=True).dtype)
    vectors, half = np.empty_like(raw), np.empty(len(numbers), raw.dtype)
    for block, where in by_block(layout, numbers):
        inside = numbers[where] - block * layout.block_rows
        raw[where] = layout.load("raw", block, mapped=True)[inside]
        vectors[where] = layout.load("vectors", block, mapped=True)[inside]
        half[where] = layout.load("half", block, mapped=True)[inside]
    return BlockRows(numbers, raw, vectors, half)


def by_block(layout: Layout, numbers: Index) -> list[tuple[int, npt.NDArray[np.intp]]]:
    """Return the blocks that hold some of the rows, each with the positions in ``numbers`` of its rows."""
    block = numbers // layout.block_rows
    order = np.argsort(block, kind="stable")
    found, starts = np.unique(block[order], return_index=True)
    return list(zip(found.tolist(), np.split(order, starts[1:]), strict=True)) if len(found) else []


class Window:
    """Some rows (the head) and one block at a time (the tail), the largest amount of rows in memory.

    ``limits`` are the radii as gaps, as in :class:`~operators.dbscan.tiles.Tiles`.
    """

    def __init__(self, layout: Layout, head: BlockRows) -> None:
        self._layout, self._head, self.n_head = layout, head, len(head.number)
        size = self.n_head + min(layout.block_rows, layout.n)
        self._vectors = np.empty((size, layout.n_features), head.vectors.dtype)
        self._half = np.empty(size, head.half.dtype)
        self._vectors[: self.n_head], self._half[: self.n_head] = head.vectors, head.half
        points = BlockPoints(head.raw, head.vectors, head.half, layout.frame)
        self.limits = np.array([points.limit(eps) for eps in layout.eps])

    def beside(self, block: int) -> Tiles:
        """Return the products of the head's rows (numbered first) and the block's (numbered after them)."""
        vectors = self._layout.load("vectors", block, mapped=True)
        end = self.n_head + len(vectors)
        self._vectors[self.n_head : end] = vectors
        self._half[self.n_head : end] = self._layout.load("half", block, mapped=True)
        raw = Stacked(self._head.raw, self._layout.load("raw", block, mapped=True))
        points = BlockPoints(raw, self._vectors[:end], self._half[:end], self._layout.frame)
        return Tiles(points, self._layout.eps, device_for(self._layout.gpus))


Source: TypeAlias = Callable[[int, int], Matrix]
"""(start, stop) -> rows start .. stop - 1 of the class, C order, always of one dtype. Picklable."""


def spans(n: int) -> range:
    """Return the numbers of the fixed spans of rows whose sums give the mean, whatever the blocks are."""
    return range(-(-n // SPAN))


def sum_span(source: Source, n: int, span: int) -> tuple[Float64, bool]:
    """Return the sum of a span's rows, each less the first row of all, and whether all of them equal it."""
    first = source(0, 1)[0]
    X = source(span * SPAN, min((span + 1) * SPAN, n))
    return span_sum(X, first.astype(np.float64)), bool((first == X).all())


def mean_of(source: Source, n: int, sums: list[Float64]) -> Float64:
    """Return the mean row, with the bits of :func:`operators.points.mean_row`."""
    return np.asarray(source(0, 1)[0].astype(np.float64) + sum(sums) / n)


def largest_entry(source: Source, n: int, centre: Float64, span: int) -> float:
    """Return the largest absolute entry of a span's rows less ``centre``."""
    X = source(span * SPAN, min((span + 1) * SPAN, n))
    return max(float(np.abs(X[rows] - centre).max()) for rows in pieces_of(len(X)))


def unit_of(largest: float, n_features: int) -> float:
    """Return the power of two by which rows are divided for "euclidean", as in ``points.Points``."""
    return power_of_two_above(largest) * power_of_two_above(np.sqrt(n_features))


def write_block(layout: Layout, source: Source, block: int) -> None:
    """Store a block's rows, raw and prepared."""
    start = block * layout.block_rows
    raw = source(start, min(start + layout.block_rows, layout.n))
    vectors, half = prepare(raw, layout.frame)
    layout.save("raw", block, raw)
    layout.save("vectors", block, vectors)
    layout.save("half", block, half)


Slices: TypeAlias = list[tuple[int, int, int]]
"""(block, start, stop): positions among those of the block's rows that a mask selects."""

Masked: TypeAlias = Callable[[int], Index]
"""Block number -> positions of its selected rows, ascending."""


def query_groups(counts: Sequence[int], size: int) -> list[Slices]:
    """Divide the selected rows of all blocks, in order, into groups of at most ``size``."""
    ends = np.cumsum(counts)
    cuts = [*range(0, int(ends[-1]), size), int(ends[-1])]
    return [_between(counts, ends, start, stop) for start, stop in pairwise(cuts)]


def _between(counts: Sequence[int], ends: Index, start: int, stop: int) -> Slices:
    found = []
    for block in range(int(np.searchsorted(ends, start, side="right")), len(counts)):
        before = int(ends[block]) - counts[block]
        if before >= stop:
            break
        if counts[block]:
            found.append((block, max(start - before, 0), min(stop - before, counts[block])))
    return found


def group_rows(layout: Layout, masked: Masked, slices: Slices) -> Index:
    """Return the row numbers of a group, ascending."""
    parts = [masked(block)[start:stop] + block * layout.block_rows for block, start, stop in slices]
    return np.concatenate([*parts, np.empty(0, np.intp)])


def ranked_rows(layout: Layout, masked: Masked, counts: Sequence[int], ranks: Index) -> Index:
    """Return the row numbers of the selected rows with the given ranks among all selected rows."""
    ends = np.cumsum(counts)
    block = np.searchsorted(ends, ranks, side="right")
    parts = [np.empty(0, np.intp)]
    for b in np.unique(block).tolist():
        inside = ranks[block == b] - (ends[b] - counts[b])
        parts.append(masked(b)[inside] + b * layout.block_rows)
    return np.concatenate(parts)


def drawn(random: np.random.Generator, population: int, size: int) -> Index:
    """Draw at most ``size`` distinct numbers below ``population``, in ascending order."""
    return np.sort(random.choice(population, min(size, population), replace=False)).astype(np.intp)
