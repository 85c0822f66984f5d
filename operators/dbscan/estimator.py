"""DBSCAN as a scikit-learn estimator."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import _check_sample_weight, validate_data

from operators.dbscan.clusters import cluster
from operators.dbscan.distances import METRICS, Metric, Points


class DBSCAN(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Density-based clustering, exact, in memory proportional to n.

    Same ``labels_`` as ``sklearn.cluster.DBSCAN``, the numbers of the clusters and the choice for
    border rows included, where distances are decided in float64: for rows x, y as
    sum (x - y)^2 <= eps^2, or as 1 - cos <= eps with unit rows. A row is its own neighbour.

    Source: Ester, Kriegel, Sander, Xu, KDD 1996.

    Parameters
    ----------
    eps : radius > 0 within which two rows are neighbours, default 0.5. For the cosine metrics in
        units of 1 - cos, in [0, 2].
    min_samples : neighbours (the row itself included) that make a core sample, >= 1, default 5.
    metric : "euclidean" (default), "cosine", or "centered_cosine": the cosine distance after the
        mean of X is subtracted.

    Attributes
    ----------
    labels_ : (n,) int: cluster of each row, -1 for noise.
    core_sample_indices_ : (n_core,) int: core samples, ascending.
    n_features_in_ : int: features seen by fit.
    """

    def __init__(self, eps: float = 0.5, min_samples: int = 5, metric: Metric = "euclidean") -> None:
        self.eps = eps
        self.min_samples = min_samples
        self.metric = metric

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DBSCAN:
        """Cluster the rows of X.

        Parameters
        ----------
        X : (n, p) numbers, finite. float32 stays float32 for the products; other types become float64.
        y : ignored.
        sample_weight : (n,), optional: what each row counts for among its neighbours, default 1;
            may be negative.

        Returns
        -------
        self

        Raises
        ------
        ValueError : a parameter is out of range, or X is empty or not finite.
        """
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        self._check_parameters()
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        points = Points(X, self.metric)
        labels, cores = cluster(points, [self.eps], [self.min_samples], weight)
        self.labels_: npt.NDArray[np.intp] = labels[0, 0].astype(np.intp)
        self.core_sample_indices_: npt.NDArray[np.intp] = np.flatnonzero(cores[0, 0])
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> npt.NDArray[np.intp]:
        """``fit(X).labels_``; parameters as in :meth:`fit`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def _check_parameters(self) -> None:
        eps: Any = self.eps
        min_samples: Any = self.min_samples
        if not isinstance(eps, Real) or not float(eps) > 0:
            raise ValueError(f"DBSCAN: eps is {self.eps!r}; give a number above 0")
        if not isinstance(min_samples, Integral) or int(min_samples) < 1:
            raise ValueError(
                f"DBSCAN: min_samples is {self.min_samples!r}; give a whole number of at least 1"
            )
        if self.metric not in METRICS:
            raise ValueError(f"DBSCAN: metric is {self.metric!r}; use one of {', '.join(METRICS)}")
