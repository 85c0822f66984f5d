"""DBSCAN as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from operators.dbscan.clusters import cluster
from operators.dbscan.distances import METRICS, Matrix, Metric, Points
from operators.dbscan.tiles import Device
from operators.factored import FactoredGradients
from operators.factored.points import FactoredPoints

if TYPE_CHECKING:
    from operators.neighbours.approximate import Quality

Neighbours: TypeAlias = Literal["exact", "ivf", "hnsw", "auto"]

NEIGHBOURS: tuple[Neighbours, ...] = ("exact", "ivf", "hnsw", "auto")


class DBSCAN(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Density-based clustering, exact unless asked otherwise, in memory proportional to n.

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
    neighbours : "exact" (default), "ivf", "hnsw" or "auto". The middle two look for neighbours through an
        approximate FAISS index, and may lose clusters: ``quality_`` says how far the labels are from
        the exact ones, and a warning names the knob where that is much. "auto" is "exact", whatever the data:
        the exact search skips most distances and takes a small part of the time that an index takes to
        build (operators/README.md has figures).
    nprobe : IVF lists looked at per row, default 16 of about sqrt(n); only for "ivf".
    ef_search : HNSW candidates kept per row, default 128; only for "hnsw".
    random_state : int, RandomState or None: IVF's centroids, HNSW's layers and the rows sampled for
        ``quality_``. The exact labels do not depend on it.
    device : torch device that makes the products of the exact search, default "cpu"; "cuda" must hold the
        rows. The labels do not depend on it.

    Attributes
    ----------
    labels_ : (n,) int: cluster of each row, -1 for noise.
    core_sample_indices_ : (n_core,) int: core samples, ascending.
    quality_ : :class:`operators.neighbours.approximate.Quality` of approximate labels: recall of edges, wrong
        core samples, and ARI against exact DBSCAN. None for exact ones.
    n_features_in_ : int: features seen by fit.
    """

    def __init__(
        self,
        eps: float = 0.5,
        min_samples: int = 5,
        metric: Metric = "euclidean",
        neighbours: Neighbours = "exact",
        nprobe: int = 16,
        ef_search: int = 128,
        random_state: Any = None,
        device: Device = "cpu",
    ) -> None:
        self.eps = eps
        self.min_samples = min_samples
        self.metric = metric
        self.neighbours = neighbours
        self.nprobe = nprobe
        self.ef_search = ef_search
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DBSCAN:
        """Cluster the rows of X.

        Parameters
        ----------
        X : (n, p) numbers, finite. float32 stays float32 for the products; other types become float64. Or
            :class:`operators.factored.FactoredGradients` (exact neighbours only).
        y : ignored.
        sample_weight : (n,), optional: what each row counts for among its neighbours, default 1;
            may be negative. Exact neighbours only.

        Returns
        -------
        self

        Raises
        ------
        ValueError : a parameter is out of range, torch cannot use the device, X is empty or not finite, or
            ``sample_weight`` is given with approximate neighbours.
        ImportError : approximate neighbours, and FAISS is not installed.
        """
        self._check_parameters()
        factored = isinstance(X, FactoredGradients)
        if factored:
            if self.neighbours in ("ivf", "hnsw"):
                raise ValueError(
                    f"DBSCAN: neighbours is {self.neighbours!r}, and X is {type(X).__name__}, which FAISS "
                    "cannot index. Use neighbours='exact'."
                )
            X.check_finite("X")
            self.n_features_in_ = X.shape[1]
        else:
            X = validate_data(self, X, dtype=[np.float64, np.float32])
        self.quality_: Quality | None = None
        if self.neighbours in ("ivf", "hnsw"):
            return self._fit_approximate(X, sample_weight)
        weight = sample_weight
        if weight is not None:
            weight = _check_sample_weight(weight, np.empty((X.shape[0], 0)), dtype=np.float64)
        points = FactoredPoints(X, self.metric) if factored else Points(X, self.metric)
        labels, cores = cluster(points, [self.eps], [self.min_samples], weight, self.device)
        self.labels_: npt.NDArray[np.intp] = labels[0, 0].astype(np.intp)
        self.core_sample_indices_: npt.NDArray[np.intp] = np.flatnonzero(cores[0, 0])
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> npt.NDArray[np.intp]:
        """``fit(X).labels_``; parameters as in :meth:`fit`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def _fit_approximate(self, X: Matrix, sample_weight: Any) -> DBSCAN:
        # Not at the top: only these need FAISS.
        from operators.neighbours.approximate import Settings, approximate_grid

        if sample_weight is not None:
            raise ValueError(
                f"DBSCAN: sample_weight is given and neighbours is {self.neighbours!r}, which counts rows, "
                "not weights. Use neighbours='exact'."
            )
        kind: Any = self.neighbours
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = Settings(kind, self.metric, self.nprobe, self.ef_search, seed)
        found = approximate_grid(X, [self.eps], [self.min_samples], settings)
        self.labels_ = found.labels[0, 0].astype(np.intp)
        self.core_sample_indices_ = np.flatnonzero(found.cores[0, 0])
        self.quality_ = found.quality(X, 0, 0)
        if self.quality_.low:
            warnings.warn(f"DBSCAN: {self.quality_.low}", stacklevel=3)
        return self

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
        if self.neighbours not in NEIGHBOURS:
            raise ValueError(f"DBSCAN: neighbours is {self.neighbours!r}; use one of {', '.join(NEIGHBOURS)}")
