"""Mean silhouette coefficient without an n x n matrix, for many labelings at once.

For row i, a is the mean distance to the other rows of its cluster and b the smallest mean distance to another
cluster; its coefficient is (b - a) / max(a, b), and 0 in a cluster of one row.

A labeling needs only the sums of distances from a row to its clusters, which can be added over blocks of
rows. For rows in shards, call ``cluster_sums`` of :mod:`operators.metrics.silhouette_sums` for each shard, in
order, with the rows of :func:`sampled_rows`, and ``coefficients`` at the end, as :func:`mean_silhouettes`
does.

Source: Rousseeuw: Silhouettes, J. Comput. Appl. Math. 20, 1987.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import normalize

from operators.arrays import Float64, Index
from operators.metrics.silhouette_sums import (
    cluster_sizes,
    cluster_sums,
    coefficients,
    mean_and_error,
    merging,
    summed,
    unseparated,
)

Metric: TypeAlias = Literal["euclidean", "cosine"]

EXACT_ROWS = 6_000
"""Up to this many rows, every row is compared with every other one."""
SAMPLE_ROWS = 3_000
"""Beyond ``EXACT_ROWS``, this many rows are compared with every other one."""
BLOCK = 1 << 15
"""Rows whose distances to one row are added before they are added to the total."""
SUMS = 1 << 23
"""Largest number of float64 sums that are held at once."""
FAILED = -1.0
"""Score of a labeling that has no silhouette."""


@runtime_checkable
class Comparable(Protocol):
    """Rows that are not given as a matrix but compute their distances."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the rows: (n, entries of a row)."""
        ...

    def distances(self, rows: Index, cols: Index) -> npt.NDArray[Any]:
        """Return the Euclidean distances (len(rows), len(cols)), 0 between equal rows."""
        ...


class Silhouettes(NamedTuple):
    """Scores of m labelings, with their uncertainty.

    Attributes
    ----------
    mean : (m,) mean silhouette coefficient; -1 with fewer than 2 clusters or as many as rows.
    standard_error : (m,) of the mean over all rows, due to the rows drawn; 0 where all were used.
    """

    mean: Float64
    standard_error: Float64


def silhouette_grid(
    X: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    metric: Metric = "euclidean",
    *,
    sample_size: int | None = None,
    random_state: int = 0,
) -> Float64:
    """Return the mean silhouette (m,) of each labeling; see :func:`mean_silhouettes`."""
    return mean_silhouettes(X, labels, metric, sample_size=sample_size, random_state=random_state).mean


def mean_silhouettes(
    X: npt.NDArray[Any] | Comparable,
    labels: npt.NDArray[Any],
    metric: Metric = "euclidean",
    *,
    sample_size: int | None = None,
    random_state: int = 0,
) -> Silhouettes:
    """Return the mean silhouette coefficient of each of several labelings of the same rows.

    The distances are computed once for all labelings. Equal labelings have equal scores, to the bit.

    Parameters
    ----------
    X : (n, p) array or Comparable
        Finite numbers, or rows that compute their Euclidean distances.
    labels : (m, n) array of integers
        Clusters from 0; noise (-1) counts as one more cluster.
    metric : {"euclidean", "cosine"}, default "euclidean"
        "euclidean" takes s n p operations for s rows compared with all n. "cosine" takes n k p for k clusters
        and is always exact, since the mean cosine distance to a cluster is 1 - <u, mean of its unit rows>.
    sample_size : int, optional
        Number of rows that are compared with all others; by default all of up to 6,000 rows, and 3,000 of
        more. Distances of a sample are float32, accurate to 1e-3 of the longest row.
    random_state : int, default 0
        Seed of the sample.

    Returns
    -------
    Silhouettes
        Means and standard errors, each (m,).

    Raises
    ------
    ValueError
        The metric is unknown, or the lengths differ.
    """
    if metric not in ("euclidean", "cosine"):
        raise ValueError(f"silhouette: metric is {metric!r}; use euclidean or cosine")
    if labels.shape[1:] != X.shape[:1]:
        raise ValueError(
            f"silhouette: X has {X.shape[0]} rows, labels have shape {labels.shape}; give (m, n)"
        )
    distinct, which = _distinct(labels)
    n = labels.shape[1]
    n_clusters = distinct.max(axis=1, initial=-1).astype(np.intp) + 2
    sizes = cluster_sizes(distinct, n_clusters)
    n_used = np.add.reduceat(sizes > 0, np.cumsum(n_clusters) - n_clusters, dtype=np.intp)
    usable = (n_used >= 2) & (n_used < n)
    drawn = np.arange(n) if metric == "cosine" else sampled_rows(n, sample_size, random_state)
    found = np.zeros((len(distinct), len(drawn)))
    if usable.any():
        sizes = sizes[np.repeat(usable, n_clusters)]
        sums = _sums_of(X, metric)
        for some, part in sums(distinct[usable], n_clusters[usable], drawn):
            found[usable, some] = coefficients(
                part, sizes, distinct[np.ix_(usable, drawn[some])], n_clusters[usable]
            )
    mean, error = mean_and_error(found, n)
    return Silhouettes(np.where(usable, mean, FAILED)[which], np.where(usable, error, 0.0)[which])


def sampled_rows(n: int, sample_size: int | None = None, random_state: int = 0) -> Index:
    """Return the ascending positions of the rows that :func:`mean_silhouettes` compares with all others."""
    if sample_size is None:
        sample_size = n if n <= EXACT_ROWS else SAMPLE_ROWS
    if sample_size >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(random_state).choice(n, sample_size, replace=False))


def _sums_of(
    X: npt.NDArray[Any] | Comparable, metric: Metric
) -> Callable[[npt.NDArray[Any], Index, Index], Iterator[tuple[slice, Float64]]]:
    if not isinstance(X, Comparable):
        return partial(_euclidean_sums if metric == "euclidean" else _cosine_sums, X)
    if metric != "euclidean":
        raise ValueError("silhouette: rows that are not a matrix have Euclidean distances only")
    return partial(_sums_of_distances, X)


def _sums_of_distances(
    X: Comparable, labels: npt.NDArray[Any], n_clusters: Index, drawn: Index
) -> Iterator[tuple[slice, Float64]]:
    step = max(1, SUMS // int(n_clusters.sum()))
    for first in range(0, len(drawn), step):
        rows = drawn[first : first + step]

        def beside(cols: Index, rows: Index = rows) -> Callable[[slice], npt.NDArray[Any]]:
            return lambda some: X.distances(rows[some], cols)

        yield slice(first, first + len(rows)), summed(beside, len(rows), labels, n_clusters)


def _euclidean_sums(
    X: npt.NDArray[Any], labels: npt.NDArray[Any], n_clusters: Index, drawn: Index
) -> Iterator[tuple[slice, Float64]]:
    """Yield the sums for some of the drawn rows at a time."""
    dtype: Any = np.float64 if len(drawn) == len(X) else np.float32  # a sample errs by more than rounding
    centre = X[drawn].mean(axis=0, dtype=np.float64)
    step = max(1, SUMS // int(n_clusters.sum()))
    for first in range(0, len(drawn), step):
        some = slice(first, min(first + step, len(drawn)))
        rows = (X[drawn[some]] - centre).astype(dtype)
        total = np.zeros((int(n_clusters.sum()), len(rows)))
        for start in range(0, len(X), BLOCK):
            block = (X[start : start + BLOCK] - centre).astype(dtype)
            total += cluster_sums(rows, block, labels[:, start : start + BLOCK], n_clusters)
        yield some, total


def _cosine_sums(
    X: npt.NDArray[Any], labels: npt.NDArray[Any], n_clusters: Index, drawn: Index
) -> Iterator[tuple[slice, Float64]]:
    """Yield sums of the distances 1 - cos to each cluster, computed from the sum of its unit rows.

    A row has distance 0 from itself.
    """
    unit = normalize(X.astype(np.float64, copy=False))
    atoms, atom_labels = unseparated(labels)
    order = np.argsort(atoms, kind="stable")
    starts = np.flatnonzero(np.diff(atoms[order], prepend=-1))
    centres = merging(atom_labels, n_clusters) @ np.add.reduceat(unit[order], starts, axis=0)
    sizes = cluster_sizes(labels, n_clusters)[:, None]
    own_row = 1 - np.einsum("ij,ij->i", unit, unit)
    first_cluster = (np.cumsum(n_clusters) - n_clusters)[:, None]
    step = max(1, SUMS // len(centres))
    for start in range(0, len(drawn), step):
        some = slice(start, min(start + step, len(drawn)))
        rows = drawn[some]
        totals = sizes - centres @ unit[rows].T
        totals[labels[:, rows] + 1 + first_cluster, np.arange(len(rows))] -= own_row[rows]
        # Between parallel rows 1 - cos is rounding; a ratio of rounding errors would be no coefficient.
        totals[totals < 1e-12 * sizes] = 0
        yield some, totals


def _distinct(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Index]:
    """Return the different labelings, and the index of each given labeling among them."""
    seen: dict[bytes, int] = {}
    which = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in labels], np.intp)
    return labels[np.unique(which, return_index=True)[1]], which
