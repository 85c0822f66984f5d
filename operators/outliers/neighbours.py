"""Labels and distances of the nearest sample rows, in a bounded number of dimensions.

Mapped rows are rounded to multiples of a small step, so that every product of the search is a sum of integers
that float32 holds exactly. The result is then the same to the bit for any order of summation, any block of
rows and any library of linear algebra. Equal sample rows are searched once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from operators.arrays import Float32, Float64, Int64
from operators.outliers.linear import principal_directions

MAX_DIMENSIONS = 64
CLIP = 4.0
STEPS = 1800
"""Steps in the norm of the longest sample row."""
MAX_NORM = 2
"""Bound on the norm of a row that is looked up, in norms of the longest sample row."""
PADDING = 2.0**23 - 1
"""Gap of the columns that fill up a matrix of gaps: above all others, which are at most 2.5 STEPS^2."""
ROWS = 64
"""Rows that are looked up together: their gaps stay in the cache."""
GROUPS = 500
"""Groups of sample rows whose least gaps bound the gap of the last neighbour; of 250 to 1,000 the fastest."""


@dataclass(frozen=True)
class NeighbourTable:
    """Rows of the sample after a linear map, searched exhaustively."""

    basis: Float32
    """(d, r) map of standardised features, clip_features at +-4, to the space of the search."""
    points: Float32
    """(m, r) mapped sample rows."""
    labels: Int64
    """(m,) their class."""
    ids: Int64
    """(m,) row ids: a row is never its own neighbour."""
    n_classes: int
    k: int
    """Neighbours that vote."""

    def prepare(self) -> None:
        """Make what all searches share; else the first one does."""
        _ = self._places, self._mix

    def search(self, Z: Float32, ids: Int64, wanted: Int64) -> tuple[Float64, Float64]:
        """Find the k nearest other rows of some rows; the other ones have no influence.

        Of several sample rows at the same place of which not all are among the k nearest, each has an equal
        part of the votes that are left.

        Parameters
        ----------
        Z : (n, d) standardised features.
        ids : (n,) row ids.
        wanted : (j,) positions of the rows that neighbours are found for.

        Returns
        -------
        votes : (j, n_classes) shares of the votes of each class, smoothed with one vote of the sample's mix.
        distance : (j,) mean Euclidean distance of the neighbours, with the expected error of rounding.
        """
        # All rows are mapped: a product may round a row differently in a block of another shape.
        Q, excess = self._rounded((clip_features(Z) @ self.basis)[wanted])
        k = min(self.k, len(self.points) - 1)
        own_place, own_label = self._find_own(ids[wanted])
        votes, distance = np.empty((len(Q), self.n_classes)), np.empty(len(Q))
        gap_space = np.empty((ROWS, self._places.matrix.shape[1]), np.float32)
        for start in range(0, len(Q), ROWS):
            rows = slice(start, start + ROWS)
            found, gaps = self._nearest(Q[rows], k, gap_space)
            counts = self._places.counts[found]
            own = found == own_place[rows, None]
            counts[own, own_label[rows][own.any(axis=1)]] -= 1.0
            votes[rows], distance[rows] = _count_votes(
                counts.astype(np.float64), self._lengths(Q[rows], gaps), k
            )
        return (votes + self._mix) / (k + 1.0), distance / k + excess

    def _lengths(self, Q: Float32, gaps: Float64) -> Float64:
        """Return the distances of rounded rows (n, r) from places, by their gaps (n, j)."""
        squares = (Q.astype(np.float64) ** 2).sum(axis=1)
        # Two rounded coordinates differ from the true ones by 1/6 of a squared step on average.
        squared = np.maximum(2.0 * gaps + squares[:, None], 0.0) + Q.shape[1] / 6
        return np.asarray(np.sqrt(squared) * self._step, np.float64)

    @cached_property
    def _step(self) -> float:
        """Length that coordinates are rounded to multiples of."""
        longest = float(np.sqrt((self.points.astype(np.float64) ** 2).sum(axis=1).max()))
        return max(longest, 1e-6) / STEPS

    def vote_bounds(self) -> tuple[Float64, Float64]:
        """Return the least and the largest votes (n_classes,) that :meth:`search` can give each class."""
        k = min(self.k, len(self.points) - 1)
        return self._mix / (k + 1.0), (self._mix + k) / (k + 1.0)

    @cached_property
    def _mix(self) -> Float64:
        """(n_classes,) shares of the classes."""
        return np.asarray(np.bincount(self.labels, minlength=self.n_classes) / len(self.labels), np.float64)

    @cached_property
    def _places(self) -> _Places:
        """The rounded sample rows, each once."""
        rounded, _ = self._rounded(self.points)
        places, place = np.unique(rounded, axis=0, return_inverse=True)
        place = place.ravel().astype(np.int64)
        counts = np.zeros((len(places), self.n_classes), np.float32)
        np.add.at(counts, (place, self.labels), 1.0)
        order = np.argsort(self.ids, kind="stable")
        return _Places(*_gap_matrix(places), counts, self.ids[order], place[order], order)

    def _rounded(self, rows: Float32) -> tuple[Float32, Float64]:
        """Round mapped rows (n, r) to whole steps; what they exceed the bound on their norm by is (n,)."""
        norm = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
        # Half a step less in every coordinate: rounding must not pass the bound.
        bound = self._step * (MAX_NORM * STEPS - 0.5 * rows.shape[1] ** 0.5)
        shrunk = np.minimum(1.0, bound / np.maximum(norm, 1e-12)) / self._step
        # The sum turns -0 into 0.
        return np.rint(rows * shrunk[:, None]).astype(np.float32) + 0, np.maximum(norm - bound, 0.0)

    def _find_own(self, ids: Int64) -> tuple[Int64, Int64]:
        """Return (n,) the places of rows that are in the sample, -1 for others, and their classes there."""
        places = self._places
        at = np.minimum(np.searchsorted(places.ids, ids), len(places.ids) - 1)
        inside = places.ids[at] == ids
        return np.where(inside, places.of_id[at], -1), self.labels[places.order[at]]

    def _nearest(self, Q: Float32, k: int, space: Float32) -> tuple[Int64, Float64]:
        """Return the k + 1 nearest places, all if there are fewer, in order, and half of their squared gaps.

        A gap is |p - q|^2 / 2 - |q|^2 / 2; equal gaps are in the order of the places. ``space``, of shape
        (ROWS, columns), is overwritten: fresh memory for so many gaps costs as much as the product.
        """
        places = self._places
        wanted, (n, columns) = min(k + 1, len(places.counts)), (len(Q), places.matrix.shape[1])
        gaps = np.matmul(np.hstack([Q, np.ones((n, 1), np.float32)]), places.matrix, out=space[:n])
        # At least as many groups as wanted have a gap up to the bound, and so have as many places.
        least = gaps.reshape(n, -1, places.groups).min(axis=1)
        bound = np.partition(least, wanted - 1, axis=1)[:, wanted - 1 : wanted]
        hits = np.flatnonzero(gaps <= bound)
        row, gap = hits // columns, gaps.ravel()[hits]
        order = np.lexsort((gap, row))
        starts = np.searchsorted(row, np.arange(n))
        first = order[starts[:, None] + np.arange(wanted)]
        return np.asarray(hits[first] % columns, np.int64), gap[first].astype(np.float64)


@dataclass(frozen=True)
class _Places:
    """Distinct rounded sample rows."""

    matrix: Float32
    """(r + 1, columns) what a rounded row, followed by 1, is multiplied with to give its gaps."""
    groups: int
    """Number of groups of columns; column j is in group j modulo this."""
    counts: Float32
    """(n, n_classes) sample rows of each class at each place."""
    ids: Int64
    """(m,) ids of sample rows, ascending."""
    of_id: Int64
    """(m,) place of each of these rows."""
    order: Int64
    """(m,) their positions in the sample."""


def _gap_matrix(places: Float32) -> tuple[Float32, int]:
    """Return (r + 1, columns) coordinates with the other sign over half of the squared norms, and the groups.

    The number of columns is a multiple of the number of groups; columns beyond the places are padding.
    """
    n, r = places.shape
    size = max(1, n // GROUPS)
    groups = -(-n // size)
    matrix = np.zeros((r + 1, size * groups), np.float32)
    matrix[:r, :n] = -places.T
    matrix[r] = PADDING
    matrix[r, :n] = (places.astype(np.float64) ** 2).sum(axis=1) / 2
    return matrix, groups


def _count_votes(counts: Float64, lengths: Float64, k: int) -> tuple[Float64, Float64]:
    """Count the votes of k neighbours, and add up their distances.

    Parameters
    ----------
    counts : (n, j, n_classes) rows of each class at each place, nearest places first.
    lengths : (n, j) distances of the places.

    Returns
    -------
    votes : (n, n_classes)
    total : (n,)
    """
    votes, total = np.zeros((len(counts), counts.shape[2])), np.zeros(len(counts))
    left = np.full(len(counts), float(k))
    for j in range(counts.shape[1]):
        here = counts[:, j].sum(axis=1)
        used = np.minimum(left, here)
        votes += counts[:, j] * (used / np.maximum(here, 1.0))[:, None]
        total += used * lengths[:, j]
        left -= used
    return votes, total


def clip_features(Z: Float32) -> Float32:
    """Bound standardised features, so that one long tail does not decide all distances."""
    return np.clip(Z, -CLIP, CLIP)


def principal_basis(Z: Float32, removed: Float32 | None = None) -> Float32:
    """Return (d, r) principal directions, r <= 64, of rows without the span of ``removed``.

    Parameters
    ----------
    Z : (n, d) standardised features.
    removed : (d, q) orthonormal directions, which are projected out first.
    """
    V = clip_features(Z).astype(np.float64)
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
    V = clip_features(Z)
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
