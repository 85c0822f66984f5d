"""Silhouette coefficients computed from sums of distances, which can be added over blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from operators.arrays import Float64, Index

TILE = 512, 1024  # rows and columns of the distances held at once


def cluster_sizes(labels: npt.NDArray[Any], n_clusters: Index) -> Index:
    """Count the rows (K,) in each cluster of each labeling, laid out as in :func:`cluster_sums`."""
    counts = [np.bincount(row + 1, minlength=k) for row, k in zip(labels, n_clusters, strict=True)]
    return np.concatenate(counts)


def cluster_sums(
    rows: npt.NDArray[Any], block: npt.NDArray[Any], labels: npt.NDArray[Any], n_clusters: Index
) -> Float64:
    """Sum the Euclidean distances from some rows to the clusters of m labelings of a block of rows.

    Parameters
    ----------
    rows : (s, p) float32 or float64.
    block : (b, p) rows of the same type. Small norms keep rounding small: centre both by the same row.
    labels : (m, b) labels of the block's rows, from -1.
    n_clusters : (m,) clusters that each labeling of all rows has, noise (also an empty one) included.

    Returns
    -------
    (K, s) float64: one row per cluster, labeling by labeling, noise first. Add them over blocks.
    """
    squares = np.einsum("ij,ij->i", rows, rows)

    def beside(cols: Index) -> Callable[[slice], Any]:
        others = block[cols]
        other_squares = np.einsum("ij,ij->i", others, others)
        return lambda some: _distances(rows[some], others, squares[some], other_squares)

    return summed(beside, len(rows), labels, n_clusters)


def summed(
    beside: Callable[[Index], Callable[[slice], Any]],
    n_rows: int,
    labels: npt.NDArray[Any],
    n_clusters: Index,
) -> Float64:
    """Compute :func:`cluster_sums` from any source of distances.

    ``beside(cols)(rows)`` returns the distances of a tile, (len(rows), len(cols)).
    """
    atoms, atom_labels = unseparated(labels)
    totals = np.zeros((n_rows, atom_labels.shape[1]))
    order = np.argsort(atoms, kind="stable")
    for first in range(0, len(order), TILE[1]):
        cols = order[first : first + TILE[1]]
        starts = np.flatnonzero(np.diff(atoms[cols], prepend=-1))
        distances = beside(cols)
        for start in range(0, n_rows, TILE[0]):
            some = slice(start, min(start + TILE[0], n_rows))
            totals[some, atoms[cols[starts]]] += np.add.reduceat(distances(some), starts, axis=1)
    return np.asarray(merging(atom_labels, n_clusters) @ totals.T)


def coefficients(sums: Float64, sizes: Index, labels: npt.NDArray[Any], n_clusters: Index) -> Float64:
    """Compute silhouette coefficients from summed distances.

    Parameters
    ----------
    sums : (K, s) of :func:`cluster_sums`, over all rows.
    sizes : (K,) rows in each cluster; clusters may be empty.
    labels : (m, s) labels of the s rows, from -1.
    n_clusters : (m,) as in :func:`cluster_sums`.

    Returns
    -------
    (m, s) float64.
    """
    values = np.zeros(labels.shape)
    at, stop = np.arange(labels.shape[1]), 0
    for m, own in enumerate(labels + 1):
        start, stop = stop, stop + int(n_clusters[m])
        size = sizes[start:stop]
        inner = sums[start:stop][own, at] / np.maximum(size[own] - 1, 1)
        means = np.full((stop - start, len(at)), np.inf)
        np.divide(sums[start:stop], size[:, None], out=means, where=size[:, None] > 0)
        means[own, at] = np.inf
        outer = means.min(axis=0)
        largest = np.maximum(inner, outer)
        several = (largest > 0) & (size[own] > 1)
        np.divide(outer - inner, largest, out=values[m], where=several)
    return values


def mean_and_error(values: Float64, n: int) -> tuple[Float64, Float64]:
    """Return the means of coefficients (m, s), and their standard errors for all n rows (0 if s = n)."""
    s = values.shape[1]
    spread = values.std(axis=1, ddof=1) if 1 < s < n else np.zeros(len(values))
    return values.mean(axis=1), spread * np.sqrt((1 - s / n) / s)


def _distances(A: Any, B: Any, squares_a: Any, squares_b: Any) -> Any:
    # The squares are two more columns of the factors: adding them afterwards takes as long as the product.
    far = np.column_stack([-2 * A, squares_a, np.ones_like(squares_a)]) @ (
        np.column_stack([B, np.ones_like(squares_b), squares_b]).T
    )
    # The product leaves a rounding error between equal rows, which the root would magnify: set it to 0.
    rounding = 8 * np.finfo(far.dtype).eps * (squares_a + squares_b.max())
    close = np.flatnonzero(far.min(axis=1) < rounding)
    far[close] = np.where(far[close] < rounding[close, None], 0, far[close])
    return np.sqrt(far, out=far)


def unseparated(labels: npt.NDArray[Any]) -> tuple[Index, npt.NDArray[Any]]:
    """Return the sets of rows that no labeling separates: each row's set (n,), and the sets' labels (m,
    sets).
    """
    atoms = np.zeros(labels.shape[1], np.intp)
    for row in labels:
        key = (row.astype(np.intp) + 1) * (int(atoms.max(initial=0)) + 1) + atoms
        if key.max(initial=0) > 16 * len(key):
            atoms = np.unique(key, return_inverse=True)[1]
            continue
        used = np.zeros(int(key.max(initial=0)) + 1, np.bool_)
        used[key] = True
        atoms = (np.cumsum(used) - 1)[key]
    first = np.unique(atoms, return_index=True)[1]
    return atoms, labels[:, first]


def merging(atom_labels: npt.NDArray[Any], n_clusters: Index) -> csr_array:
    """Return a matrix (K, n_sets) with ones where a set belongs to a cluster."""
    which = atom_labels + 1 + (np.cumsum(n_clusters) - n_clusters)[:, None]
    sets = np.broadcast_to(np.arange(atom_labels.shape[1]), which.shape)
    shape = int(n_clusters.sum()), atom_labels.shape[1]
    return csr_array((np.ones(which.size), (which.ravel(), sets.ravel())), shape)
