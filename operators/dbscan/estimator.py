"""DBSCAN as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import sklearn.cluster
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_non_negative, validate_data

from operators.arrays import Float64, Matrix
from operators.dbscan.kernel import cluster
from operators.dbscan.points import METRICS, Metric, Points
from operators.dbscan.tiles import Device
from operators.factored import FactoredGradients
from operators.factored.points import FactoredPoints

if TYPE_CHECKING:
    from operators.neighbours.graph_dbscan import Quality

Neighbours: TypeAlias = Literal["exact", "ivf", "hnsw", "auto"]

NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)
PRECOMPUTED = "precomputed"


class DBSCAN(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Density-based clustering; exact by default, in memory proportional to the number of rows.

    ``labels_`` equal those of ``sklearn.cluster.DBSCAN``, including the numbers of the clusters and the
    choice for border rows, where distances are decided in float64: for rows x, y as ``sum (x - y)^2 <=
    eps^2``, or as ``1 - cos(x, y) <= eps`` with unit rows. A row is its own neighbour.

    Source: Ester, Kriegel, Sander, Xu: A density-based algorithm for discovering clusters, KDD 1996.

    Parameters
    ----------
    eps : radius > 0 within which two rows are neighbours, default 0.5. For the cosine metrics in
        units of 1 - cos, in [0, 2].
    min_samples : number of neighbours (the row itself included) that makes a row a core sample, >= 1,
        default 5.
    metric : "euclidean" (default); "cosine"; "centered_cosine", the cosine distance after the
        mean of X is subtracted; or "precomputed": X is a matrix of distances, dense, or sparse with the
        distances of neighbours. scikit-learn's own DBSCAN then does the work: the matrix takes the memory
        that the search here avoids.
    neighbours : "exact" (default), "ivf", "hnsw" or "auto". "ivf" and "hnsw" find neighbours through an
        approximate FAISS index and may lose clusters: ``quality_`` says how far the labels are from
        the exact ones, and a warning names the parameter to change where that is much. "auto" is "exact",
        whatever the data: the exact search skips most distances and takes a small part of the time that
        building an index takes (operators/README.md has figures).
    nprobe : number of IVF lists searched per row, default 16 of about sqrt(n); only for "ivf".
    ef_search : number of HNSW candidates kept per row, default 128; only for "hnsw".
    random_state : int, RandomState or None: IVF's centroids, HNSW's layers and the rows sampled for
        ``quality_``. The exact labels do not depend on it.
    device : torch device that computes the products of the exact search, default "cpu"; "cuda" must hold all
        rows. The labels do not depend on it.

    Attributes
    ----------
    labels_ : (n,) int: cluster of each row, -1 for noise.
    core_sample_indices_ : (n_core,) int: core samples, ascending.
    quality_ : :class:`operators.neighbours.graph_dbscan.Quality` of approximate labels: recall of edges,
        wrong core samples, and adjusted Rand index against exact DBSCAN. None for exact labels.
    n_features_in_ : int: features seen by fit.

    Examples
    --------
    >>> import numpy as np
    >>> from operators.dbscan import DBSCAN
    >>> X = np.array([[0.0], [1], [2], [10], [11], [12], [50]])
    >>> DBSCAN(eps=1.5, min_samples=2).fit(X).labels_
    array([ 0,  0,  0,  1,  1,  1, -1])
    >>> DBSCAN(eps=1.5, min_samples=2, metric="precomputed").fit(abs(X - X.T)).labels_
    array([ 0,  0,  0,  1,  1,  1, -1])
    """

    def __init__(
        self,
        eps: float = 0.5,
        min_samples: int = 5,
        metric: Metric | Literal["precomputed"] = "euclidean",
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

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that X is a matrix of distances, dense or sparse, where it is precomputed."""
        tags = super().__sklearn_tags__()
        precomputed = self.metric == PRECOMPUTED
        tags.input_tags.pairwise = tags.input_tags.sparse = precomputed
        tags.input_tags.positive_only = precomputed
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DBSCAN:
        """Cluster the rows of X.

        Parameters
        ----------
        X : (n, p) numbers, finite. float32 stays float32 for the products; other types become float64. Or
            :class:`operators.factored.FactoredGradients` (exact neighbours only). For "precomputed" (n, n)
            distances >= 0, dense or sparse.
        y : ignored.
        sample_weight : (n,) whole numbers >= 0, optional: how many times each row counts among its
            neighbours, default 1. Exact neighbours only.

        Returns
        -------
        self

        Raises
        ------
        ValueError : a parameter is out of range, torch cannot use the device, X is empty or not finite,
            precomputed distances are not square, or ``sample_weight`` holds other numbers or is given with
            approximate neighbours.
        ImportError : approximate neighbours, and FAISS is not installed.
        """
        self._check_parameters()
        self.quality_: Quality | None = None
        if self.metric == PRECOMPUTED:
            return self._fit_precomputed(X, sample_weight)
        if isinstance(X, FactoredGradients):
            if self.neighbours in ("ivf", "hnsw"):
                raise ValueError(
                    f"DBSCAN: neighbours is {self.neighbours!r}, and X is {type(X).__name__}, which FAISS "
                    "cannot index. Use neighbours='exact'."
                )
            X.check_finite("X")
            self.n_features_in_ = X.shape[1]
        else:
            X = validate_data(self, X, dtype=[np.float64, np.float32])
        if self.neighbours in ("ivf", "hnsw"):
            return self._fit_approximate(X, sample_weight)
        metric: Any = self.metric
        weight = _row_counts(sample_weight, X.shape[0])
        points = FactoredPoints(X, metric) if isinstance(X, FactoredGradients) else Points(X, metric)
        labels, cores = cluster(points, [self.eps], [self.min_samples], weight, self.device)
        self.labels_: npt.NDArray[np.intp] = labels[0, 0].astype(np.intp)
        self.core_sample_indices_: npt.NDArray[np.intp] = np.flatnonzero(cores[0, 0])
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> npt.NDArray[np.intp]:
        """Return ``fit(X).labels_``; parameters as in :meth:`fit`."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def _fit_precomputed(self, X: Any, sample_weight: Any) -> DBSCAN:
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                f"DBSCAN: metric is 'precomputed' and X has shape {X.shape}; give the distances of all rows, "
                "with one row and one column for each"
            )
        check_non_negative(X, "DBSCAN (metric='precomputed')")
        found = sklearn.cluster.DBSCAN(
            eps=float(self.eps), min_samples=int(self.min_samples), metric=PRECOMPUTED
        )
        found.fit(X, sample_weight=_row_counts(sample_weight, X.shape[0]))
        self.labels_ = found.labels_.astype(np.intp)
        self.core_sample_indices_ = found.core_sample_indices_
        return self

    def _fit_approximate(self, X: Matrix, sample_weight: Any) -> DBSCAN:
        # Imported here because only approximate neighbours need FAISS.
        from operators.neighbours.graph_dbscan import SearchSettings, approximate_grid

        if sample_weight is not None:
            raise ValueError(
                f"DBSCAN: sample_weight is given and neighbours is {self.neighbours!r}, which counts rows, "
                "not weights. Use neighbours='exact'."
            )
        kind: Any = self.neighbours
        metric: Any = self.metric
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = SearchSettings(kind, metric, self.nprobe, self.ef_search, seed)
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
        metrics = (*METRICS, PRECOMPUTED)
        if self.metric not in metrics:
            raise ValueError(f"DBSCAN: metric is {self.metric!r}; use one of {', '.join(metrics)}")
        if self.neighbours not in NEIGHBOURS:
            raise ValueError(f"DBSCAN: neighbours is {self.neighbours!r}; use one of {', '.join(NEIGHBOURS)}")
        if self.metric == PRECOMPUTED and self.neighbours in ("ivf", "hnsw"):
            raise ValueError(
                f"DBSCAN: neighbours is {self.neighbours!r} and metric is 'precomputed', which leaves no "
                "neighbours to look for. Use neighbours='exact'."
            )


def _row_counts(sample_weight: Any, n_rows: int) -> Float64 | None:
    """Validate ``sample_weight``: (n,) float64 whole numbers >= 0, or None where none are given."""
    if sample_weight is None:
        return None
    weight: Float64 = _check_sample_weight(sample_weight, np.empty((n_rows, 0)), dtype=np.float64)
    wrong = np.flatnonzero((weight < 0) | (weight != np.rint(weight)))
    if len(wrong):
        raise ValueError(
            f"DBSCAN: sample_weight[{wrong[0]}] is {weight[wrong[0]]:g}; a weight says how many times a row "
            "counts, so give whole numbers of at least 0"
        )
    return weight
