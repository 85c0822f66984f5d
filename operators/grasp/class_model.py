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

from operators.arrays import NOISE, Float64, Index, Labels, Matrix
from operators.dbscan.points import Metric, Points, blocks, unit_rows
from operators.factored import FactoredGradients, Layer, MeanGradient
from operators.factored.points import FactoredPoints

BLOCK = 1024


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
        """Group of the nearest core sample of each row if within eps, else -1.

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
        labels = np.empty(len(gradients), np.int32)
        for rows in blocks(len(gradients), BLOCK):
            X = self._prepared(gradients[rows])
            nearest = self._nearest(X, cores)
            near = self._distance(X, cores[nearest]) <= self.eps
            labels[rows] = np.where(near, self.labels[nearest], NOISE)
        return labels

    def save(self, file: Path | BinaryIO) -> None:
        """Write the model as an .npz archive."""
        fields: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
        np.savez(file, **fields)

    @classmethod
    def load(cls, file: Path | BinaryIO) -> ClassModel:
        """Read what :meth:`save` wrote."""
        with np.load(file, allow_pickle=False) as stored:
            metric: Any = str(stored["metric"])
            return cls(metric, float(stored["eps"]), stored["centre"], stored["cores"], stored["labels"])

    def _prepared(self, X: Matrix) -> Float64:
        if self.metric == "euclidean":
            return X - self.centre
        return unit_rows(X, self.centre)

    def _nearest(self, X: Float64, cores: Float64) -> Index:
        lengths = np.einsum("ij,ij->i", cores, cores) if self.metric == "euclidean" else 0.0
        return np.asarray(np.argmin(lengths - 2 * (X @ cores.T), axis=1))

    def _distance(self, A: Float64, B: Float64) -> Float64:
        if self.metric == "euclidean":
            return np.asarray(np.linalg.norm(A - B, axis=1))
        return np.asarray(np.minimum(1.0 - np.einsum("ij,ij->i", A, B), 2.0))


def sample_cores(cores: Index, labels: npt.NDArray[np.int32], limit: int, random_state: Any) -> Index:
    """Draw at most ``limit`` of the core samples, in ascending order; rare groups keep all of theirs first.

    Parameters
    ----------
    cores : (m,) row numbers of core samples.
    labels : (m,) their groups.
    limit : most to keep, > 0.
    random_state : int, RandomState or None: draws within groups that are too large.
    """
    groups, sizes = np.unique(labels, return_counts=True)
    drawn = draw_cores(sizes, limit, random_state)
    kept = [cores[labels == group][some] for group, some in zip(groups, drawn, strict=True)]
    return np.sort(np.concatenate([*kept, cores[:0]]))


def draw_cores(sizes: npt.NDArray[np.intp], limit: int, random_state: Any) -> list[Index]:
    """Draw the core samples of each group that are kept, as positions among the group's core samples.

    Parameters
    ----------
    sizes : core samples of each group.
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
    """:class:`~operators.grasp.class_model.ClassModel` of factored gradients: the cores are kept as factors.

    Attributes
    ----------
    metric, eps, labels : see there.
    mean : what "centered_cosine" subtracts; None for the other metrics.
    cores : m core samples.
    """

    metric: Metric
    eps: float
    mean: MeanGradient | None
    cores: FactoredGradients
    labels: npt.NDArray[np.int32]

    def assign(self, gradients: FactoredGradients) -> npt.NDArray[np.int32]:
        """Group of the nearest core sample of each row if within eps, else -1.

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
        """Read what :meth:`save` wrote."""
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
    points : as DBSCAN takes them.
    compared : as a silhouette takes them: the prepared rows, or what knows their distances.
    alike : whether no gradient differs from another.
    model : given eps, kept rows and their labels, what places new rows.
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
