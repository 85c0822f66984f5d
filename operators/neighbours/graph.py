"""A neighbour graph as plain arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from operators.arrays import Float32, Ids


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
        """(n,) int64: neighbours of each row."""
        return np.diff(self.indptr)

    def take(self, rows: Ids) -> Graph:
        """The neighbours of some rows, among the same others."""
        degrees = self.degrees[rows]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(degrees)])
        edges = np.repeat(self.indptr[:-1][rows] - indptr[:-1], degrees) + np.arange(indptr[-1])
        return replace(self, indptr=indptr, indices=self.indices[edges], distances=self.distances[edges])

    def within(self, eps: float) -> Graph:
        """The edges no longer than ``eps``, compared in float32."""
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
        """(e,) int64: the row that each edge starts from."""
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
