"""Folds for cross-validation that are far from each other: constrained kernel k-means with k clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from operators.splits.features import Float64, Kernel, make_map
from operators.splits.programs import binary_program
from operators.splits.selection import Ints
from operators.splits.start import generator

MOST_ROWS = 20_000


class ConstrainedFolds(BaseEstimator):  # type: ignore[misc]
    """k clusters of equal size in every group, found by k-means; each is a fold, shifted from the others.

    A step assigns the rows of each group by a linear program (a transportation problem); two clusters of
    unequal size, which have a closed form, are :class:`operators.splits.ConstrainedKernelKMeans`.

    Source: Napoli and White 2024, conclusion.

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
    objective_ : per step, sum |phi - centroid|^2, never rising.
    n_features_in_ : int.
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
        """Deal the rows of X (n, d) into folds; ``groups`` (n,) of any type, None: one group.

        Raises
        ------
        ValueError
            Fewer rows than folds, more than 20,000 rows, or a degenerate kernel.
        """
        X = validate_data(self, X, dtype=[np.float32, np.float64], ensure_min_samples=2)
        if not 2 <= self.n_folds <= len(X) or len(X) > MOST_ROWS:
            raise ValueError(
                f"n_folds is {self.n_folds} and X has {len(X)} rows: there must be 2 folds or more, a row "
                f"for each, and no more than {MOST_ROWS:,} rows: a linear program deals them. Fold a sample."
            )
        codes = np.zeros(len(X), np.int64) if groups is None else np.unique(groups, return_inverse=True)[1]
        random = generator(self.random_state)
        marks = X[np.sort(random.choice(len(X), min(self.landmarks, len(X)), replace=False))]
        with threadpool_limits(limits=1):
            by = make_map(X, self.kernel, self.gamma, marks, self.standardize)
            phi = by.features(X).astype(np.float64)
            fits = [self._one(phi, codes, random) for _ in range(self.n_init)]
        self.labels_, self.objective_ = min(fits, key=lambda fit: float(fit[1][-1]))
        return self

    def fit_predict(self, X: Any, groups: Any = None) -> Ints:
        """``labels_`` of :meth:`fit`."""
        labels: Ints = self.fit(X, groups).labels_
        return labels

    def _one(self, phi: Float64, codes: Ints, random: np.random.Generator) -> tuple[Ints, Float64]:
        labels, history = np.zeros(len(phi), np.int64), list[float]()
        centroids = _plus_plus(phi, self.n_folds, random)
        for _ in range(self.max_iter):
            found = deal(_distances(phi, centroids), codes)
            centroids = np.stack([phi[found == fold].mean(axis=0) for fold in range(self.n_folds)])
            objective = float(np.square(phi - centroids[found]).sum())
            if history and objective >= history[-1]:
                break
            labels = found
            history.append(objective)
        return labels, np.array(history)


def deal(distances: Float64, codes: Ints) -> Ints:
    """(n,) cluster of each row with the smallest sum of distances (n, k), |g| / k rows of group g in each.

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
    taken = binary_program(distances.ravel(), rows, low, high)
    return np.asarray(taken.reshape(n, k).argmax(axis=1))


def _distances(phi: Float64, centroids: Float64) -> Float64:
    lengths = np.square(centroids).sum(axis=1)
    found: Float64 = np.square(phi).sum(axis=1)[:, None] + lengths - 2 * phi @ centroids.T
    return found


def _plus_plus(phi: Float64, k: int, random: np.random.Generator) -> npt.NDArray[Any]:
    chosen = [int(random.integers(len(phi)))]
    for _ in range(k - 1):
        nearest = np.maximum(_distances(phi, phi[chosen]).min(axis=1), 0)
        total = nearest.sum()
        chosen.append(int(random.choice(len(phi), p=nearest / total if total else None)))
    return phi[chosen]
