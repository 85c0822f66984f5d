"""Every method of learning groups as one call on arrays: a problem in, group numbers out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.grasp import GroupInference
from operators.groups.eiil import environments, scale_derivatives
from operators.groups.george import fit_george
from operators.groups.kmeans import fit_kmeans
from operators.groups.params import GeorgeParams
from tests.paper.data_sets import Problem
from tests.paper.published import AS_PUBLISHED

Array = npt.NDArray[Any]
WIDE = 1000  # entries of a gradient above which several k are not tried: minutes a problem
SEVERAL = [2, 3, 4, 5, 6, 7, 8]


def vectors(problem: Problem, space: str) -> Array:
    """(n, p) gradients or features."""
    return problem.gradients if space == "gradients" else problem.X


def density(problem: Problem, space: str, metric: Any, select: Any) -> Array:
    """DBSCAN within each class, its setting picked from the paper's grid."""
    inference = GroupInference(metric=metric, select=select, random_state=0, **AS_PUBLISHED)
    return inference.fit_predict(vectors(problem, space), problem.y)


def kmeans(problem: Problem, space: str, k: int | list[int]) -> Array:
    X = vectors(problem, space)
    return by_class(problem, lambda rows: fit_kmeans(X[rows], k).labels)


def george(problem: Problem) -> Array:
    loss = problem.loss
    return by_class(problem, lambda rows: fit_george(problem.X[rows], loss[rows], GeorgeParams()).labels)


def eiil(problem: Problem) -> Array:
    return 2 * problem.y + environments(scale_derivatives(problem.logits, problem.y))


def jtt(problem: Problem) -> Array:
    return 2 * problem.y + (problem.early != problem.y)


def by_class(problem: Problem, split: Callable[[Array], Array]) -> Array:
    """Labels of each class, numbered across classes; no method here leaves noise."""
    found = np.empty(len(problem.y), np.int64)
    offset = 0
    for value in np.unique(problem.y):
        rows = np.flatnonzero(problem.y == value)
        found[rows] = split(rows) + offset
        offset = int(found[rows].max()) + 1
    return found


COSINE: Any = "centered_cosine"
TABLE_5: dict[str, Callable[[Problem], Array]] = {
    f"{space}, {name}": method
    for space in ("features", "gradients")
    for name, method in {
        "k-means, k = 2": partial(kmeans, space=space, k=2),
        "k-means, k = 3": partial(kmeans, space=space, k=3),
        "DBSCAN, Euclidean": partial(density, space=space, metric="euclidean", select="silhouette"),
        "DBSCAN, centred cosine": partial(density, space=space, metric=COSINE, select="silhouette"),
    }.items()
}
METHODS: dict[str, Callable[[Problem], Array]] = {
    "class label (floor)": lambda problem: problem.y,
    "EIIL": eiil,
    "JTT": jtt,
    "George": george,
    "k-means, gradients, k = 2": partial(kmeans, space="gradients", k=2),
    "k-means, gradients, k by silhouette": partial(kmeans, space="gradients", k=SEVERAL),
    "FeaSP, select: silhouette": partial(density, space="features", metric=COSINE, select="silhouette"),
    "FeaSP, select: coverage": partial(density, space="features", metric=COSINE, select="coverage"),
    "GRASP, select: silhouette": partial(density, space="gradients", metric=COSINE, select="silhouette"),
    "GRASP, select: coverage": partial(density, space="gradients", metric=COSINE, select="coverage"),
}


def methods_for(problem: Problem, *, table_5: bool) -> dict[str, Callable[[Problem], Array]]:
    """Return the methods that are run on a problem, by name."""
    methods = METHODS | (TABLE_5 if table_5 else {})
    if problem.gradients.shape[1] > WIDE:
        methods = {name: method for name, method in methods.items() if "k by silhouette" not in name}
    return methods
