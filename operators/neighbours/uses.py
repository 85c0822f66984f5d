"""What a neighbour graph tells of its rows: density, near duplicates. Pure functions of a graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.neighbours.graph import Graph, Ids


def density(graph: Graph) -> npt.NDArray[np.float64]:
    """How crowded the surroundings of each row are, relative to the mean.

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
