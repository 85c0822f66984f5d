"""DBSCAN for every cell of a grid of radii and thresholds, with one search for all cells.

Source: Ester, Kriegel, Sander, Xu: A density-based algorithm for discovering clusters, KDD 1996. Used by
the estimator (:mod:`operators.dbscan.estimator`) and by GRASP (:mod:`operators.grasp.kernel`).

A row is a core sample if at least ``min_samples`` rows, itself included, lie within ``eps``. A cluster is a
connected component of the graph of core samples that lie within ``eps`` of each other. A row that is not
core but lies within ``eps`` of a core sample is a border row; all other rows are noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from operators.arrays import NOISE, Float64, Index, Labels, Mask, Matrix
from operators.dbscan import tiles as t
from operators.dbscan.bounding_boxes import BoxIndex
from operators.dbscan.components import Joiner
from operators.dbscan.density import Density, Search, compare_all_pairs, decide_by_samples
from operators.dbscan.tiles import Device, Tiles, in_threads, pieces
from operators.disjoint_sets import DisjointSets
from operators.points import Metric, Points, PreparedRows

SEED = 0
"""Seed of samples and pivots, on which the time depends, but not the labels."""
APART = 256
"""Rows from which a component of the next larger radius is joined on its own."""


def cluster(
    points: PreparedRows,
    eps_values: Sequence[float],
    min_samples_values: Sequence[float],
    weight: Float64 | None = None,
    device: Device = "cpu",
) -> tuple[Labels, npt.NDArray[np.bool_]]:
    """Return labels and core samples of every cell.

    Parameters
    ----------
    points : the n prepared rows.
    eps_values, min_samples_values : the grid's axes, in any order, repeats allowed.
    weight : (n,) float64 whole numbers >= 0: how many times each row counts; None for once.
    device : torch device that makes the products; the labels do not depend on it.

    Returns
    -------
    labels : (n_eps, n_min_samples, n) int32. Clusters are numbered by their lowest core sample; a border
        row joins the lowest-numbered cluster that reaches it, as scikit-learn's depth-first order does.
    cores : (n_eps, n_min_samples, n) bool.
    """
    eps, at_eps = np.unique(np.asarray(eps_values, np.float64), return_inverse=True)
    least, at_least = np.unique(np.asarray(min_samples_values, np.float64), return_inverse=True)
    labels, cores = _Grid(Tiles(points, eps.tolist(), device), least, weight).solve()
    return labels[np.ix_(at_eps, at_least)], cores[np.ix_(at_eps, at_least)]


class _Grid:
    def __init__(self, tiles: Tiles, least: Float64, weight: Float64 | None) -> None:
        self._random = np.random.default_rng(SEED)
        self._tiles, self._least, self._n = tiles, least, tiles.n
        few = compare_all_pairs(tiles) if weight is None else None
        self._complete = few is not None
        self._density, self._space = self._measure(float(least[-1]), weight, few)

    def _measure(self, goal: float, weight: Float64 | None, few: Density | None) -> tuple[Density, BoxIndex]:
        level = np.full(self._n, len(self._tiles.eps) - 1, np.int16)
        if weight is None and few is None:
            decide_by_samples(self._tiles, goal, level, self._random)
        open_rows = np.flatnonzero(level >= 0)
        space = BoxIndex(self._tiles.points, open_rows, self._random)
        return few or Search(self._tiles, goal, level, weight).run(space), space

    def solve(self) -> tuple[Labels, Mask]:
        """Return labels and cores of all cells."""
        shape = (len(self._tiles.eps), len(self._least), self._n)
        labels, cores = np.full(shape, NOISE, np.int32), np.zeros(shape, np.bool_)
        for level in range(shape[0]):
            counts = np.where(self._density.level < level, np.inf, self._density.counts[level])
            cores[level] = counts >= self._least[:, None]
        if self._density.pairs is None:
            self._all_by_search(cores, labels)
        else:
            self._all_by_pairs(cores, labels)
        return labels, cores

    def _all_by_search(self, cores: Mask, labels: Labels) -> None:
        """Solve the radii in descending order, each by a search.

        Core samples that are apart at one radius are apart at every smaller one, so each component is joined
        on its own.
        """
        above = np.zeros(self._n, np.intp)
        for level in reversed(range(len(cores))):
            above = self._by_search(level, cores[level], above, labels[level])

    def _all_by_pairs(self, cores: Mask, labels: Labels) -> None:
        """Solve each radius between two solved ones: rows joined at the smaller radius stay joined, and rows
        apart at the larger one stay apart.
        """
        n = len(cores)
        roots = {-1: np.arange(self._n), n: np.zeros(self._n, np.intp)}
        for level, below, above in inwards(n):
            forest = DisjointSets(self._n, roots[below])
            roots[level] = self._by_pairs(level, cores[level], forest, roots[above], labels[level])

    def _by_pairs(self, level: int, cores: Mask, forest: DisjointSets, above: Index, labels: Labels) -> Index:
        """Return the labels at one radius from the kept neighbours of rows below the largest threshold."""
        rows, cols = _at_level(self._density, level)
        if self._complete:
            _join_pairs(forest, rows, cols, cores[-1])
        else:
            self._join(level, forest, np.flatnonzero(cores[-1]), above)
        roots = forest.find(np.arange(self._n))
        for m in reversed(range(len(cores))):
            if m + 1 < len(cores):
                new = (cores[m] & ~cores[m + 1])[rows] & cores[m][cols]
                forest.union(rows[new], cols[new])
            labels[m] = _numbered(forest, cores[m])
            border = ~cores[m][rows] & cores[m][cols]
            _attach(labels[m], rows[border], labels[m][cols[border]])
        return roots

    def _by_search(self, level: int, cores: Mask, above: Index, labels: Labels) -> Index:
        """Return the labels at one radius, joining and attaching by products at each threshold."""
        first = above
        for m in range(len(cores)):
            forest = DisjointSets(self._n)
            self._join(level, forest, np.flatnonzero(cores[m]), above)
            above = forest.find(np.arange(self._n))
            first = above if m == 0 else first
            labels[m] = _numbered(forest, cores[m])
            self._attach_by_search(level, cores[m], labels[m])
        return first

    def _join(self, level: int, forest: DisjointSets, cores: Index, above: Index) -> None:
        """Join ``cores``, large components of ``above`` each on its own, all others together."""
        joiner = Joiner(self._tiles, level, forest, self._space, self._random)
        sizes = np.bincount(above[cores], minlength=self._n)
        large = np.flatnonzero(sizes >= APART)
        for root in large:
            joiner.join(cores[above[cores] == root])
        joiner.join(cores[sizes[above[cores]] < APART])

    def _attach_by_search(self, level: int, cores: Mask, labels: Labels) -> None:
        """Give each row that is not core the lowest cluster among its core neighbours, in place."""
        inner = self._space.among(np.flatnonzero(cores))
        outer = self._space.cut(np.flatnonzero(~cores), t.TILE_ROWS)
        limit = self._tiles.limits[level]

        def work(position: int) -> None:
            rows, room = outer.rows[position], self._tiles.buffer()
            near = inner.nearest(outer.low[position], outer.high[position], limit)
            cols = np.concatenate([*(inner.rows[k] for k in near), rows[:0]])
            for some in pieces(cols, self._tiles.cols):
                i, j = self._tiles.neighbours(rows, some, level, room)
                _attach(labels, i, labels[j])

        for _ in in_threads(work, range(len(outer.rows)) if inner.rows else ()):
            pass


def inwards(n: int) -> Iterator[tuple[int, int, int]]:
    """Yield each of ``range(n)`` with the nearest earlier ones below it (or -1) and above it (or n)."""
    yield n - 1, -1, n
    if n > 1:
        yield 0, -1, n - 1
    open_ = [(0, n - 1)]
    while open_:
        below, above = open_.pop()
        middle = (below + above) // 2
        if middle > below:
            yield middle, below, above
            open_ += [(below, middle), (middle, above)]


def _at_level(density: Density, level: int) -> tuple[Index, Index]:
    """Return the neighbourhoods, at one level, of the rows that are not dense there."""
    rows, cols, first = density.pairs  # type: ignore[misc]
    use = (first <= level) & (density.level[rows] >= level)
    return rows[use].astype(np.intp), cols[use].astype(np.intp)


def _join_pairs(forest: DisjointSets, rows: Index, cols: Index, cores: Mask) -> None:
    """Join all pairs of core samples; ``rows`` ascend."""
    both = cores[rows] & cores[cols]
    rows, cols = rows[both], cols[both]
    start = np.flatnonzero(np.diff(rows, prepend=-1))
    forest.union(rows[start], cols[start])  # one pair per row joins most components, which leaves few pairs
    roots = forest.find(np.arange(len(cores)))
    apart = roots[rows] != roots[cols]
    forest.union(rows[apart], cols[apart])


def _numbered(forest: DisjointSets, cores: Mask) -> Labels:
    """Number the core samples' components by their lowest member, which is their root."""
    labels = np.full(len(cores), NOISE, np.int32)
    members = np.flatnonzero(cores)
    roots = forest.find(members)
    number = np.zeros(len(cores), np.int32)
    number[roots] = 1
    labels[members] = np.cumsum(number, dtype=np.int32)[roots] - 1
    return labels


def _attach(labels: Labels, rows: Index, reached: Labels) -> None:
    """Lower the labels of border rows to the clusters that they reach, in place."""
    unsigned = labels.view(np.uint32)  # noise, -1, is the largest unsigned number
    np.minimum.at(unsigned, rows, reached.view(np.uint32))


def dbscan_grid(
    X: Matrix,
    eps_values: Sequence[float],
    min_samples_values: Sequence[int],
    metric: Metric = "euclidean",
    device: Device = "cpu",
) -> Labels:
    """Return the labels of DBSCAN for every cell of a grid of ``eps`` and ``min_samples``, by one search.

    Parameters
    ----------
    X : (n, p) array
        Finite float32 or float64.
    eps_values, min_samples_values : sequences of numbers
        Axes of the grid, in any order.
    metric : {"euclidean", "cosine", "centered_cosine"}, default "euclidean"
    device : str, default "cpu"
        See :class:`operators.dbscan.DBSCAN`.

    Returns
    -------
    (n_eps, n_min_samples, n) int32
        Labels of each cell, equal to ``DBSCAN(eps, min_samples, metric).labels_``; -1 is noise.

    Examples
    --------
    >>> import numpy as np
    >>> from operators.dbscan import dbscan_grid
    >>> dbscan_grid(np.array([[0.0], [1.0], [9.0]]), [2.0, 20.0], [2]).tolist()
    [[[0, 0, -1]], [[0, 0, 0]]]
    """
    return cluster(Points(X, metric), eps_values, min_samples_values, device=device)[0]
