"""DBSCAN's labels from a neighbour graph, for one setting or several that share a radius."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.dbscan.disjoint_sets import DisjointSets
from operators.neighbours.graph import Graph

Labels: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]

NOISE = -1


def approximate_dbscan(graph: Graph, min_samples: int) -> Labels:
    """DBSCAN at the radius of the graph, as good as the graph is.

    On a complete graph these are the labels of :class:`operators.dbscan.DBSCAN`. Where an approximate
    index missed edges, core samples turn into noise and clusters fall apart; small ones go first. Where the
    graph holds only the nearest rows within its radius, core samples are still told rightly, but
    clusters that touch by longer edges stay apart. An edge found from one side only counts for that side's
    density, and joins both.

    Source: Ester, Kriegel, Sander, Xu, KDD 1996.

    Parameters
    ----------
    graph : n rows against themselves, within ``graph.eps``.
    min_samples : neighbours (the row itself included) that make a core sample, >= 1.

    Returns
    -------
    (n,) int32: clusters numbered by their lowest core sample, -1 for noise. A border row joins the
    lowest-numbered cluster that reaches it.

    Raises
    ------
    ValueError
        The graph has no radius, is not of rows against themselves, or holds too few neighbours per row to
        tell core samples.
    """
    if graph.eps is None:
        raise ValueError(
            "approximate_dbscan: the graph holds the nearest neighbours of each row, so it does not show "
            "how many lie within a radius. Build it with eps, or with eps and n_neighbors."
        )
    labels, _ = clusters_within(graph, graph.eps, [min_samples])
    first: Labels = labels[0]
    return first


def clusters_within(
    graph: Graph, eps: float, min_samples_values: Sequence[int], extra: Graph | None = None
) -> tuple[Labels, Mask]:
    """Labels and core samples for several ``min_samples`` at one radius.

    Parameters
    ----------
    graph : n rows against themselves, within at least ``eps``.
    eps : radius; distances are compared as float32, as the graph stores them.
    min_samples_values : M thresholds, ascending.
    extra : more true edges of the same rows, to join clusters by; they do not count for density.

    Returns
    -------
    labels : (M, n) int32, as :func:`approximate_dbscan` describes them.
    cores : (M, n) bool. Memory: 18 bytes per edge within eps, beside the graph.

    Raises
    ------
    ValueError
        As :func:`approximate_dbscan`.
    """
    _check(graph, max(min_samples_values))
    within = graph.within(eps)
    counts = within.degrees + 1
    # A row is a core sample for the first `depth` thresholds.
    depth = np.searchsorted(np.asarray(min_samples_values), counts, side="right").astype(np.int16)
    cores = depth > np.arange(len(min_samples_values))[:, None]
    labels = np.full(cores.shape, NOISE, np.int32)
    parts = [within] if extra is None else [within, extra.within(eps)]
    rows = np.concatenate([part.sources() for part in parts])
    cols = np.concatenate([part.indices for part in parts])
    both = np.minimum(depth[rows], depth[cols])  # thresholds at which an edge joins clusters
    either = np.maximum(depth[rows], depth[cols])
    forest = DisjointSets(graph.n_rows)
    for m in reversed(range(len(labels))):
        new = both == m + 1
        forest.union(rows[new], cols[new])
        labels[m] = _numbered(forest, cores[m])
        border = np.flatnonzero((both <= m) & (either > m))
        _attach(labels[m], cores[m], rows[border], cols[border])
    return labels, cores


def _numbered(forest: DisjointSets, core: Mask) -> Labels:
    """Labels of core samples: components by their lowest member, which is their root."""
    labels = np.full(len(core), NOISE, np.int32)
    members = np.flatnonzero(core)
    labels[members] = np.unique(forest.find(members), return_inverse=True)[1]
    return labels


def _attach(labels: Labels, core: Mask, rows: Any, cols: Any) -> None:
    """Give border rows the lowest label of the core samples that they touch, in place.

    Of each pair one is a core sample.
    """
    border, touched = np.where(core[rows], cols, rows), np.where(core[rows], rows, cols)
    lowest = labels.view(np.uint32)  # noise is above all clusters there
    np.minimum.at(lowest, border, lowest[touched])


def _check(graph: Graph, min_samples: int) -> None:
    if graph.n_rows != graph.n_columns:
        raise ValueError(
            f"approximate_dbscan: the graph holds the neighbours of {graph.n_rows} rows among "
            f"{graph.n_columns} others; it needs those of the fitted rows among themselves, the attribute "
            "`graph_`."
        )
    if graph.n_neighbors is not None and min_samples > graph.n_neighbors + 1:
        raise ValueError(
            f"approximate_dbscan: the graph holds at most {graph.n_neighbors} neighbours of a row, too few "
            f"to tell whether there are min_samples = {min_samples} with the row itself. Build it with "
            f"n_neighbors = {min_samples - 1} or more."
        )
