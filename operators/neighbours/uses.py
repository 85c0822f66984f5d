"""What a neighbour graph tells: clusters, density, near duplicates. Pure functions of a graph."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.dbscan.forest import Forest
from operators.neighbours.graph import Graph, Ids

Labels: TypeAlias = npt.NDArray[np.int32]

NOISE = -1


def approximate_dbscan(graph: Graph, min_samples: int) -> Labels:
    """DBSCAN at the radius of the graph, as good as the graph is.

    On a complete graph these are the labels of :class:`operators.dbscan.DBSCAN`. Where an approximate
    index missed edges, core samples turn into noise and clusters fall apart; small ones go first. An edge
    found from one side only counts for that side's density, and joins both.

    Source: Ester, Kriegel, Sander, Xu, KDD 1996.

    Parameters
    ----------
    graph : n rows against themselves, all pairs within ``graph.eps``.
    min_samples : neighbours (the row itself included) that make a core sample, >= 1.

    Returns
    -------
    (n,) int32: clusters numbered by their lowest core sample, -1 for noise. A border row joins the
    lowest-numbered cluster that reaches it. Memory: O(n) beside the graph.

    Raises
    ------
    ValueError
        The graph is not one of all pairs within a radius, or not of rows against themselves.
    """
    _check_square(graph, "approximate_dbscan")
    if graph.eps is None:
        raise ValueError(
            "approximate_dbscan: the graph holds the nearest neighbours of each row, so it does not show "
            "how many lie within a radius. Build it with eps instead of n_neighbors."
        )
    core = graph.degrees + 1 >= min_samples
    forest = Forest(graph.n_rows)
    for rows, cols in graph.edges():
        joins = core[rows] & core[cols]
        forest.union(rows[joins], cols[joins])
    labels = _numbered(forest, core)
    reached = labels.view(np.uint32)  # noise is above all clusters there
    lowest = reached.copy()
    for rows, cols in graph.edges():
        _lower(lowest, rows, reached[cols], core[cols] & ~core[rows])
        _lower(lowest, cols, reached[rows], core[rows] & ~core[cols])
    return lowest.view(np.int32)


def density(graph: Graph) -> npt.NDArray[np.float64]:
    """How crowded the surroundings of each row are, relative to the mean.

    For a graph of all pairs within eps: neighbours, the row itself included (Rosenblatt 1956). For a graph
    of the k nearest: one over the distance to the furthest of them (Loftsgaarden and Quesenberry 1965,
    without the exponent p, as data seldom fill their p dimensions); zero distances count as the
    smallest positive one.

    Parameters
    ----------
    graph : n rows.

    Returns
    -------
    (n,) float64, mean 1. Its inverse, normalised, draws rows evenly over the space, not over the data.
    """
    if graph.eps is not None:
        found = graph.degrees.astype(np.float64) + 1.0
    else:
        reach = np.full(graph.n_rows, np.inf)
        some = graph.degrees > 0
        if some.any():
            reach[some] = np.maximum.reduceat(graph.distances, graph.indptr[:-1][some])
        positive = reach[(reach > 0) & np.isfinite(reach)]
        found = 1.0 / np.maximum(reach, positive.min(initial=np.inf) if len(positive) else 1.0)
    total = float(found.sum())
    return found * (len(found) / total) if total > 0 else np.ones(len(found))


def near_duplicate_counts(graph: Graph, threshold: float) -> Ids:
    """How many other rows lie within ``threshold`` of each row.

    Parameters
    ----------
    graph : n rows.
    threshold : distance, in the unit of the graph's metric; at most the graph's eps.

    Returns
    -------
    (n,) int64. From a graph of the k nearest, k stands for "k or more".

    Raises
    ------
    ValueError
        The threshold is larger than the radius of the graph.
    """
    if graph.eps is not None and threshold > graph.eps:
        raise ValueError(
            f"near_duplicate_counts: the threshold {threshold:g} is beyond the radius {graph.eps:g} of the "
            "graph, which knows no pairs there. Lower the threshold or build the graph with a larger eps."
        )
    within = np.concatenate([[0], np.cumsum(graph.distances <= np.float32(threshold), dtype=np.int64)])
    return np.asarray(within[graph.indptr[1:]] - within[graph.indptr[:-1]])


def _numbered(forest: Forest, core: npt.NDArray[np.bool_]) -> Labels:
    """Labels of core samples: components by their lowest member, which is their root."""
    labels = np.full(len(core), NOISE, np.int32)
    members = np.flatnonzero(core)
    labels[members] = np.unique(forest.find(members), return_inverse=True)[1]
    return labels


def _lower(lowest: npt.NDArray[np.uint32], rows: Ids, reached: npt.NDArray[np.uint32], border: Any) -> None:
    """Lower the labels of border rows to those of the core samples they touch, in place."""
    np.minimum.at(lowest, rows[border], reached[border])


def _check_square(graph: Graph, who: str) -> None:
    if graph.n_rows != graph.n_columns:
        raise ValueError(
            f"{who}: the graph holds the neighbours of {graph.n_rows} rows among {graph.n_columns} others; "
            "it needs those of the fitted rows among themselves, the attribute `graph_`."
        )
