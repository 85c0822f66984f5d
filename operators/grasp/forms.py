"""Gradients of one class, flat or factored: all that group inference asks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Index, Matrix
from operators.dbscan.points import Metric, Points
from operators.factored import FactoredGradients
from operators.factored.points import FactoredPoints
from operators.grasp.factored_model import FactoredModel
from operators.grasp.model import ClassModel

Labels: TypeAlias = npt.NDArray[np.int32]
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
    """Groups of new rows of a class. Raises ValueError where they are not in the form of the model's."""
    if isinstance(model, FactoredModel) and isinstance(gradients, FactoredGradients):
        return model.assign(gradients)
    if isinstance(model, ClassModel) and not isinstance(gradients, FactoredGradients):
        return model.assign(gradients)
    fitted, given = ("flat", "factored") if isinstance(model, ClassModel) else ("factored", "flat")
    raise ValueError(f"predict: fit was given {fitted} gradients, these are {given}; give {fitted} ones")
