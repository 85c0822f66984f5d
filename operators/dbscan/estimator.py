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
from operators.dbscan.tiles import Device
from operators.factored import FactoredGradients
from operators.factored.points import FactoredPoints
from operators.points import METRICS, Metric, Points

if TYPE_CHECKING:
    from operators.dbscan.graph_dbscan import Quality

Neighbours: TypeAlias = Literal["exact", "ivf", "hnsw", "auto"]

NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)
PRECOMPUTED = "precomputed"


class DBSCAN(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Density-based clustering, exact by default, in memory proportional to the number of rows.

    Source: Ester, Kriegel, Sander, Xu: A density-based algorithm for discovering clusters, KDD 1996.

    Parameters
    ----------
    eps : float, default 0.5
        Radius above 0 within which two rows are neighbours. For the cosine metrics it is in units of 1 - cos,
        in [0, 2].
    min_samples : int, default 5
        Number of neighbours, the row itself included, that makes a row a core sample.
    metric : {"euclidean", "cosine", "centered_cosine", "precomputed"}, default "euclidean"
        "centered_cosine" is the cosine distance after the mean of X is subtracted. For "precomputed" X is a
        matrix of distances, dense, or sparse with the distances of neighbours, and scikit-learn's DBSCAN
        computes the labels.
    neighbours : {"exact", "ivf", "hnsw", "auto"}, default "exact"
        "ivf" and "hnsw" find neighbours through an approximate FAISS index and may lose clusters:
        ``quality_`` measures how far the labels are from the exact ones, and a warning names the parameter to
        change if that is far. "auto" is "exact", which takes less time than building an index.
    nprobe : int, default 16
        Number of IVF lists, of about sqrt(n), that are searched per row; only for "ivf".
    ef_search : int, default 128
        Number of HNSW candidates that are kept per row; only for "hnsw".
    random_state : int, RandomState or None, default None
        Seed of IVF's centroids, HNSW's layers and the sample for ``quality_``. Exact labels do not depend on
        it.
    device : str, default "cpu"
        Torch device that computes the products of the exact search; "cuda" must hold all rows. The labels do
        not depend on it.

    Attributes
    ----------
    labels_ : (n,) int
        Cluster of each row, -1 for noise.
    core_sample_indices_ : (n_core,) int
        Core samples, ascending.
    quality_ : operators.dbscan.graph_dbscan.Quality or None
        Recall of edges, wrong core samples, and adjusted Rand index against exact DBSCAN of approximate
        labels; None for exact ones.
    n_features_in_ : int

    Notes
    -----
    ``labels_`` equal those of ``sklearn.cluster.DBSCAN``, including the numbers of the clusters and the
    choice for border rows. Distances of rows x, y are decided in float64: as sum (x - y)^2 <= eps^2, or with
    unit rows as 1 - cos(x, y) <= eps. A row is its own neighbour.

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
        X : (n, p) array or operators.factored.FactoredGradients
            Finite numbers; float32 stays float32 for the products, other types become float64. Factored
            gradients need exact neighbours. For "precomputed", (n, n) distances of at least 0, dense or
            sparse.
        y : ignored
        sample_weight : (n,) array, optional
            Whole numbers of at least 0: how many times each row counts among its neighbours, by default once.
            Exact neighbours only.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A parameter is out of range, torch cannot use the device, X is empty or not finite, precomputed
            distances are not square, or ``sample_weight`` holds other numbers or is given with approximate
            neighbours.
        ImportError
            Approximate neighbours were asked for, and FAISS is not installed.
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
        from operators.dbscan.graph_dbscan import SearchSettings, approximate_grid

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
