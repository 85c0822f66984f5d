"""Folds for cross-validation that are far from each other: constrained kernel k-means with k clusters.

``split: {method: cluster, folds: k}`` publishes them as the column ``fold``. Two clusters of unequal size,
which have a closed form, are :class:`operators.splits.ConstrainedKernelKMeans`.

Source: Napoli and White 2024, section 4 (conclusion).
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
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from operators.arrays import Float64, Int64
from operators.splits.features import Kernel, make_map
from operators.splits.selection import binary_program
from operators.splits.start import generator

MAX_ROWS = 20_000


class Deal(NamedTuple):
    """An assignment of rows to clusters with its dual prices."""

    labels: Int64
    """(n,) cluster of each row."""
    prices: Float64
    """(g, k) price of a place in each cluster for rows of each group."""


class ConstrainedFolds(BaseEstimator):  # type: ignore[misc]
    """Deal rows into k folds of equal size in every group, as far from each other as k-means finds them.

    Each step assigns the rows by a linear program (a transportation problem), so that every fold holds its
    share of every group, and then moves each centroid to the mean of its fold.

    Parameters
    ----------
    n_folds : k >= 2, default 5.
    kernel, gamma, standardize : as in :class:`operators.splits.ConstrainedKernelKMeans`.
    landmarks : rows drawn as landmarks of the RBF kernel, default 500; all where there are fewer.
    n_init : starts (k-means++), default 3; the lowest objective is kept.
    random_state : int, RandomState or None: of starts and landmarks.
    max_iter : most steps of a start, default 50.

    Attributes
    ----------
    labels_ : (n,) int64 fold of each row, 0 to k - 1; every fold holds its share of each group, rounded
        down or up.
    objective_ : per step, sum |phi - centroid|^2, falling.
    groups_ : (g,) the groups, sorted.
    centroids_ : (k, width) means of the folds in the space of phi.
    prices_ : (g, k) dual prices of the last assignment, by which :meth:`predict` deals other rows.
    feature_map_ : :class:`operators.splits.features.FeatureMap`.
    n_features_in_ : int.

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
            Fewer rows than folds, more than 20,000 rows, or a degenerate kernel.
        """
        X = validate_data(self, X, dtype=[np.float32, np.float64], ensure_min_samples=2)
        if not 2 <= self.n_folds <= len(X) or len(X) > MAX_ROWS:
            raise ValueError(
                f"n_folds is {self.n_folds} and X has {len(X)} rows: there must be 2 folds or more, a row "
                f"for each, and no more than {MAX_ROWS:,} rows: a linear program deals them. Fit a sample, "
                "and let predict deal the other rows."
            )
        groups = np.zeros(len(X), np.int64) if groups is None else np.asarray(groups)
        self.groups_, codes = np.unique(groups, return_inverse=True)
        random = generator(self.random_state)
        marks = X[np.sort(random.choice(len(X), min(self.landmarks, len(X)), replace=False))]
        with threadpool_limits(limits=1):
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
        """Return the fold (n,) of other rows: the least distance less the price of its group and fold.

        Folds keep their shares of such rows on average. Rows of a group that fit has not seen have no price.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float32, np.float64], reset=False)
        groups = np.zeros(len(X), np.int64) if groups is None else np.asarray(groups)
        with threadpool_limits(limits=1):
            phi = self.feature_map_.features(X).astype(np.float64)
        return place(phi, groups, self.centroids_, self.groups_, self.prices_)

    def _one_start(self, phi: Float64, codes: Int64, random: np.random.Generator) -> tuple[Deal, Float64]:
        history = list[float]()
        centroids = kmeans_plusplus(phi, self.n_folds, random_state=int(random.integers(2**31)))[0]
        best = None
        for _ in range(self.max_iter):
            found = deal(euclidean_distances(phi, centroids, squared=True), codes)
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
    """Return the fold (n,) of rows phi (n, width) with the least squared distance less price (g, k)."""
    cost = euclidean_distances(phi, centroids, squared=True)
    at = np.minimum(np.searchsorted(names, groups), len(names) - 1)
    known = names[at] == groups
    cost[known] -= prices[at[known]]
    return np.asarray(cost.argmin(axis=1))


def deal(distances: Float64, codes: Int64) -> Deal:
    """Assign rows to clusters at the smallest sum of distances (n, k), with |g| / k rows of group g in each.

    Where k does not divide |g| a cluster gets the share rounded down or up; of all rows it gets n / k, so
    rounded.
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
    return Deal(np.asarray(taken.reshape(n, k).argmax(axis=1)), by_group.reshape(n_groups, k) + total)


def _means(phi: Float64, labels: Int64, k: int) -> Float64:
    return np.stack([phi[labels == fold].mean(axis=0) for fold in range(k)])
