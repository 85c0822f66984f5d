"""Groups of one class by density clustering of its gradients (GRASP, Algorithm 1).

Source: Zeng et al. 2022. The input is the gradient of each row's loss in the parameters of a trained
classifier (equation 1). Distances are Euclidean or those of section 3's centred cosine: gradients are
centred by the class mean, and d(x, y) = 1 - cos(x, y). DBSCAN clusters every cell of the grid; a rule of
:mod:`operators.grasp.selection` selects one. Used by the estimator and by the adaptor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from operators.arrays import Labels, Matrix
from operators.dbscan.estimator import Neighbours
from operators.dbscan.kernel import cluster
from operators.dbscan.points import Metric
from operators.dbscan.tiles import Device
from operators.factored import FactoredGradients
from operators.grasp.class_model import ClassRows, Model, class_rows, sample_cores
from operators.grasp.selection import (
    EPS_GRID,
    FAILED,
    MIN_SAMPLES_GRID,
    Rule,
    Selection,
    describe_pick,
    grid_facts,
    pick_by_facts,
)
from operators.metrics import Silhouettes, mean_silhouettes

Quality: TypeAlias = Callable[[int, int], Any]

MAX_CORES = 10_000


def infer_class(
    gradients: Matrix | FactoredGradients,
    *,
    metric: Metric = "centered_cosine",
    eps_grid: float | Sequence[float] = EPS_GRID,
    min_samples_grid: int | Sequence[int] = MIN_SAMPLES_GRID,
    select: Rule = "coverage",
    random_state: Any = None,
    max_cores: int = MAX_CORES,
    neighbours: Neighbours = "exact",
    nprobe: int = 16,
    ef_search: int = 128,
    device: Device = "cpu",
    keep: Callable[[Labels], None] | None = None,
) -> tuple[Labels, Selection, Model]:
    """Find the groups of one class.

    Every cell of the grid is clustered by DBSCAN, and has a mean Euclidean silhouette of the vectors
    compared (for the cosine metrics the centred unit rows), all noise being one more cluster; with fewer
    than two clusters it is -1. In a large class it is that of a sample, the same for every cell and call.
    :func:`~operators.grasp.selection.pick_cell` says which cell is taken.

    A class of fewer than two rows, or whose rows are all equal, has no structure to find: it is one
    group, without noise.

    Parameters
    ----------
    gradients : (n, p) float32 or float64, finite, n >= 1; or factored, with exact neighbours only.
    metric, eps_grid, min_samples_grid, select, random_state, max_cores, neighbours, nprobe, ef_search,
    device : see :class:`GroupInference`.
    keep : is given the (n_eps, n_min_samples, n) labels of all cells.

    Returns
    -------
    labels : (n,) int32 from 0 within the class; -1 is noise.
    selection : the pick and the scores of the grid.
    model : places new rows of the class.

    Raises
    ------
    ValueError : approximate neighbours of factored gradients; an unknown metric or rule.
    """
    eps_values = tuple(np.unique(np.atleast_1d(eps_grid)).tolist())
    min_samples_values = tuple(np.unique(np.atleast_1d(min_samples_grid)).tolist())
    rows = class_rows(gradients, metric)
    quality: Quality | None = None
    if rows.alike:
        cells = _one_group(rows.points.n, len(eps_values), len(min_samples_values))
    elif neighbours in ("ivf", "hnsw"):
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        search = partial(_approximate, gradients, neighbours, metric, nprobe, ef_search, seed)
        labels, cores, quality = search(eps_values, min_samples_values)
        cells = _scored(rows, labels, cores)
    else:
        cells = _scored(rows, *cluster(rows.points, eps_values, min_samples_values, device=device))
    if keep is not None:
        keep(cells.labels)
    facts = grid_facts(cells.labels, *cells.silhouettes)
    pick = pick_by_facts(facts, select)
    selection = describe_pick(facts, pick, select, eps_values, min_samples_values)
    if quality is not None:
        selection = replace(selection, approximation=quality(*pick.cell))
    labels, core = cells.labels[pick.cell], np.flatnonzero(cells.cores[pick.cell])
    kept = sample_cores(core, labels[core], max_cores, random_state)
    model = rows.model(np.inf if rows.alike else selection.eps, kept, labels[kept])
    return labels, selection, model


def _approximate(
    gradients: Matrix | FactoredGradients,
    kind: Any,
    metric: Metric,
    nprobe: int,
    ef_search: int,
    seed: int,
    eps_values: Sequence[float],
    min_samples_values: Sequence[int],
) -> tuple[Labels, npt.NDArray[np.bool_], Quality]:
    """Return labels and core flags of all cells by a FAISS index, and how far a cell is from exact DBSCAN."""
    if isinstance(gradients, FactoredGradients):
        raise ValueError(
            f"neighbours is {kind!r}, and the gradients are factored, which FAISS cannot index. "
            "Use neighbours='exact'."
        )
    from operators.neighbours.graph_dbscan import Settings, approximate_grid  # only these need FAISS

    settings = Settings(kind, metric, nprobe, ef_search, seed)
    found = approximate_grid(gradients, eps_values, min_samples_values, settings)
    return found.labels, found.cores, partial(found.quality, gradients)


@dataclass(frozen=True, eq=False)
class _Cells:
    """All cells of a grid: (n_eps, n_min_samples, n) labels and core flags, (n_eps, n_min_samples) scores."""

    labels: Labels
    cores: npt.NDArray[np.bool_]
    silhouettes: Silhouettes


def _one_group(n: int, n_eps: int, n_min_samples: int) -> _Cells:
    """Put rows that are all equal in one group; one of them as core sample suffices to place new rows."""
    shape = n_eps, n_min_samples
    cores = np.zeros((*shape, n), np.bool_)
    cores[..., 0] = True
    return _Cells(np.zeros_like(cores, np.int32), cores, Silhouettes(np.full(shape, FAILED), np.zeros(shape)))


def _scored(rows: ClassRows, labels: Labels, cores: npt.NDArray[np.bool_]) -> _Cells:
    scores = mean_silhouettes(rows.compared, labels.reshape(-1, rows.points.n))
    return _Cells(labels, cores, Silhouettes(*(part.reshape(labels.shape[:2]) for part in scores)))
