"""DBSCAN through a neighbour graph, and how far its labels are from those of exact DBSCAN.

:func:`approximate_dbscan` reads labels from a given graph. :func:`approximate_grid` builds one approximate
graph for a whole grid. A radius that holds a whole cluster holds about half of all pairs, so that graph
does not hold all pairs within the largest radius but the nearest of them, enough to recognise every core
sample of the grid; all smaller radii are contained in it. Clusters that touch only by longer edges are
connected through a random sample of rows, all pairs of which are compared. The quality of the result is
always measured; see :class:`Quality`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from operators.arrays import NOISE, Ids, Labels, Mask, Matrix
from operators.dbscan.kernel import cluster
from operators.disjoint_sets import DisjointSets
from operators.neighbours.faiss_index import RECALL_PARAMETERS, Kind, load_faiss, threads
from operators.neighbours.geometry import Geometry
from operators.neighbours.graph import Graph
from operators.neighbours.kernel import Reach, RowIndex
from operators.neighbours.recall import LOW, Truth, draw, nearest_distances
from operators.points import Metric, Points

FEWEST_NEIGHBOURS = 64
"""Least number of neighbours of a row in a grid's graph. An index finds so many as fast as fewer."""
JOINING_ROWS = 2048
"""Sampled rows of which all pairs are compared, to connect clusters."""
CHECKED_ROWS = 1024
"""Sampled rows whose core flags are compared with the true ones."""
EXACT_ROWS = 50_000
"""Largest number of rows for which labels are compared with those of exact DBSCAN on all rows."""
LOW_ARI = 0.98
MAX_WRONG_CORES = 0.01
"""Limits of ``Quality.ari`` and ``Quality.wrong_cores`` beyond which a user is advised."""


def approximate_dbscan(graph: Graph, min_samples: int) -> Labels:
    """Run DBSCAN at the radius of the graph; it is as exact as the graph is.

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
    """Return labels and core samples for several ``min_samples`` at one radius.

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
    """Number the core samples' components by their lowest member, which is their root."""
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


@dataclass(frozen=True)
class Quality:
    """Agreement of approximate labels with those of exact DBSCAN.

    Three figures, as each is blind to something. Recall says nothing of what the lost edges did. The
    adjusted Rand index weighs clusters by the square of their size: a minority of 5 % that turns into
    noise costs it .01. Wrong core flags see that, but not a cluster that fell apart.

    Attributes
    ----------
    index : "ivf" or "hnsw".
    recall : share of the true edges, those the graph was asked for, that it holds; over sampled rows.
    wrong_cores : share of sampled rows (at most 1,024, each compared with all rows) that are core samples
        in only one of the two; the largest over the grid.
    ari : adjusted Rand index between approximate and exact labels, noise as one cluster.
    low : advice on the figures that are low and the parameter to raise; empty if none is low.
    ari_rows : rows clustered for ``ari``: all of them up to 50,000. Beyond that it is an estimate, from
        a seeded sample of 50,000 rows that is clustered in both ways as a problem of its own, with
        ``min_samples`` and the square of ``nprobe`` scaled by the share of rows sampled, so that the same
        density counts as dense and the same share of lists is looked at. Somewhat optimistic: thinned to
        a quarter, an IVF graph that has .85 showed .90.
    """

    index: str
    recall: float
    wrong_cores: float
    ari: float
    ari_rows: int

    low: str = ""


@dataclass(frozen=True, eq=False)
class ApproximateGrid:
    """Labels of every cell of a grid, and what is needed to judge them.

    Attributes
    ----------
    labels, cores : (n_eps, n_min_samples, n) int32 and bool, in the order of the axes.
    recall, wrong_cores : see :class:`Quality`.
    """

    labels: Labels
    cores: Mask
    recall: float
    wrong_cores: float
    _settings: SearchSettings
    _eps: tuple[float, ...]
    _min_samples: tuple[int, ...]

    def quality(self, X: Matrix, e: int, m: int) -> Quality:
        """Compare one cell with exact DBSCAN on the rows X that were clustered."""
        settings = self._settings
        ari, rows = _ari(X, self.labels[e, m], self._eps[e], self._min_samples[m], settings)
        found = Quality(settings.index, self.recall, self.wrong_cores, ari, rows)
        return replace(found, low=_advice(found))


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the neighbour search. ``nprobe`` and ``ef_search`` are those of ``NeighbourGraph``."""

    index: Kind
    metric: Metric
    nprobe: int = 16
    ef_search: int = 128
    seed: int = 0


def approximate_grid(
    X: Matrix, eps_values: Sequence[float], min_samples_values: Sequence[int], settings: SearchSettings
) -> ApproximateGrid:
    """Return DBSCAN's labels of every cell of the grid, as exact as the index is.

    Parameters
    ----------
    X : (n, p) float32 or float64, finite, n >= 1.
    eps_values, min_samples_values : the grid's axes, ascending.
    settings : index and metric. Runs on one thread: the same labels on any machine.

    Raises
    ------
    ImportError
        FAISS is not installed.
    """
    load_faiss()
    geometry, eps = Geometry.of(X, settings.metric), float(max(eps_values))
    reach = Reach(eps, max(FEWEST_NEIGHBOURS, max(min_samples_values) - 1))
    with threads(1):
        rows = RowIndex.build(
            X,
            settings.index,
            geometry,
            nprobe=settings.nprobe,
            ef_search=settings.ef_search,
            seed=settings.seed,
        )
        graph = rows.search(X, reach, np.arange(len(X)))
        joining = _among(X, geometry, draw(len(X), JOINING_ROWS, settings.seed), eps)
        sample = draw(len(X), CHECKED_ROWS, settings.seed)
        nearest = nearest_distances(X, geometry, sample, int(reach.n_neighbors or 1))
    truth = Truth.of_nearest(sample, nearest, eps, len(X))
    found = [clusters_within(graph, radius, min_samples_values, joining) for radius in eps_values]
    labels, cores = (np.stack(part) for part in zip(*found, strict=True))
    wrong = [
        np.mean(cores[e, m, sample] != (least == 1) | (nearest[:, max(least, 2) - 2] <= np.float32(radius)))
        for e, radius in enumerate(eps_values)
        for m, least in enumerate(min_samples_values)
    ]
    return ApproximateGrid(
        labels=labels,
        cores=cores,
        recall=truth.share_found(graph.take(sample)),
        wrong_cores=float(max(wrong)),
        _settings=settings,
        _eps=tuple(eps_values),
        _min_samples=tuple(min_samples_values),
    )


def _advice(found: Quality) -> str:
    if found.recall >= LOW and found.ari >= LOW_ARI and found.wrong_cores <= MAX_WRONG_CORES:
        return ""
    return (
        f"clusters found through the {found.index} graph differ from DBSCAN's: recall of edges "
        f"{found.recall:.3f}, core samples wrong for {found.wrong_cores:.1%} of a sample of rows, ARI "
        f"against exact DBSCAN {found.ari:.3f} (on {found.ari_rows:,} rows). Small clusters may be lost. "
        f"Raise {RECALL_PARAMETERS[found.index]}, or set neighbours to 'exact', which is faster on most data."
    )


def _among(X: Matrix, geometry: Geometry, sample: Ids, eps: float) -> Graph:
    """Return all pairs of sampled rows within eps, as a graph of all rows."""
    rows = RowIndex.build(X[sample], "flat", geometry)
    graph = rows.search(X[sample], Reach(eps), np.arange(len(sample)))
    degrees = np.zeros(len(X), np.int64)
    degrees[sample] = graph.degrees
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(degrees)])
    return replace(graph, indptr=indptr, indices=sample[graph.indices], n_columns=len(X))


def _ari(X: Matrix, labels: Any, eps: float, min_samples: int, settings: SearchSettings) -> tuple[float, int]:
    """Return the adjusted Rand index against exact DBSCAN, and the rows that it was computed from."""
    n = len(X)
    if n > EXACT_ROWS:
        share = EXACT_ROWS / n
        X = X[draw(n, EXACT_ROWS, settings.seed)]
        min_samples = max(2, round(share * min_samples))
        settings = replace(settings, nprobe=max(1, round(share**0.5 * settings.nprobe)))
        labels = approximate_grid(X, [eps], [min_samples], settings).labels[0, 0]
    exact, _ = cluster(Points(X, settings.metric), [eps], [min_samples])
    return float(adjusted_rand_score(exact[0, 0], labels)), len(X)
