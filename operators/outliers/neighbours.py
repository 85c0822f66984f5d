"""Labels and distances of the nearest sample rows, in a bounded number of dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.neighbors import NearestNeighbors

from operators.arrays import Float32, Float64, Int64
from operators.outliers.linear import principal_directions

MAX_DIMENSIONS = 64
CLIP = 4.0


@dataclass(frozen=True)
class NeighbourTable:
    """Rows of the sample after a linear map, searched exhaustively."""

    basis: Float32
    """(d, r) map of standardised features, clipped at +-4, to the space of the search."""
    points: Float32
    """(m, r) mapped sample rows."""
    labels: Int64
    """(m,) their class."""
    ids: Int64
    """(m,) row ids: a row is never its own neighbour."""
    n_classes: int
    k: int
    """Neighbours that vote."""

    def search(self, Z: Float32, ids: Int64) -> tuple[Float64, Float64]:
        """Find the k nearest other rows of each row.

        Parameters
        ----------
        Z : (n, d) standardised features.
        ids : (n,) row ids.

        Returns
        -------
        votes : (n, n_classes) shares of the votes of each class, smoothed with one vote of the sample's mix.
        distance : (n,) mean Euclidean distance of the neighbours.
        """
        k = min(self.k, len(self.points) - 1)
        distances, found = self._index.kneighbors(clipped(Z) @ self.basis, k + 1)
        own = self.ids[found] == ids[:, None]
        drop = np.where(own.any(axis=1), own.argmax(axis=1), k)
        keep = np.arange(k + 1)[None, :] != drop[:, None]
        found, distances = found[keep].reshape(-1, k), distances[keep].reshape(-1, k)
        return self._votes(found), np.asarray(distances.mean(axis=1, dtype=np.float64), np.float64)

    @cached_property
    def _index(self) -> NearestNeighbors:
        return NearestNeighbors(algorithm="brute").fit(self.points)

    def _votes(self, found: Int64) -> Float64:
        mix = np.bincount(self.labels, minlength=self.n_classes)
        votes = np.tile(mix / mix.sum(), (len(found), 1))
        rows = np.arange(len(found))
        for j in range(found.shape[1]):
            votes[rows, self.labels[found[:, j]]] += 1.0
        return np.asarray(votes / votes.sum(axis=1, keepdims=True), np.float64)


def clipped(Z: Float32) -> Float32:
    """Bound standardised features, so that one long tail does not decide all distances."""
    return np.clip(Z, -CLIP, CLIP)


def principal_basis(Z: Float32, removed: Float32 | None = None) -> Float32:
    """Return (d, r) principal directions, r <= 64, of rows without the span of ``removed``.

    Parameters
    ----------
    Z : (n, d) standardised features.
    removed : (d, q) orthonormal directions, which are projected out first.
    """
    V = clipped(Z).astype(np.float64)
    if removed is not None:
        V -= (V @ removed.astype(np.float64)) @ removed.T
    _, kept = principal_directions(V, MAX_DIMENSIONS)
    if removed is not None:
        kept = kept - removed.astype(np.float64) @ (removed.T @ kept)
    return np.asarray(kept, np.float32)


def cue_directions(Z: Float32, y: Int64, breaks: Float64, n_classes: int, share: float = 0.2) -> Float32:
    """Return (d, q) orthonormal directions in which rows that break the cue differ from their class.

    Parameters
    ----------
    Z : (n, d) standardised features.
    breaks : (n,) in [0, 1], how surely a row breaks the cue: the biased model gets it wrong, the robust
        one right.
    share : directions are kept down to this share of the largest singular value, n_classes - 1 at most.
    """
    V = clipped(Z)
    patterns = []
    for c in range(n_classes):
        rows = np.flatnonzero(y == c)
        if len(rows) and breaks[rows].sum() > 1:
            difference = np.average(V[rows], axis=0, weights=breaks[rows])
            difference -= np.average(V[rows], axis=0, weights=1 - breaks[rows] + 1e-9)
            patterns.append(difference)
    if not patterns:
        return np.zeros((Z.shape[1], 0), np.float32)
    _, values, vectors = np.linalg.svd(np.stack(patterns), full_matrices=False)
    kept = (values > share * values[0]) & (np.arange(len(values)) < max(1, n_classes - 1))
    return np.asarray(vectors[kept].T, np.float32)
