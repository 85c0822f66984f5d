"""DBSCAN over a grid of eps and min_samples, and neighbour counts.

Ester, Kriegel, Sander, Xu: A density-based algorithm for discovering clusters, KDD 1996.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.dbscan.clusters import Labels, cluster
from operators.dbscan.distances import Float64, Index, Matrix, Metric, Points, blocks
from operators.dbscan.tiles import Device

Counts: TypeAlias = npt.NDArray[Any]

TILE = 1024


def dbscan_grid(
    X: Matrix,
    eps_values: Sequence[float],
    min_samples_values: Sequence[int],
    metric: Metric = "euclidean",
    device: Device = "cpu",
) -> Labels:
    """Labels of every cell of the grid, each equal to ``DBSCAN(eps, min_samples, metric).labels_``.

    Neighbourhoods are nested in eps and min_samples, so that all cells share one search.

    Parameters
    ----------
    X : (n, p) float32 or float64, finite.
    eps_values, min_samples_values : the grid's axes, in any order.
    metric : "euclidean", "cosine" or "centered_cosine".
    device : see :class:`operators.dbscan.DBSCAN`.

    Returns
    -------
    (n_eps, n_min_samples, n) int32; -1 is noise.
    """
    return cluster(Points(X, metric), eps_values, min_samples_values, device=device)[0]


def neighbour_counts(
    X: Matrix,
    eps_values: Sequence[float],
    metric: Metric = "euclidean",
    sample_weight: Float64 | None = None,
) -> Counts:
    """Neighbours of each row within each eps, the row itself included.

    Parameters
    ----------
    X : (n, p) float32 or float64, finite.
    eps_values : radii, in the metric's unit (1 - cos for the cosine metrics).
    metric : "euclidean", "cosine" or "centered_cosine".
    sample_weight : (n,), optional: sum the neighbours' weights instead of counting them.

    Returns
    -------
    (len(eps_values), n) int64, or float64 with ``sample_weight``.
    """
    return count_neighbours(Points(X, metric), eps_values, sample_weight)


def count_neighbours(
    points: Points, eps_values: Sequence[float], sample_weight: Float64 | None = None
) -> Counts:
    """:func:`neighbour_counts` of prepared rows: every pair is compared, once."""
    counts = np.zeros((len(eps_values), points.n), np.int64 if sample_weight is None else np.float64)
    for rows, cols in combinations_with_replacement(blocks(points.n, TILE), 2):
        gaps = points.gaps(rows, cols)
        for eps, count in zip(eps_values, counts, strict=True):
            inside = points.decide(gaps, rows, cols, eps)
            if cols is rows:
                np.fill_diagonal(inside, True)  # also a zero row is its own neighbour
            else:
                count[cols] += _count(inside.T, rows, sample_weight)
            count[rows] += _count(inside, cols, sample_weight)
    return counts


def _count(inside: npt.NDArray[np.bool_], others: Index, sample_weight: Float64 | None) -> Counts:
    if sample_weight is None:
        return np.asarray(np.count_nonzero(inside, axis=1))
    return np.asarray(inside @ sample_weight[others])
