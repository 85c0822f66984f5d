"""The gradients of one class for GRASP, flat or factored, and the model that assigns new rows to its groups.

:func:`class_rows` prepares the gradients of a class for DBSCAN and for the silhouette. :class:`ClassModel`
(flat gradients) and :class:`FactoredModel` (factored gradients) keep core samples with their groups: a new
row belongs to the group of its nearest core sample if that lies within eps, else to no group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import NOISE, Float64, Index, Labels, Mask, Matrix
from operators.factored import FactoredGradients, Layer, MeanGradient
from operators.factored.points import FactoredPoints
from operators.points import Metric, Points, blocks, rounding_error, unit_rows

BLOCK = 1024
"""Rows of factored gradients that are compared at once."""
PAIRS = 1 << 20
"""Products that are computed at once, so that they stay in cache."""
DOUBTFUL = 256
"""Rows with several core samples that may be the nearest, which are compared again at once."""
PAIRS_EXACTLY = 1 << 14
"""Pairs that are compared exactly at once."""
LINKED_CORES = 2000
"""Core samples, over all clusters, from which distances between clusters are computed."""


@dataclass(frozen=True, eq=False)
class ClassModel:
    """Core samples of one class, with their groups.

    Attributes
    ----------
    metric : as given to DBSCAN.
    eps : radius in which a core sample claims a row; infinite where the whole class is one group.
    centre : (p,) float64 subtracted before rows are compared by direction.
    cores : (m, p) gradients of core samples, as given to fit.
    labels : (m,) int32 group of each, numbered from 0 within the class.
    """

    metric: Metric
    eps: float
    centre: Float64
    cores: Matrix
    labels: npt.NDArray[np.int32]

    def assign(self, gradients: Matrix) -> npt.NDArray[np.int32]:
        """Return the group of the nearest core sample of each row if it lies within eps, else -1.

        Parameters
        ----------
        gradients : (n, p), from the same model and parameters as in fit.

        Returns
        -------
        (n,) int32, numbered from 0 within the class.
        """
        if len(self.cores) == 0:
            return np.full(len(gradients), NOISE, np.int32)
        cores = self._prepared(self.cores)
        nearest_of = _Nearest(cores, self.metric)
        labels = np.empty(len(gradients), np.int32)
        for rows in blocks(len(gradients), nearest_of.rows_at_once):
            X = self._prepared(gradients[rows])
            nearest = nearest_of(X)
            near = self._distance(X, cores[nearest]) <= self.eps
            labels[rows] = np.where(near, self.labels[nearest], NOISE)
        return labels

    def save(self, file: Path | BinaryIO) -> None:
        """Write the model as an .npz archive."""
        fields: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
        np.savez(file, **fields)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> ClassModel:
        """Read a model that :meth:`save` wrote."""
        with np.load(file, allow_pickle=False) as stored:
            metric: Any = str(stored["metric"])
            return cls(metric, float(stored["eps"]), stored["centre"], stored["cores"], stored["labels"])

    def distances(self, some: Index) -> Float64:
        """Return the distances (s, s) of some of the core samples; squares of them for "euclidean"."""
        cores = self._prepared(self.cores[some])
        products = cores @ cores.T
        if self.metric != "euclidean":
            return np.asarray(1.0 - products)
        squares = np.diag(products)
        return np.asarray(squares[:, None] + squares - 2 * products)

    def _prepared(self, X: Matrix) -> Float64:
        if self.metric == "euclidean":
            return X - self.centre
        return unit_rows(X, self.centre)

    def _distance(self, A: Float64, B: Float64) -> Float64:
        if self.metric == "euclidean":
            return np.asarray(np.linalg.norm(A - B, axis=1))
        return np.asarray(np.minimum(1.0 - np.einsum("ij,ij->i", A, B), 2.0))


class _Nearest:
    """Finds the nearest of the core samples, the first of equally near ones.

    Products run in float32 where rows have unit length. Core samples that may be the nearest within rounding
    are compared again in float64, pair by pair, so that no result depends on the other rows of a block.
    """

    def __init__(self, cores: Float64, metric: Metric) -> None:
        self._cores = cores
        self._euclidean = metric == "euclidean"
        dtype: Any = np.float64 if self._euclidean else np.float32
        self._half = np.einsum("ij,ij->i", cores, cores) / 2 if self._euclidean else np.zeros(len(cores))
        self._columns = np.ascontiguousarray(cores.T, dtype)
        # Twice the error bound of a product, which is proportional to the sum of half the squared norms.
        self._error = rounding_error(cores.shape[1], dtype)
        self._largest = 1.0 if not self._euclidean else float(np.max(2 * self._half, initial=0.0))
        self.rows_at_once = max(1, PAIRS // max(len(cores), 1))

    def __call__(self, X: Float64) -> Index:
        products = X.astype(self._columns.dtype, copy=False) @ self._columns
        if self._euclidean:
            products -= self._half
        nearest = np.argmax(products, axis=1)
        best = products[np.arange(len(X)), nearest]
        squares = np.einsum("ij,ij->i", X, X) if self._euclidean else 1.0
        least = (best - self._error * (squares + self._largest)).astype(products.dtype)
        near = products >= least[:, None]
        doubtful = np.flatnonzero(np.count_nonzero(near, axis=1) > 1)
        for start in range(0, len(doubtful), DOUBTFUL):
            some = doubtful[start : start + DOUBTFUL]
            nearest[some] = self._exactly(X[some], near[some])
        return np.asarray(nearest)

    def _exactly(self, X: Float64, near: Mask) -> Index:
        rows, cols = np.nonzero(near)
        products = np.empty(len(rows))
        for start in range(0, len(rows), PAIRS_EXACTLY):
            some = slice(start, start + PAIRS_EXACTLY)
            products[some] = np.einsum("ij,ij->i", X[rows[some]], self._cores[cols[some]])
        products -= self._half[cols]
        order = np.lexsort((cols, -products, rows))
        first = np.searchsorted(rows, np.arange(len(X)))
        return np.asarray(cols[order][first])


def sample_cores(cores: Index, labels: npt.NDArray[np.int32], limit: int, random_state: Any) -> Index:
    """Draw at most ``limit`` core samples, in ascending order; small groups keep all of theirs first.

    Parameters
    ----------
    cores : (m,) row numbers of core samples.
    labels : (m,) their groups.
    limit : largest number to keep, > 0.
    random_state : int, RandomState or None; seed of the draws within groups that are too large.
    """
    groups, sizes = np.unique(labels, return_counts=True)
    drawn = draw_cores(sizes, limit, random_state)
    kept = [cores[labels == group][some] for group, some in zip(groups, drawn, strict=True)]
    return np.sort(np.concatenate([*kept, cores[:0]]))


def draw_cores(sizes: npt.NDArray[np.intp], limit: int, random_state: Any) -> list[Index]:
    """Draw the core samples of each group that are kept, as positions among the group's core samples.

    Parameters
    ----------
    sizes : number of core samples of each group.
    limit, random_state : see :func:`sample_cores`.
    """
    if sizes.sum() <= limit:
        return [np.arange(size) for size in sizes]
    from sklearn.utils import check_random_state

    random = check_random_state(random_state)
    drawn: list[Index] = [np.empty(0, np.intp)] * len(sizes)
    left = limit
    for position, group in enumerate(np.argsort(sizes, kind="stable").tolist()):
        share = min(int(sizes[group]), left // (len(sizes) - position))
        drawn[group] = random.choice(int(sizes[group]), share, replace=False)
        left -= share
    return drawn


@dataclass(frozen=True, eq=False)
class FactoredModel:
    """Core samples of one class, with their groups, as factored gradients.

    Attributes
    ----------
    metric, eps, labels : see :class:`ClassModel`.
    mean : mean gradient that "centered_cosine" subtracts; None for the other metrics.
    cores : m core samples.
    """

    metric: Metric
    eps: float
    mean: MeanGradient | None
    cores: FactoredGradients
    labels: npt.NDArray[np.int32]

    def assign(self, gradients: FactoredGradients) -> npt.NDArray[np.int32]:
        """Return the group of the nearest core sample of each row if it lies within eps, else -1.

        Parameters
        ----------
        gradients : n rows, from the same model and parameters as in fit.

        Returns
        -------
        (n,) int32, numbered from 0 within the class.
        """
        if not len(self.cores):
            return np.full(len(gradients), NOISE, np.int32)
        cores = FactoredPoints(self.cores, self.metric, self.mean)
        labels = np.empty(len(gradients), np.int32)
        for rows in blocks(len(gradients), BLOCK):
            measures = FactoredPoints(gradients[rows], self.metric, self.mean).measures(cores)
            nearest = np.argmin(measures, axis=1)
            apart = measures[np.arange(len(rows)), nearest]
            near = (np.sqrt(apart) if self.metric == "euclidean" else apart) <= self.eps
            labels[rows] = np.where(near, self.labels[nearest], NOISE)
        return labels

    def distances(self, some: Index) -> Float64:
        """Return the distances (s, s) of some of the core samples; squares of them for "euclidean"."""
        points = FactoredPoints(self.cores[some], self.metric, self.mean)
        return np.asarray(points.measures(points), np.float64)

    def save(self, file: Path | BinaryIO) -> None:
        """Write the model as an .npz archive."""
        layers = self.cores.layers
        chosen = np.array([(layer.weight, layer.bias) for layer in layers])
        fields: dict[str, Any] = {
            "metric": self.metric,
            "eps": self.eps,
            "labels": self.labels,
            "chosen": chosen,
        }
        for number, layer in enumerate(layers):
            fields |= {f"activations-{number}": layer.activations, f"errors-{number}": layer.errors}
        if self.mean is not None:
            fields |= {f"mean-{number}": part for number, part in enumerate(self.mean.parts)}
        np.savez(file, **fields)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> FactoredModel:
        """Read a model that :meth:`save` wrote."""
        with np.load(file, allow_pickle=False) as stored:
            layers = [
                Layer(stored[f"activations-{number}"], stored[f"errors-{number}"], bool(weight), bool(bias))
                for number, (weight, bias) in enumerate(stored["chosen"])
            ]
            mean = None
            if "mean-0" in stored.files:
                mean = MeanGradient([stored[f"mean-{number}"] for number in range(len(layers))])
            metric: Any = str(stored["metric"])
            return cls(metric, float(stored["eps"]), mean, FactoredGradients(layers), stored["labels"])


def load_model(file: Path) -> ClassModel | FactoredModel:
    """Load the model of a class, in the form that its gradients had."""
    with np.load(file, allow_pickle=False) as stored:
        factored = "chosen" in stored.files
    return FactoredModel.load(file) if factored else ClassModel.load(file)


Model: TypeAlias = ClassModel | FactoredModel


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Rows of a class, prepared for a metric.

    Attributes
    ----------
    points : the rows in the form that DBSCAN takes.
    compared : the rows in the form that the silhouette takes: a matrix, or an object with their distances.
    alike : whether all gradients are equal.
    model : function of eps, kept rows and their labels that returns the model which places new rows.
    """

    points: Points | FactoredPoints
    compared: Any
    alike: bool
    model: Callable[[float, Index, Labels], Model]


def class_rows(gradients: Matrix | FactoredGradients, metric: Metric) -> ClassRows:
    """Prepare the rows of a class. Raises ValueError for an unknown metric, or no rows."""
    if isinstance(gradients, FactoredGradients):
        return _factored_rows(gradients, metric)
    points = Points(gradients, metric)

    def model(eps: float, kept: Index, labels: Labels) -> ClassModel:
        return ClassModel(metric, eps, points.centre, gradients[kept], labels)

    return ClassRows(points, points.vectors, bool((gradients == gradients[0]).all()), model)


def _factored_rows(gradients: FactoredGradients, metric: Metric) -> ClassRows:
    points = FactoredPoints(gradients, metric)

    def model(eps: float, kept: Index, labels: Labels) -> FactoredModel:
        return FactoredModel(metric, eps, points.mean, gradients[kept], labels)

    return ClassRows(points, points, gradients.all_equal(), model)


def assign(model: Model, gradients: Matrix | FactoredGradients) -> Labels:
    """Return the groups of new rows of a class. Raises ValueError if their form is not that of the model."""
    if isinstance(model, FactoredModel) and isinstance(gradients, FactoredGradients):
        return model.assign(gradients)
    if isinstance(model, ClassModel) and not isinstance(gradients, FactoredGradients):
        return model.assign(gradients)
    fitted, given = ("flat", "factored") if isinstance(model, ClassModel) else ("factored", "flat")
    raise ValueError(f"predict: fit was given {fitted} gradients, these are {given}; give {fitted} ones")


def cluster_distances(model: Model, n_clusters: int) -> Float64:
    """Return the distances (n_clusters, n_clusters) of clusters: the smallest between their core samples.

    At most 2,000 core samples are compared, the same number of every cluster, evenly spaced among those kept.
    A cluster without kept core samples is infinitely far from all others.
    """
    order = np.argsort(model.labels, kind="stable")
    present, starts, counts = np.unique(model.labels[order], return_index=True, return_counts=True)
    share = max(1, LINKED_CORES // max(n_clusters, 1))
    chosen = [
        order[start + np.unique(np.linspace(0, count - 1, min(count, share)).astype(np.intp))]
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    apart = np.full((n_clusters, n_clusters), np.inf)
    if not chosen:
        return apart
    found = model.distances(np.concatenate(chosen))
    edges = np.cumsum([0, *(len(part) for part in chosen[:-1])])
    found = np.minimum.reduceat(np.minimum.reduceat(found, edges, axis=0), edges, axis=1)
    apart[np.ix_(present, present)] = np.minimum(found, found.T)  # rounding may make them asymmetric
    return apart
