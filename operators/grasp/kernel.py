"""Groups of one class by density clustering of its gradients (GRASP, Algorithm 1).

Source: Zeng et al. 2022. The input is the gradient of each row's loss in the parameters of a trained
classifier (equation 1). Distances are Euclidean or those of section 3's centred cosine: gradients are
centred by the class mean, and d(x, y) = 1 - cos(x, y). DBSCAN clusters every cell of the grid; a rule of
:mod:`operators.grasp.selection` selects one. Used by the estimator and by the adaptor.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from operators.arrays import NOISE, Ids, Labels, Matrix
from operators.dbscan.estimator import Neighbours
from operators.dbscan.kernel import cluster
from operators.dbscan.tiles import Device
from operators.factored import FactoredGradients
from operators.grasp.class_model import (
    ClassRows,
    Model,
    assign,
    class_rows,
    cluster_distances,
    sample_cores,
)
from operators.grasp.rows_on_disk import drawn_rows
from operators.grasp.selection import (
    EPS_GRID,
    FAILED,
    MinSamplesGrid,
    Rule,
    Selection,
    describe_pick,
    grid_facts,
    pick_by_facts,
)
from operators.grasp.selection import (
    min_samples_values as min_samples_of,
)
from operators.grasp.stability import checked_rows
from operators.grasp.stability import stability as stability_figures
from operators.groups.small_groups import MIN_ROWS, MIN_SHARE, least_rows, merge_small, to_groups
from operators.metrics import Silhouettes, mean_silhouettes
from operators.points import Metric, Points, equal_rows

Quality: TypeAlias = Callable[[int, int], Any]
"""A function of a cell's place in the grid that measures its labels against those of exact DBSCAN."""
Clustering: TypeAlias = tuple[Labels, npt.NDArray[np.bool_], Quality | None]
"""Labels and core flags (n_eps, n_min_samples, n) of all cells of a grid; no quality where they are exact."""
Search: TypeAlias = Callable[[Sequence[float], Sequence[int]], Clustering]
"""Clusters the rows for all pairs of a radius and a ``min_samples``."""

MAX_CORES = 10_000
"""Core samples of a class that are kept to place new rows."""
PLACING_CORES = 4_096
"""Core samples of a class of which only drawn rows are clustered: they place all of its rows."""
MAX_DIFFERENT = 0.9
"""Equal rows are clustered as one weighted row if at most this share of the rows is different."""


def infer_class(
    gradients: Matrix | FactoredGradients,
    *,
    metric: Metric = "centered_cosine",
    eps_grid: float | Sequence[float] = EPS_GRID,
    min_samples_grid: MinSamplesGrid = "auto",
    select: Rule = "coverage",
    random_state: Any = None,
    max_cores: int = MAX_CORES,
    least_rows: float = 0.0,
    stability: int = 0,
    neighbours: Neighbours = "exact",
    nprobe: int = 16,
    ef_search: int = 128,
    device: Device = "cpu",
    keep: Callable[[Labels], None] | None = None,
) -> tuple[Labels, Selection, Model]:
    """Cluster one class, and merge its clusters into groups.

    Every cell of the grid is clustered by DBSCAN. Its score is the mean Euclidean silhouette of the compared
    vectors (for the cosine metrics the centred unit rows), where all noise is one more cluster; it is -1 with
    fewer than two clusters. In a large class it is computed from a sample, the same for every cell and call.
    :func:`~operators.grasp.selection.pick_by_facts` selects one cell.

    A class in which no cell has two clusters is one group, without noise: a class of few rows, of which all
    or none are noise in every cell, or of equal rows.

    Parameters
    ----------
    gradients : (n, p) float32 or float64, finite, n >= 1; or factored, with exact neighbours only.
    metric, eps_grid, min_samples_grid, select, random_state, max_cores, stability, neighbours, nprobe,
    ef_search, device : see :class:`GroupInference`.
    least_rows : rows that a group needs, see :mod:`operators.groups.small_groups`; 0 leaves clusters as
        they are.
    keep : function that is called with the labels (n_eps, n_min_samples, n) of all cells.

    Returns
    -------
    labels : (n,) int32: clusters from 0 within the class; -1 is noise. ``selection.group_of`` has the
        group of each cluster.
    selection : the pick and the scores of the grid.
    model : places new rows of the class in clusters.

    Raises
    ------
    ValueError : approximate neighbours of factored gradients; an unknown metric or rule.
    """
    eps_values = tuple(np.unique(np.atleast_1d(eps_grid)).tolist())
    min_samples_values = min_samples_of(min_samples_grid, len(gradients))
    rows = class_rows(gradients, metric)
    search: Search = partial(_clustered, rows, device)
    if neighbours in ("ivf", "hnsw"):
        search = partial(_approximate, gradients, neighbours, metric, nprobe, ef_search, random_state)
    cells = _grid_cells(rows, search, eps_values, min_samples_values)
    if keep is not None:
        keep(cells.labels)
    facts = grid_facts(cells.labels, *cells.silhouettes)
    pick = pick_by_facts(facts, select)
    selection = describe_pick(facts, pick, select, eps_values, min_samples_values)
    if pick.is_divided:
        labels, core = cells.labels[pick.cell], np.flatnonzero(cells.cores[pick.cell])
    else:
        labels, core = np.zeros(len(gradients), np.int32), np.zeros(1, np.intp)
    kept = sample_cores(core, labels[core], max_cores, random_state)
    model = rows.model(selection.eps if pick.is_divided else np.inf, kept, labels[kept])
    sizes = np.bincount(labels[labels != NOISE], minlength=selection.n_groups)
    found = group_fields(model, sizes, least_rows)
    if cells.quality is not None:
        found["approximation"] = cells.quality(*pick.cell)
    if stability:
        seed = seed_of(random_state)
        settings: dict[str, Any] = {
            "metric": metric,
            "eps_grid": eps_grid,
            "min_samples_grid": min_samples_grid,
            "select": select,
            "random_state": seed,
            "device": device,
        }
        some, share = checked_rows(len(labels), seed), least_rows / len(labels)
        groups = to_groups(labels[some], found["group_of"])
        found["stability"] = stability_of(gradients[some], groups, share, settings, stability, seed)
    return labels, replace(selection, **found), model


def group_fields(model: Model, sizes: npt.NDArray[np.integer], least: float) -> dict[str, Any]:
    """Merge clusters of ``sizes`` (n_clusters,) rows into groups; return what a Selection says of them."""
    group_of = np.arange(len(sizes), dtype=np.int32)
    if len(sizes) > 1 and sizes.min() < least:
        group_of = merge_small(sizes, cluster_distances(model, len(sizes)), least)
    rows = np.bincount(group_of, sizes).astype(np.intp)
    return {
        "group_of": tuple(group_of.tolist()),
        "n_groups": len(rows),
        "sizes": tuple(rows.tolist()),
        "least_rows": least,
    }


def stability_of(
    gradients: Matrix | FactoredGradients,
    groups: Labels,
    share: float,
    settings: Mapping[str, Any],
    repeats: int,
    seed: int,
) -> tuple[float, ...]:
    """Measure the stability of the ``groups`` (n,) of the rows of ``checked_rows``.

    Parts are clustered exactly, whatever found the neighbours.

    Parameters
    ----------
    gradients, groups, repeats, seed : see :func:`operators.grasp.stability.stability`.
    share : of its rows, that a group of a part needs.
    settings : of :func:`infer_class`.
    """

    def infer(part: Matrix | FactoredGradients) -> tuple[Model, Labels]:
        _, found, model = infer_class(part, **settings, least_rows=share * len(part))
        return model, np.array(found.group_of, np.int32)

    return stability_figures(gradients, groups, infer, repeats, seed)


def infer_whole_class(
    gradients: Matrix | FactoredGradients,
    row_ids: Ids,
    *,
    min_rows: int = MIN_ROWS,
    min_share: float = MIN_SHARE,
    fit_rows: int | None = None,
    **settings: Any,
) -> tuple[Labels, Selection, Model]:
    """Cluster a class, or drawn rows of it, and place the others.

    Parameters
    ----------
    gradients : as in :func:`infer_class`.
    row_ids : (n,) by whose hashes rows are drawn.
    min_rows, min_share, fit_rows : see :class:`GroupInference`.
    settings : of :func:`infer_class`.

    Returns
    -------
    As :func:`infer_class`; all rows of a class of which some were drawn are placed by the model.
    """
    n = len(gradients)
    least = least_rows(n, min_rows, min_share)
    if fit_rows is None or n <= fit_rows:
        return infer_class(gradients, **settings, least_rows=least)
    drawn = drawn_rows(row_ids, fit_rows, seed_of(settings.get("random_state")))
    settings["max_cores"] = min(settings.get("max_cores", MAX_CORES), PLACING_CORES)
    _, selection, model = infer_class(gradients[drawn], **settings, least_rows=least * len(drawn) / n)
    labels = assign(model, gradients)
    counts = np.bincount(labels + 1, minlength=len(selection.group_of) + 1)
    found = {"drawn_from": n, "n_noise": int(counts[0])} | group_fields(model, counts[1:], least)
    return labels, replace(selection, **found), model


def seed_of(random_state: Any) -> int:
    """Return an integer seed: the one given, or one that the generator draws."""
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


@dataclass(frozen=True, eq=False)
class _Cells:
    """All cells of a grid: (n_eps, n_min_samples, n) labels and core flags, (n_eps, n_min_samples) scores."""

    labels: Labels
    cores: npt.NDArray[np.bool_]
    silhouettes: Silhouettes
    quality: Quality | None = None


def _grid_cells(
    rows: ClassRows, search: Search, eps_values: Sequence[float], min_samples_values: Sequence[int]
) -> _Cells:
    """Cluster the rows in all cells of the grid and score them. Equal rows are one group in every cell."""
    shape = len(eps_values), len(min_samples_values)
    if rows.alike:
        cores = np.zeros((*shape, rows.points.n), np.bool_)
        cores[..., 0] = True
        scores = Silhouettes(np.full(shape, FAILED), np.zeros(shape))
        return _Cells(np.zeros_like(cores, np.int32), cores, scores)
    labels, cores, quality = search(eps_values, min_samples_values)
    found = mean_silhouettes(rows.compared, labels.reshape(-1, rows.points.n))
    return _Cells(labels, cores, Silhouettes(*(part.reshape(shape) for part in found)), quality)


def _clustered(
    rows: ClassRows, device: Device, eps_values: Sequence[float], min_samples_values: Sequence[int]
) -> Clustering:
    """Cluster exactly, the different rows alone if many rows are equal."""
    points = rows.points
    if isinstance(points, Points):
        kinds = equal_rows(points)
        if len(kinds.first) <= MAX_DIFFERENT * points.n:
            one = points.take(kinds.first)
            labels, cores = cluster(one, eps_values, min_samples_values, kinds.counts, device)
            return labels[..., kinds.kind], cores[..., kinds.kind], None
    return *cluster(points, eps_values, min_samples_values, device=device), None


def _approximate(
    gradients: Matrix | FactoredGradients,
    kind: Any,
    metric: Metric,
    nprobe: int,
    ef_search: int,
    random_state: Any,
    eps_values: Sequence[float],
    min_samples_values: Sequence[int],
) -> Clustering:
    """Cluster by a FAISS index. Raises ValueError for factored gradients."""
    if isinstance(gradients, FactoredGradients):
        raise ValueError(
            f"neighbours is {kind!r}, and the gradients are factored, which FAISS cannot index. "
            "Use neighbours='exact'."
        )
    from operators.dbscan.graph_dbscan import SearchSettings, approximate_grid  # only these need FAISS

    seed = int(check_random_state(random_state).randint(2**31 - 1))
    settings = SearchSettings(kind, metric, nprobe, ef_search, seed)
    found = approximate_grid(gradients, eps_values, min_samples_values, settings)
    return found.labels, found.cores, partial(found.quality, gradients)
