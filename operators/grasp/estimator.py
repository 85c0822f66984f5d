"""GRASP as a scikit-learn estimator: group inference by density clustering of gradients, class by class.

Source: Zeng, Greenewald, Lee, Solomon, Yurochkin: Outlier-robust group inference via gradient space
clustering, 2022, Algorithm 1. The mathematics of one class is in :mod:`operators.grasp.kernel`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from operators.arrays import NOISE, Labels, Matrix
from operators.dbscan.estimator import Neighbours
from operators.dbscan.tiles import Device
from operators.factored import FactoredGradients
from operators.grasp.class_model import FactoredModel, Model, assign
from operators.grasp.kernel import MAX_CORES, infer_whole_class, seed_of
from operators.grasp.selection import EPS_GRID, FIT_ROWS, MinSamplesGrid, Rule, Selection
from operators.groups.small_groups import MIN_ROWS, MIN_SHARE, to_groups
from operators.points import Metric

Gradients: TypeAlias = npt.ArrayLike | FactoredGradients


class GroupInference(BaseEstimator):  # type: ignore[misc]
    """Infer groups and outliers from per-sample gradients, within each class.

    Source: Zeng et al., Outlier-Robust Group Inference via Gradient Space Clustering, 2022, Algorithm 1; the
    grid is that of appendix E.

    Parameters
    ----------
    metric : {"centered_cosine", "cosine", "euclidean"}, default "centered_cosine"
        "centered_cosine" subtracts the class mean and compares directions, "cosine" compares directions
        without subtracting it, and "euclidean" compares the gradients themselves. Under the cosine metrics
        zero rows are noise unless eps is at least 1.
    eps_grid : float or sequence of float, default .1 to .7 in steps of .05
        Radius or radii of DBSCAN, in units of 1 - cos. For "euclidean" give radii in the unit of the
        gradients; the default is not scaled to them.
    min_samples_grid : "auto", number or sequence of numbers, default "auto"
        Numbers of rows, or below 1 shares of a class. "auto" is the paper's 5, 10, 20, 30, 40, 50, 60, 100
        for a class of up to 1,000 rows, scaled in proportion for a larger one.
    select : {"coverage", "silhouette"}, default "coverage"
        Rule that selects one cell of the grid for each class; see :mod:`operators.grasp.selection`.
        "silhouette" is the paper's.
    random_state : int, RandomState or None, default None
        Seed of the draws of core samples and rows.
    max_cores : int, default 10,000
        Largest number of core samples per class that are kept for ``predict``. Small groups keep all of
        theirs first. Below the limit, ``predict`` repeats ``labels_`` on the rows of ``fit``, except for
        border rows that lie nearer to a core sample of another group.
    neighbours : {"exact", "auto", "ivf", "hnsw"}, default "exact"
        How DBSCAN finds neighbours; see :class:`operators.dbscan.DBSCAN`. "ivf" and "hnsw" may lose groups;
        ``selection_`` then has the distance from exact DBSCAN, and a warning is given if it is large.
    nprobe, ef_search : int, default 16 and 128
        As in :class:`operators.dbscan.DBSCAN`.
    device : str, default "cpu"
        Torch device that computes the products of the exact search, on which labels do not depend. A GPU must
        hold all rows of a class.
    fit_rows : int or None, default 10,000
        A class of more rows is clustered on this many of them, drawn by ``random_state``. All of its rows are
        then labelled as ``predict`` does, by at most 4,096 core samples. None clusters all rows.
    min_rows, min_share : int and float, default 100 and .005
        Smallest number of rows of a group, and smallest share of its class. A smaller cluster joins the group
        whose core samples are nearest; see :mod:`operators.groups.small_groups`. With 0 and 0 every cluster
        is a group, as published.
    stability : int, default 0
        How many times a class is clustered again on part of its rows. ``selection_`` has the adjusted Rand
        index of each; see :func:`operators.grasp.stability.stability`.

    Attributes
    ----------
    labels_ : (n,) int32
        -1 for noise, else the number of the group, unique across classes.
    classes_ : (n_classes,)
        Values of y, ascending.
    selection_ : dict from class to operators.grasp.selection.Selection
    models_ : dict from class to ClassModel or FactoredModel
        See :mod:`operators.grasp.class_model`.
    offsets_ : dict from class to int
        Number of the first group of each class.
    n_features_in_ : int
        Entries of a gradient.

    Examples
    --------
    Two groups of gradients with opposite directions in one class, and a class of one group:

    >>> import numpy as np
    >>> from operators.grasp import GroupInference
    >>> angle = np.concatenate([np.linspace(0, 0.2, 8), np.linspace(3, 3.2, 8), np.linspace(0, 0.2, 4)])
    >>> gradients = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> y = np.repeat([0, 1], [16, 4])
    >>> found = GroupInference("cosine", eps_grid=0.3, min_samples_grid=3, min_rows=4).fit(gradients, y)
    >>> found.labels_
    array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2],
          dtype=int32)
    >>> found.predict([[-1.0, 0.0]], [0])
    array([1], dtype=int32)
    """

    def __init__(
        self,
        metric: Metric = "centered_cosine",
        eps_grid: float | Sequence[float] = EPS_GRID,
        min_samples_grid: MinSamplesGrid = "auto",
        select: Rule = "coverage",
        random_state: Any = None,
        max_cores: int = MAX_CORES,
        neighbours: Neighbours = "exact",
        nprobe: int = 16,
        ef_search: int = 128,
        device: Device = "cpu",
        fit_rows: int | None = FIT_ROWS,
        min_rows: int = MIN_ROWS,
        min_share: float = MIN_SHARE,
        stability: int = 0,
    ) -> None:
        self.metric = metric
        self.eps_grid = eps_grid
        self.min_samples_grid = min_samples_grid
        self.select = select
        self.random_state = random_state
        self.max_cores = max_cores
        self.neighbours = neighbours
        self.nprobe = nprobe
        self.ef_search = ef_search
        self.device = device
        self.fit_rows = fit_rows
        self.min_rows = min_rows
        self.min_share = min_share
        self.stability = stability

    def fit(self, gradients: Gradients, y: npt.ArrayLike) -> GroupInference:
        """Infer the groups of every class.

        Parameters
        ----------
        gradients : (n, p) array or operators.factored.FactoredGradients
            Finite; float32 is kept, other types become float64. Factored gradients need exact neighbours.
        y : (n,) array
            Class of each row.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Lengths differ, gradients are not finite, metric or select are unknown, gradients are factored and
            neighbours approximate, or a number of rows or repeats is negative.
        """
        self._check_numbers()
        X, classes = self._validated(gradients, y, reset=True)
        self.classes_: npt.NDArray[Any] = np.unique(classes)
        self.labels_: Labels = np.full(len(X), NOISE, np.int32)
        self.selection_: dict[Any, Selection] = {}
        self.models_: dict[Any, Model] = {}
        self.offsets_: dict[Any, int] = {}
        offset, seed = 0, seed_of(self.random_state)
        for value in self.classes_.tolist():
            rows = np.flatnonzero(classes == value)
            settings = self.get_params() | {"random_state": seed}
            clusters, selection, self.models_[value] = infer_whole_class(X[rows], rows, **settings)
            labels, self.selection_[value] = to_groups(clusters, selection.group_of), selection
            quality = selection.approximation
            if quality is not None and quality.low:
                warnings.warn(f"GroupInference: class {value!r}: {quality.low}", stacklevel=2)
            self.labels_[rows] = shift_groups(labels, offset)
            self.offsets_[value] = offset
            offset += self.selection_[value].n_groups
        return self

    def _check_numbers(self) -> None:
        least = {"min_rows": 0, "min_share": 0, "stability": 0, "fit_rows": 2}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and not value >= lowest:
                raise ValueError(f"GroupInference: {name} is {value!r}; give a number of at least {lowest}")

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that fit needs the class of each row."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _validated(
        self, gradients: Gradients, y: npt.ArrayLike | None, *, reset: bool
    ) -> tuple[Matrix | FactoredGradients, npt.NDArray[Any]]:
        """Check gradients and classes; ``reset`` remembers the number of features, else it is compared."""
        X: Any = gradients
        if isinstance(gradients, FactoredGradients):
            gradients.check_finite("gradients")
            if reset:
                self.n_features_in_ = gradients.shape[1]
        else:
            X = check_array(gradients, dtype=[np.float64, np.float32], input_name="gradients")
            if reset or not self._fitted_on_factors():
                validate_data(self, gradients, reset=reset, skip_check_array=True)
        if y is None and (reset or len(self.classes_) > 1):
            raise ValueError(
                "GroupInference requires y to be passed, but the target y is None; give the class of each row"
            )
        classes = np.full(len(X), self.classes_[0]) if y is None else column_or_1d(y)
        check_consistent_length(X, classes)
        return X, classes

    def _fitted_on_factors(self) -> bool:
        return any(isinstance(model, FactoredModel) for model in self.models_.values())

    def fit_predict(self, gradients: Gradients, y: npt.ArrayLike) -> Labels:
        """Fit the model and return ``labels_``, the group of each row."""
        return self.fit(gradients, y).labels_

    def predict(self, gradients: Gradients, y: npt.ArrayLike | None = None) -> Labels:
        """Return the group of the nearest core sample of each row's class if it lies within eps, else -1.

        Parameters
        ----------
        gradients : (n, p) array or operators.factored.FactoredGradients
            From the same model and parameters as in ``fit``, in the same form.
        y : (n,) array, optional
            Class of each row; may be left out if ``fit`` saw one class only.

        Returns
        -------
        (n,) int32

        Raises
        ------
        ValueError
            ``fit`` has not seen a class, or the gradients have another form.
        """
        check_is_fitted(self)
        X, classes = self._validated(gradients, y, reset=False)
        labels: Labels = np.full(len(X), NOISE, np.int32)
        for value in np.unique(classes).tolist():
            if value not in self.models_:
                raise ValueError(f"predict: y holds class {value!r}; fit saw only {self.classes_.tolist()}")
            rows = np.flatnonzero(classes == value)
            clusters = assign(self.models_[value], X[rows])
            groups = to_groups(clusters, self.selection_[value].group_of)
            labels[rows] = shift_groups(groups, self.offsets_[value])
        return labels


def shift_groups(labels: Labels, offset: int) -> Labels:
    """Map the labels of a class, from 0, to numbers that are unique across classes; noise stays -1."""
    return np.where(labels == NOISE, NOISE, labels + np.int32(offset)).astype(np.int32)
