"""Losses by distance to the nearest of K centroids: k-means and the SPA classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.eos.kernel import Target, moments

SUM_TO_ONE = 1e3
"""Weight of the constraint on a mixture, in units of the largest coordinate."""
EMPTY = 1e-12
"""A box with less than this share of all weight counts as empty."""


def first_centroids(
    X: npt.NDArray[np.floating], prior: Float64, n_clusters: int, standardize: bool, seed: int
) -> Centroids:
    """Draw up to K rows by k-means++ (Arthur & Vassilvitskii 2007)."""
    from sklearn.cluster import kmeans_plusplus

    scale = 1 / moments(X, prior)[1] if standardize else np.ones(X.shape[1])
    n_clusters = min(n_clusters, len(X))
    rows = X * scale
    centred = rows - rows.mean(axis=0)
    picked = kmeans_plusplus(centred, n_clusters, sample_weight=prior, random_state=seed % 2**32)[1]
    return Centroids(rows[picked], scale)


@dataclass(frozen=True)
class KMeans:
    """Loss min_k (1/D) |x - c_k|^2, in units of the features' variances in the starting sample.

    Parameters
    ----------
    n_clusters : int, default 8
        Number K of centroids.
    standardize : bool, default True
        Divide every feature by its standard deviation in the starting sample.
    """

    n_clusters: int = 8
    standardize: bool = True
    target: str = "none"

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> Centroids:
        """Return centroids drawn by k-means++ from a sample X (m, D)."""
        return first_centroids(X, prior, self.n_clusters, self.standardize, seed)


@dataclass(frozen=True)
class SPA:
    """The SPA classifier's loss: min_k (1/D) |x - c_k|^2 - (label_weight / M) log L[y, k].

    Each row belongs to one of K boxes; c_k is a box's mean and L[:, k] the shares of the M labels in it.
    Source: Gerber, Pospisil, Navandar, Horenko, Science Advances 6, 2020; Horenko, Neural Computation 32,
    2020.

    Parameters
    ----------
    n_clusters : int, default 8
        Number K of boxes.
    label_weight : float, default 1
        Factor epsilon of the label's loss, at least 0.
    smoothing : float, default 1e-3
        Prior weight of each label in each box, where the weights of the rows sum to 1. It keeps log L finite,
        and the log density of this prior is the penalty of the objective.
    standardize : bool, default True
        As in :class:`KMeans`.
    n_classes : int, optional
        Number M of labels. By default that of the starting sample.
    """

    n_clusters: int = 8
    label_weight: float = 1.0
    smoothing: float = 1e-3
    standardize: bool = True
    n_classes: int | None = None
    target: str = "class"

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> Boxes:
        """Return boxes with centroids drawn by k-means++ from a sample X (m, D) and equal label shares."""
        if y is None:
            raise ValueError("The loss 'spa' needs class labels: pass y.")
        first = first_centroids(X, prior, self.n_clusters, self.standardize, seed)
        n_classes = self.n_classes or int(y.max()) + 1
        shares = np.full((n_classes, len(first.centres)), 1 / n_classes)
        return Boxes(first.centres, first.scale, shares, self.label_weight / n_classes, self.smoothing)


@dataclass(frozen=True)
class Centroids:
    """Centroids (K, D) of rows times ``scale`` (D,)."""

    centres: Float64
    scale: Float64

    @property
    def penalty(self) -> float:
        """Regulariser of the objective, which is 0."""
        return 0.0

    @property
    def rows_needed(self) -> int:
        """Number of rows that a fit needs: one per centroid."""
        return len(self.centres)

    @property
    def origin(self) -> Float64:
        """Mean (D,) of the centroids."""
        return np.asarray(self.centres.mean(axis=0))

    def distances(self, X: npt.NDArray[np.floating]) -> tuple[Float64, Float64]:
        """Return the scaled rows (n, D) and their mean squared differences from each centroid (n, K)."""
        from sklearn.metrics.pairwise import euclidean_distances

        rows: Float64 = X * self.scale
        # Relative to the centroids' mean, because squares of coordinates far from 0 have no digits left.
        origin = self.origin
        return rows, euclidean_distances(rows - origin, self.centres - origin, squared=True) / X.shape[1]

    def view(self, X: npt.NDArray[np.floating], y: Target) -> CentroidsView:
        """Assign each row to its nearest centroid."""
        return CentroidsView(*self.distances(X))

    def updated(self, sums: Float64, mass: float) -> Centroids:
        """Move each centroid to the weighted mean of its rows."""
        return replace(self, centres=self._means(sums.reshape(len(self.centres), -1), mass))

    def _means(self, table: Float64, mass: float) -> Float64:
        # A box without weight keeps its centroid.
        held = table[:, 0] > EMPTY * mass
        means = table[:, 1 : 1 + self.centres.shape[1]] / np.where(held, table[:, 0], 1)[:, None]
        return np.where(held[:, None], means, self.centres)


@dataclass(frozen=True)
class Boxes(Centroids):
    """Centroids with their label shares (M, K)."""

    shares: Float64
    label_weight: float
    smoothing: float

    @property
    def penalty(self) -> float:
        """Minus the log density of the prior of the label shares, up to a constant."""
        return -self.label_weight * self.smoothing * float(np.log(self.shares).sum())

    def view(self, X: npt.NDArray[np.floating], y: Target) -> CentroidsView:
        """Assign each row to its box, given its label. Raises ValueError without labels."""
        if y is None:
            raise ValueError("The loss 'spa' needs class labels: pass y.")
        rows, misfit = self.distances(X)
        misfit -= self.label_weight * np.log(self.shares)[y]
        return CentroidsView(rows, misfit, np.eye(len(self.shares))[y])

    def updated(self, sums: Float64, mass: float) -> Boxes:
        """Set centroids to the weighted means of the boxes, and label shares to their weighted counts."""
        table = sums.reshape(len(self.centres), -1)
        counts = table[:, 1 + self.centres.shape[1] :].T / mass + self.smoothing
        return replace(self, centres=self._means(table, mass), shares=counts / counts.sum(axis=0))

    def predict_proba(self, X: npt.NDArray[np.floating]) -> Float64:
        """Return label probabilities (n, M): mixtures of the label shares of boxes.

        The mixture of a row is the convex combination of centroids that is nearest to it, as in SPA with
        affiliations in [0, 1]. The nearest box alone would give only K different values.
        """
        from scipy.optimize import nnls

        centres, rows = self.centres - self.origin, X * self.scale - self.origin
        heavy = SUM_TO_ONE * max(1.0, float(np.abs(centres).max()))
        corners = np.vstack([centres.T, np.full(len(centres), heavy)])
        mixed = np.array([nnls(corners, np.append(row, heavy))[0] for row in rows])
        mixed /= mixed.sum(axis=1, keepdims=True)
        found: Float64 = mixed @ self.shares.T
        return found


class CentroidsView:
    """Rows (n, D), their misfit (n, K) and, for SPA, labels as indicators (n, M)."""

    def __init__(self, rows: Float64, misfit: Float64, labels: Float64 | None = None) -> None:
        self._rows, self._labels, self._n_boxes = rows, labels, misfit.shape[1]
        self._nearest = misfit.argmin(axis=1)
        self.losses: Float64 = np.take_along_axis(misfit, self._nearest[:, None], axis=1)[:, 0]

    def sums(self, weight: Float64) -> Float64:
        """Return weight, weighted sum of rows and, for SPA, weight of each label per box: (K, 1 + D + M)."""
        member = np.zeros((len(weight), self._n_boxes))
        member[np.arange(len(weight)), self._nearest] = weight
        parts = [member.sum(axis=0)[:, None], member.T @ self._rows]
        if self._labels is not None:
            parts.append(member.T @ self._labels)
        return np.concatenate(parts, axis=1).ravel()
