"""DBSCAN over a grid of eps and min_samples, at about the price of one fit per eps.

Three passes over pairs of row blocks, none of which holds more than one tile:

1. neighbour counts for all eps at once, from the same products;
2. per eps, core samples are joined in order of falling count. At each min_samples, from the
   largest down, the components so far are the clusters: one growing forest serves all of them;
3. per eps, rows that are not core somewhere look for the lowest-numbered cluster in reach.

Ester, Kriegel, Sander, Xu: A density-based algorithm for discovering clusters, KDD 1996.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.dbscan.distances import Float64, Index, Matrix, Metric, Points, blocks
from operators.dbscan.forest import Forest

Labels: TypeAlias = npt.NDArray[np.int32]
Counts: TypeAlias = npt.NDArray[Any]

TILE = 1024
NOISE = -1


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


def dbscan_grid(
    X: Matrix, eps_values: Sequence[float], min_samples_values: Sequence[int], metric: Metric = "euclidean"
) -> Labels:
    """Labels of every cell of the grid, each equal to ``DBSCAN(eps, min_samples, metric).labels_``.

    Parameters
    ----------
    X : (n, p) float32 or float64, finite.
    eps_values, min_samples_values : the grid's axes, in any order.
    metric : "euclidean", "cosine" or "centered_cosine".

    Returns
    -------
    (n_eps, n_min_samples, n) int32; -1 is noise.
    """
    points = Points(X, metric)
    counts = count_neighbours(points, eps_values)
    return np.stack(
        [label(points, e, c, min_samples_values) for e, c in zip(eps_values, counts, strict=True)]
    )


def count_neighbours(
    points: Points, eps_values: Sequence[float], sample_weight: Float64 | None = None
) -> Counts:
    """:func:`neighbour_counts` of prepared rows."""
    counts = np.zeros((len(eps_values), points.n), np.int64 if sample_weight is None else np.float64)
    pieces = blocks(points.n, TILE)
    for rows, cols in combinations_with_replacement(pieces, 2):
        gaps = points.gaps(rows, cols)
        for eps, count in zip(eps_values, counts, strict=True):
            inside = points.decide(gaps, rows, cols, eps)
            if cols is rows:
                np.fill_diagonal(inside, True)  # also a zero row is its own neighbour
            else:
                count[cols] += _count(inside.T, rows, sample_weight)
            count[rows] += _count(inside, cols, sample_weight)
    return counts


def label(points: Points, eps: float, counts: Counts, min_samples_values: Sequence[float]) -> Labels:
    """Labels for one eps and several min_samples.

    Parameters
    ----------
    points : the n prepared rows.
    eps : radius.
    counts : (n,) neighbour counts (or weights) within that eps.
    min_samples_values : thresholds on ``counts``; a row that reaches one is a core sample.

    Returns
    -------
    (len(min_samples_values), n) int32. Clusters are numbered by their lowest core sample; a border
    row joins the lowest-numbered cluster that reaches it, as scikit-learn's depth-first order does.
    """
    labels = np.full((len(min_samples_values), points.n), NOISE, np.int32)
    order = np.argsort(-counts, kind="stable")
    falling = -counts[order]
    forest, done = Forest(points.n), 0
    for level in np.argsort(-np.asarray(min_samples_values), kind="stable"):
        until = int(np.searchsorted(falling, -min_samples_values[level], side="right"))
        for start in range(done, until, TILE):
            _join(points, eps, forest, order[start : min(start + TILE, until)], order[:start])
        done = max(done, until)
        cores = np.sort(order[:until])
        labels[level, cores] = np.unique(forest.find(cores), return_inverse=True)[1]
    _attach_borders(points, eps, counts, np.asarray(min_samples_values), labels)
    return labels


def _count(inside: npt.NDArray[np.bool_], others: Index, sample_weight: Float64 | None) -> Counts:
    if sample_weight is None:
        return np.asarray(np.count_nonzero(inside, axis=1))
    return np.asarray(inside @ sample_weight[others])


def _join(points: Points, eps: float, forest: Forest, rows: Index, earlier: Index) -> None:
    """Join core samples ``rows`` with each other and with the core samples before them."""
    for cols in [rows, *(earlier[b] for b in blocks(len(earlier), TILE))]:
        roots = forest.find(rows)
        if (roots == roots[0]).all():
            cols = cols[forest.find(cols) != roots[0]]  # the others are joined already
        if len(cols):
            forest.union_tile(points.within(rows, cols, eps), rows, cols)


def _attach_borders(
    points: Points, eps: float, counts: Counts, thresholds: npt.NDArray[Any], labels: Labels
) -> None:
    """Give each row that is not core the lowest cluster among its core neighbours, in place."""
    cores = np.flatnonzero(counts >= thresholds.min())
    rest = np.flatnonzero(counts < thresholds.max())
    for piece in blocks(len(rest), TILE):
        rows = rest[piece]
        lowest = np.full((len(thresholds), len(rows)), points.n, np.int32)
        for some in blocks(len(cores), TILE):
            cols = cores[some]
            i, j = np.nonzero(points.within(rows, cols, eps))
            for level, threshold in enumerate(thresholds):
                reach = (counts[rows[i]] < threshold) & (counts[cols[j]] >= threshold)
                np.minimum.at(lowest[level], i[reach], labels[level, cols[j[reach]]])
        reached, row = np.nonzero(lowest < points.n)
        labels[reached, rows[row]] = lowest[reached, row]
