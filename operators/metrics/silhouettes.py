"""Mean silhouette coefficient, exact, without an n x n matrix, for many labelings at once.

For row i, a is the mean distance to the other rows of its cluster and b the smallest mean distance
to another cluster; its coefficient is (b - a) / max(a, b), and 0 in a cluster of one.
Rousseeuw: Silhouettes, J. Comput. Appl. Math. 20, 1987.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

Float64: TypeAlias = npt.NDArray[np.float64]
Index: TypeAlias = npt.NDArray[np.intp]
Sums: TypeAlias = tuple[slice, Float64]

BLOCK_ENTRIES = 1 << 22  # float64 distances held at once
FAILED = -1.0


def silhouette(
    X: npt.ArrayLike, labels: npt.ArrayLike, metric: Literal["euclidean", "cosine"] = "euclidean"
) -> float:
    """Mean silhouette coefficient; noise (-1) is one more cluster, as in scikit-learn.

    Parameters
    ----------
    X : (n, p) finite numbers.
    labels : (n,) integers.
    metric : "euclidean" (default) takes n^2 p operations; "cosine" takes n k p for k clusters, since
        the mean cosine distance to a cluster is 1 - <u, mean of its unit rows>.

    Returns
    -------
    float in [-1, 1].

    Raises
    ------
    ValueError : unknown metric, lengths differ, fewer than 2 clusters, or as many clusters as rows.
    """
    X, labels = np.asarray(X), np.asarray(labels)
    n_clusters = len(np.unique(labels))
    if not 2 <= n_clusters < len(labels):
        raise ValueError(
            f"silhouette: {n_clusters} clusters in {len(labels)} rows; it needs from 2 to n - 1 clusters"
        )
    return float(silhouette_grid(X, labels[None], metric)[0])


def silhouette_grid(
    X: npt.NDArray[Any], labels: npt.NDArray[Any], metric: Literal["euclidean", "cosine"] = "euclidean"
) -> Float64:
    """Mean silhouette coefficient of each of several labelings of the same rows.

    The distances are computed once: rows that share their cluster in every labeling are summed
    first, so that a labeling costs little more. Equal labelings get equal scores, to the bit.

    Parameters
    ----------
    X : (n, p) finite numbers.
    labels : (m, n) integers, -1 (noise) being one more cluster.
    metric : as in :func:`silhouette`.

    Returns
    -------
    (m,) float64; -1 for a labeling with fewer than 2 clusters or as many as rows.

    Raises
    ------
    ValueError : unknown metric, or lengths differ.
    """
    if metric not in ("euclidean", "cosine"):
        raise ValueError(f"silhouette: metric is {metric!r}; use euclidean or cosine")
    if labels.shape[1:] != X.shape[:1]:
        raise ValueError(f"silhouette: X has {len(X)} rows, labels have shape {labels.shape}; give (m, n)")
    distinct, which = np.unique(labels, axis=0, return_inverse=True)
    atom_labels, atoms = np.unique(distinct, axis=1, return_inverse=True)
    atoms = atoms.reshape(-1)
    sizes = np.bincount(atoms)
    order = np.argsort(atoms, kind="stable")
    scores = np.full(len(distinct), FAILED)
    cells = [_Cell(row, sizes) for row in atom_labels]
    usable = [c for c, cell in enumerate(cells) if 2 <= len(cell.sizes) < len(X)]
    if usable:
        scores[usable] = 0.0
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        sums = _euclidean_sums if metric == "euclidean" else _cosine_sums
        for rows, totals in sums(X[order].astype(np.float64, copy=False), starts):
            for c in usable:
                scores[c] += cells[c].coefficients(totals, atoms[order[rows]]).sum() / len(X)
    return np.asarray(scores[which.reshape(-1)])


class _Cell:
    """One labeling, seen from the atoms: the sets of rows that no labeling separates."""

    def __init__(self, atom_labels: npt.NDArray[Any], atom_sizes: Index) -> None:
        clusters, self._of_atom = np.unique(atom_labels, return_inverse=True)
        self.sizes = np.bincount(self._of_atom, weights=atom_sizes)
        n_atoms = len(atom_labels)
        ones = np.ones(n_atoms)
        self._merge = csr_array((ones, (self._of_atom, np.arange(n_atoms))), (len(clusters), n_atoms))

    def coefficients(self, totals: Float64, atoms: Index) -> Float64:
        """Silhouette coefficients of b rows from their (b, n_atoms) summed distances."""
        sums = self._merge @ totals.T
        own, rows = self._of_atom[atoms], np.arange(len(atoms))
        inner = sums[own, rows] / np.maximum(self.sizes[own] - 1, 1)
        means = sums / self.sizes[:, None]
        means[own, rows] = np.inf
        outer = means.min(axis=0)
        largest = np.maximum(inner, outer)
        values = np.divide(outer - inner, largest, out=np.zeros_like(inner), where=largest > 0)
        values[self.sizes[own] == 1] = 0.0
        return np.asarray(values)


def _euclidean_sums(X: Float64, starts: Index) -> Iterator[Sums]:
    """For blocks of rows, the sum of distances to the rows of each atom; X is sorted by atom."""
    X -= X.mean(axis=0)  # shorter rows, smaller rounding; X is the caller's own copy
    squares = np.einsum("ij,ij->i", X, X)
    step = max(1, BLOCK_ENTRIES // len(X))
    for start in range(0, len(X), step):
        rows = slice(start, min(start + step, len(X)))
        distances = X[rows] @ X.T
        distances *= -2
        distances += squares
        distances += squares[rows, None]
        np.maximum(distances, 0, out=distances)
        distances[np.arange(rows.stop - start), np.arange(start, rows.stop)] = 0
        yield rows, np.add.reduceat(np.sqrt(distances, out=distances), starts, axis=1)


def _cosine_sums(X: Float64, starts: Index) -> Iterator[Sums]:
    """The same for 1 - cos, from the sum of each atom's unit rows; a row is at 0 from itself."""
    unit = normalize(X)
    atom_sums = np.add.reduceat(unit, starts, axis=0)
    sizes = np.diff(np.append(starts, len(X)))
    position = np.repeat(np.arange(len(starts)), sizes)
    step = max(1, BLOCK_ENTRIES // len(starts))
    for start in range(0, len(X), step):
        rows = slice(start, min(start + step, len(X)))
        totals = sizes - unit[rows] @ atom_sums.T
        totals[np.arange(rows.stop - start), position[rows]] -= 1 - np.einsum(
            "ij,ij->i", unit[rows], unit[rows]
        )
        # What 1 - cos leaves of parallel rows is rounding, and a ratio of roundings no coefficient.
        totals[totals < 1e-12 * sizes] = 0
        yield rows, totals
