"""A neighbour graph as plain arrays, and what is read from it: densities and near-duplicates."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from operators.arrays import Float32, Float64, Ids
from operators.disjoint_sets import DisjointSets


@dataclass(frozen=True, eq=False)
class Graph:
    """Neighbours of n rows among m rows, in compressed sparse rows; no row is its own neighbour.

    Attributes
    ----------
    indptr : (n + 1,) int64: the neighbours of row i are ``indices[indptr[i]:indptr[i + 1]]``.
    indices : (e,) int64 positions among the m rows, ascending within each row.
    distances : (e,) float32: Euclidean, or 1 - cos; computed in float64 and then rounded.
    n_columns : m.
    eps : radius within which all neighbours lie; None where there is no such limit.
    n_neighbors : the graph holds no more than so many per row, the nearest; None: all within eps.
    """

    indptr: Ids
    indices: Ids
    distances: Float32
    n_columns: int
    eps: float | None = None
    n_neighbors: int | None = None

    @property
    def n_rows(self) -> int:
        """Rows whose neighbours are held."""
        return len(self.indptr) - 1

    @property
    def degrees(self) -> Ids:
        """Number of neighbours (n,), int64, of each row."""
        return np.diff(self.indptr)

    def take(self, rows: Ids) -> Graph:
        """Return the neighbours of some rows, among the same others."""
        degrees = self.degrees[rows]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(degrees)])
        edges = np.repeat(self.indptr[:-1][rows] - indptr[:-1], degrees) + np.arange(indptr[-1])
        return replace(self, indptr=indptr, indices=self.indices[edges], distances=self.distances[edges])

    def within(self, eps: float) -> Graph:
        """Keep the edges no longer than ``eps``, compared in float32."""
        kept = self.distances <= np.float32(eps)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])
        return replace(
            self,
            indptr=before[self.indptr],
            indices=self.indices[kept],
            distances=self.distances[kept],
            eps=eps,
        )

    def sources(self) -> Ids:
        """Return the row (e,), int64, that each edge starts from."""
        return np.repeat(np.arange(self.n_rows), self.degrees)


def gather(
    pieces: Iterable[tuple[Ids, Ids, Float32]],
    n_columns: int,
    eps: float | None = None,
    n_neighbors: int | None = None,
) -> Graph:
    """Join the degrees, indices and distances of consecutive rows.

    The arrays grow in place: beside the result only one piece is in memory.
    """
    degrees, indices, distances = array("q"), array("q"), array("f")
    for piece in pieces:
        degrees.frombytes(piece[0].tobytes())
        indices.frombytes(piece[1].tobytes())
        distances.frombytes(piece[2].tobytes())
    sizes = np.frombuffer(degrees, np.int64)
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    return Graph(
        indptr,
        np.frombuffer(indices, np.int64),
        np.frombuffer(distances, np.float32),
        n_columns,
        eps,
        n_neighbors,
    )


def density(graph: Graph) -> Float64:
    """Return the density of rows around each row, relative to the mean.

    For a graph of all pairs within eps: neighbours, the row itself included (Rosenblatt 1956). For a graph
    of the k nearest: one over the distance to the furthest of them (Loftsgaarden and Quesenberry 1965,
    without the exponent p, as data seldom fill their p dimensions); zero distances count as the
    smallest positive one. For the k nearest within eps: neighbours over that distance, or over eps where
    there are fewer than k.

    Parameters
    ----------
    graph : n rows.

    Returns
    -------
    (n,) float64, mean 1. Its inverse, normalised, draws rows evenly over the space, not over the data.
    """
    reach = np.full(graph.n_rows, np.inf if graph.eps is None else float(graph.eps))
    if graph.n_neighbors is not None:
        full = graph.degrees == graph.n_neighbors if graph.eps is not None else graph.degrees > 0
        furthest = np.maximum.reduceat(np.append(graph.distances, np.float32(0)), graph.indptr[:-1])
        reach[full] = furthest[full]
    positive = reach[(reach > 0) & np.isfinite(reach)]
    reach = np.maximum(reach, positive.min(initial=np.inf) if len(positive) else 1.0)
    found = 1.0 / reach if graph.eps is None else (graph.degrees + 1.0) / reach
    total = float(found.sum())
    return found * (len(found) / total) if total > 0 else np.ones(len(found))


MAX_PAIRS = 5_000_000
"""Edges from which sets are formed: those that are added first."""


@dataclass(frozen=True)
class DuplicateSets:
    """Sets of near-duplicate rows that a graph connects.

    Attributes
    ----------
    rows : rows with another one within the threshold.
    pairs : unordered pairs within it; a lower bound where the graph holds only the nearest of each row.
    n_sets : sets of rows connected by such pairs, of those that were kept.
    sets : row ids (ascending) of the largest sets, larger ones first, of equal ones the first.
    complete : false where there were more than ``MAX_PAIRS`` edges, and sets may be larger.
    """

    rows: int
    pairs: int
    n_sets: int
    sets: tuple[Ids, ...]
    complete: bool


class DuplicateCounter:
    """Counts near duplicates as edges are added. Memory: 16 bytes an edge, of at most ``MAX_PAIRS``.

    Parameters
    ----------
    threshold : largest distance of two near duplicates, compared in float32.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = np.float32(threshold)
        self._rows = self._up = self._down = self._held = 0
        self._kept: list[tuple[Ids, Ids]] = []

    def add(self, row_ids: Ids, degrees: Ids, neighbours: Ids, distances: Float32) -> None:
        """Add some rows, each once in all.

        Parameters
        ----------
        row_ids, degrees : (n,) rows and how many neighbours each has.
        neighbours, distances : (e,) row ids of the neighbours, row after row, and how far they are.
        """
        near = distances <= self._threshold
        a, b = np.repeat(row_ids, degrees)[near], neighbours[near]
        self._rows += len(np.unique(a))
        self._up += int(np.count_nonzero(a < b))
        self._down += int(np.count_nonzero(a > b))
        some = slice(0, max(0, MAX_PAIRS - self._held))
        self._held += len(a[some])
        self._kept.append((a[some], b[some]))

    def result(self, largest: int = 5) -> DuplicateSets:
        """Return the duplicates found so far, with the ``largest`` largest sets."""
        pairs = max(self._up, self._down)
        complete = self._up + self._down == self._held
        if not self._held:
            return DuplicateSets(self._rows, pairs, 0, (), complete)
        a, b = (np.concatenate(part) for part in zip(*self._kept, strict=True))
        ids = np.unique(np.concatenate([a, b]))
        forest = DisjointSets(len(ids))
        forest.union(np.searchsorted(ids, a), np.searchsorted(ids, b))
        roots, sizes = np.unique(forest.find(np.arange(len(ids))), return_counts=True)
        first = roots[np.argsort(-sizes, kind="stable")[:largest]]
        of_row = forest.find(np.arange(len(ids)))
        sets = tuple(ids[of_row == root] for root in first)
        return DuplicateSets(self._rows, pairs, len(roots), sets, complete)
