"""Folds for cross-validation that are far from each other: constrained kernel k-means with k clusters.

``split: {method: cluster, folds: k}`` publishes them as the column ``fold``. The case of one validation part,
which has a closed form, is :class:`operators.splits.ConstrainedKernelKMeans`.

Source: Napoli and White 2024, section 3 (conclusion), which proposes k clusters without giving an algorithm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils.validation import check_is_fitted, validate_data

from operators.arrays import Float64, Int64
from operators.splits.features import Kernel, check_kernel, make_map
from operators.splits.selection import binary_program
from operators.splits.start import generator
from operators.threads import limit_threads

MAX_ROWS = 20_000
"""Largest number of rows of one linear program."""
MAX_VARIABLES = 1_000_000
"""Largest number of rows times folds of one linear program: 200 folds of 5,000 rows take 7 s each step."""


class Assignment(NamedTuple):
    """An assignment of rows to clusters, and the dual prices of the linear program that found it."""

    labels: Int64
    """(n,) cluster of each row."""
    prices: Float64
    """(g, k) price of a place in each cluster for rows of each group."""


class ConstrainedFolds(BaseEstimator):  # type: ignore[misc]
    """Divide rows into k folds that hold equal shares of every group and lie far from each other.

    Each step assigns the rows by a linear program (a transportation problem), so that every fold holds its
    share of every group, and then moves each centroid to the mean of its fold.

    Parameters
    ----------
    n_folds : int, default 5
        Number of folds k, at least 2.
    kernel, gamma, standardize : as in :class:`operators.splits.ConstrainedKernelKMeans`.
    landmarks : int, default 500
        Number of rows drawn as landmarks of the RBF kernel; all rows where there are fewer.
    n_init : int, default 3
        Number of starts (k-means++). The one with the lowest objective is kept.
    random_state : int, RandomState or None, default None
        Seed of starts and landmarks.
    max_iter : int, default 50
        Largest number of steps of a start.

    Attributes
    ----------
    labels_ : (n,) int64
        Fold of each row, 0 to k - 1. Every fold holds its share of each group, rounded down or up.
    objective_ : (n_steps,) float64
        Sum of |phi - centroid|^2 after each step, falling.
    groups_ : (g,)
        The groups, sorted.
    centroids_ : (k, width) float64
        Means of the folds in the space of phi.
    prices_ : (g, k) float64
        Dual prices of the last assignment, by which :meth:`predict` assigns other rows.
    feature_map_ : :class:`operators.splits.features.FeatureMap`
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from operators.splits import ConstrainedFolds
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> folds = ConstrainedFolds(3, random_state=0).fit(X)
    >>> np.bincount(folds.labels_).tolist()
    [2, 2, 2]
    """

    def __init__(
        self,
        n_folds: int = 5,
        kernel: Kernel = "linear",
        gamma: float | None = None,
        landmarks: int = 500,
        n_init: int = 3,
        random_state: Any = None,
        standardize: bool = True,
        max_iter: int = 50,
    ) -> None:
        self.n_folds = n_folds
        self.kernel = kernel
        self.gamma = gamma
        self.landmarks = landmarks
        self.n_init = n_init
        self.random_state = random_state
        self.standardize = standardize
        self.max_iter = max_iter

    def fit(self, X: Any, groups: Any = None) -> ConstrainedFolds:
        """Divide the rows of X (n, d) into folds.

        ``groups`` (n,) are of any type; None puts all rows in one group.

        Raises
        ------
        ValueError
            Fewer rows than folds, more than 20,000 rows or 1,000,000 rows times folds, or an unknown or
            degenerate kernel.
        """
        X = validate_data(self, X, dtype=[np.float32, np.float64], ensure_min_samples=2)
        check_kernel(self.kernel)
        too_large = len(X) > MAX_ROWS or self.n_folds * len(X) > MAX_VARIABLES
        if not 2 <= self.n_folds <= len(X) or too_large:
            raise ValueError(
                f"n_folds is {self.n_folds} and X has {len(X)} rows. There must be at least 2 folds, "
                f"at least one row for each, and at most {MAX_ROWS:,} rows and {MAX_VARIABLES:,} rows times "
                "folds, for a linear program. For more rows, fit a sample and assign the other rows with "
                "predict."
            )
        groups = np.zeros(len(X), np.int64) if groups is None else np.asarray(groups)
        self.groups_, codes = np.unique(groups, return_inverse=True)
        random = generator(self.random_state)
        marks = X[np.sort(random.choice(len(X), min(self.landmarks, len(X)), replace=False))]
        with limit_threads(1):
            self.feature_map_ = make_map(X, self.kernel, self.gamma, marks, self.standardize)
            phi = self.feature_map_.features(X).astype(np.float64)
            fits = [self._one_start(phi, codes, random) for _ in range(self.n_init)]
        best, self.objective_ = min(fits, key=lambda fit: float(fit[1][-1]))
        self.labels_, self.prices_ = best
        self.centroids_ = _means(phi, self.labels_, self.n_folds)
        return self

    def fit_predict(self, X: Any, groups: Any = None) -> Int64:
        """Return ``labels_`` of :meth:`fit`."""
        labels: Int64 = self.fit(X, groups).labels_
        return labels

    def predict(self, X: Any, groups: Any = None) -> Int64:
        """Return the fold (n,) of other rows, which minimises squared distance less the group's dual price.

        Folds keep their shares of such rows on average. Rows of a group that ``fit`` has not seen go to the
        nearest centroid.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float32, np.float64], reset=False)
        groups = np.zeros(len(X), np.int64) if groups is None else np.asarray(groups)
        with limit_threads(1):
            phi = self.feature_map_.features(X).astype(np.float64)
        return place(phi, groups, self.centroids_, self.groups_, self.prices_)

    def _one_start(
        self, phi: Float64, codes: Int64, random: np.random.Generator
    ) -> tuple[Assignment, Float64]:
        history = list[float]()
        centroids = kmeans_plusplus(phi, self.n_folds, random_state=int(random.integers(2**31)))[0]
        best = None
        for _ in range(self.max_iter):
            found = assign_rows(euclidean_distances(phi, centroids, squared=True), codes)
            centroids = _means(phi, found.labels, self.n_folds)
            objective = float(np.square(phi - centroids[found.labels]).sum())
            if best is not None and objective >= history[-1]:
                break
            best = found
            history.append(objective)
        if best is None:
            raise ValueError(f"max_iter is {self.max_iter}: it must be at least 1.")
        return best, np.array(history)


def place(
    phi: Float64, groups: npt.NDArray[Any], centroids: Float64, names: npt.NDArray[Any], prices: Float64
) -> Int64:
    """Return the fold (n,) with the smallest squared distance less price.

    Parameters
    ----------
    phi : (n, width) rows.
    groups : (n,) group of each row. Rows of a group that is not among ``names`` have the price 0.
    centroids : (k, width).
    names, prices : (g,) sorted groups and their prices (g, k).
    """
    cost = euclidean_distances(phi, centroids, squared=True)
    at = np.minimum(np.searchsorted(names, groups), len(names) - 1)
    known = names[at] == groups
    cost[known] -= prices[at[known]]
    return np.asarray(cost.argmin(axis=1))


def assign_rows(distances: Float64, codes: Int64) -> Assignment:
    """Assign rows to k clusters so that the sum of ``distances`` (n, k) is least and shares are equal.

    Each cluster gets |g| / k of the rows of group g (``codes``, from 0) and n / k of all rows, each rounded
    down or up where k does not divide it.
    """
    n, k = distances.shape
    edges = np.arange(n * k)
    row, cluster = edges // k, edges % k
    n_groups = int(codes.max()) + 1
    parts = [row, n + codes[row] * k + cluster, n + n_groups * k + cluster]
    rows = sparse.csr_array(
        (np.ones(3 * n * k), (np.concatenate(parts), np.tile(edges, 3))),
        shape=(n + (n_groups + 1) * k, n * k),
    )
    shares = np.concatenate([np.repeat(np.bincount(codes, minlength=n_groups), k), np.full(k, n)]) / k
    low, high = (np.concatenate([np.ones(n), bound(shares)]) for bound in (np.floor, np.ceil))
    taken, duals = binary_program(distances.ravel(), rows, low, high)
    by_group, total = np.split(duals[n:], [n_groups * k])
    return Assignment(np.asarray(taken.reshape(n, k).argmax(axis=1)), by_group.reshape(n_groups, k) + total)


def _means(phi: Float64, labels: Int64, k: int) -> Float64:
    return np.stack([phi[labels == fold].mean(axis=0) for fold in range(k)])
