"""A neighbour graph as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from joblib import effective_n_jobs  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from operators.arrays import Float32, Float64, Ids, Matrix
from operators.factored import FactoredGradients
from operators.factored.points import FactoredPoints
from operators.neighbours.faiss_index import Kind, threads
from operators.neighbours.geometry import SQUARABLE, Geometry
from operators.neighbours.graph import Graph, gather
from operators.neighbours.kernel import Found, Reach, RowIndex, smallest
from operators.neighbours.recall import SAMPLE, Truth, advice, check_size, draw, true_edges
from operators.points import Metric

MAX_EDGES = 2**28
N_NEIGHBORS = 5
"""Neighbours where neither ``eps`` nor ``n_neighbors`` is given, as in ``NearestNeighbors``."""
PAIRS = 1 << 21
"""Pairs of factored rows measured at once: some 16 MB for each of a few arrays."""


class NeighbourGraph(BaseEstimator):  # type: ignore[misc]
    """All pairs of rows within eps, the nearest rows of each, or the nearest within eps, found by FAISS.

    With ``index="flat"`` the graph is exact: every pair is decided in float64, as
    ``sum (x - y)^2 <= eps^2`` or ``1 - cos <= eps`` with unit rows. "ivf" and "hnsw" are faster and miss
    edges, but add no false ones: ``recall_`` says how many they find, and a warning names the
    parameter to raise when these are few.

    Sources: Johnson, Douze, Jegou, Billion-scale similarity search with GPUs, 2017 (flat, IVF); Malkov,
    Yashunin, Efficient and robust approximate nearest neighbor search using HNSW graphs, 2016.

    Parameters
    ----------
    index : "flat" (default; on the GPU where FAISS sees one), "ivf" or "hnsw".
    metric : "euclidean" (default), "cosine", or "centered_cosine": cosine after the mean of X is
        subtracted. Cosine distances are 1 - cos, in [0, 2]; a zero row lies at distance 1 from every row.
    eps : radius >= 0 within which rows are neighbours, or None.
    n_neighbors : number of nearest rows, >= 1, that are neighbours, or None. With ``eps`` as well, those
        of them within it: in dense data all pairs within a radius grow with n^2, the nearest with n. If
        both are None, the nearest 5.
    nprobe : IVF lists looked at per query, default 16 of about sqrt(n).
    ef_search : HNSW candidates kept per query, default 128.
    max_edges : largest graph to build, default 2^28 edges, which are 3 GiB. What the graph will have is
        known beforehand, from the true neighbours of 256 random rows.
    n_jobs : threads of the search, as in joblib; default 1. The result does not depend on it.
    random_state : int, RandomState or None: IVF's centroids, HNSW's layers, the sample behind ``recall_``.

    Attributes
    ----------
    indptr_, indices_, distances_ : the graph of the fitted rows in compressed sparse rows: (n + 1,) and (e,)
        int64, (e,) float32. A row is not its own neighbour; indices ascend within a row.
    graph_ : the same as one :class:`~operators.neighbours.graph.Graph`.
    recall_ : share of the true edges of 256 random rows that the graph holds; 1 for "flat".
    n_features_in_ : int: features seen by fit.

    Examples
    --------
    >>> import numpy as np
    >>> from operators.neighbours import NeighbourGraph
    >>> found = NeighbourGraph(eps=1.0).fit(np.array([[0.0], [1.0], [5.0]]))
    >>> found.indptr_, found.indices_, found.distances_
    (array([0, 1, 2, 2]), array([1, 0]), array([1., 1.], dtype=float32))
    """

    def __init__(
        self,
        index: Kind = "flat",
        metric: Metric = "euclidean",
        eps: float | None = None,
        n_neighbors: int | None = None,
        nprobe: int = 16,
        ef_search: int = 128,
        max_edges: int = MAX_EDGES,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.index = index
        self.metric = metric
        self.eps = eps
        self.n_neighbors = n_neighbors
        self.nprobe = nprobe
        self.ef_search = ef_search
        self.max_edges = max_edges
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> NeighbourGraph:
        """Build the index over the rows of X and find their neighbours among each other.

        Parameters
        ----------
        X : (n, p) numbers, finite. float32 is kept, other types become float64. Not copied. Or
            :class:`operators.factored.FactoredGradients` (``index="flat"`` only; takes no FAISS).
        y : ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError : a parameter is out of range, X is empty or not finite, the graph would have more than
            ``max_edges``, or X is factored and the index is not flat.
        ImportError : FAISS is not installed.
        """
        reach = self._reach()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if isinstance(X, FactoredGradients):
            self._fit_factored(X, reach, seed)
        else:
            self._fit_flat(validate_data(self, X, dtype=[np.float64, np.float32]), reach, seed)
        self.indptr_, self.indices_ = self.graph_.indptr, self.graph_.indices
        self.distances_ = self.graph_.distances
        if text := advice(self.index, self.recall_):
            warnings.warn(f"NeighbourGraph: {text}", stacklevel=2)
        return self

    def _fit_factored(self, X: FactoredGradients, reach: Reach, seed: int) -> None:
        if self.index != "flat":
            raise ValueError(
                f"NeighbourGraph: index is {self.index!r}, and X is factored gradients, which FAISS cannot "
                "index. Use index='flat', which compares all pairs by their factors, or flat gradients."
            )
        X.check_finite("X")
        rows = FactoredRows(X, self.metric)
        try:
            rows.check_size(reach, self.max_edges, seed)
        except ValueError as error:
            raise ValueError(f"NeighbourGraph: {error}") from None
        self.graph_, self.recall_ = rows.search(X, reach, np.arange(len(X))), 1.0
        self._rows: FactoredRows | RowIndex = rows
        self.n_features_in_ = X.shape[1]

    def _fit_flat(self, X: Matrix, reach: Reach, seed: int) -> None:
        with threads(effective_n_jobs(self.n_jobs)):
            geometry = Geometry.of(X, self.metric)
            truth = true_edges(X, geometry, reach, seed)
            try:
                check_size(truth, reach, self.max_edges)
            except ValueError as error:
                raise ValueError(f"NeighbourGraph: {error}") from None
            rows = RowIndex.build(
                X,
                self.index,
                geometry,
                nprobe=self.nprobe,
                ef_search=self.ef_search,
                seed=seed,
                n_neighbors=reach.n_neighbors,
            )
            self.graph_ = rows.search(X, reach, np.arange(len(X)))
            self.recall_ = 1.0 if self.index == "flat" else truth.share_found(self.graph_.take(truth.sample))
        self._rows = rows

    def query(self, X: Any, own: Ids | None = None) -> Graph:
        """Find the neighbours of other rows among the fitted ones.

        Parameters
        ----------
        X : (m, p) numbers, finite, or factored gradients, as fit was given.
        own : (m,) int, optional: position of each row among the fitted ones, -1 for none: it is not
            listed as its own neighbour.

        Returns
        -------
        Graph of m rows; its indices are positions of fitted rows.
        """
        check_is_fitted(self)
        if isinstance(X, FactoredGradients) != isinstance(self._rows, FactoredRows):
            raise ValueError("NeighbourGraph: fit and query take rows in the same form, factored or flat")
        if isinstance(self._rows, FactoredRows):
            X.check_finite("X")
            return self._rows.search(X, self._reach(), own)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        with threads(effective_n_jobs(self.n_jobs)):
            return self._rows.search(X, self._reach(), own)

    def _reach(self) -> Reach:
        neither = self.eps is None and self.n_neighbors is None
        try:
            return Reach(self.eps, N_NEIGHBORS if neither else self.n_neighbors)
        except ValueError as error:
            raise ValueError(f"NeighbourGraph: {error}") from None


class FactoredRows:
    """Search over factored rows, the counterpart of :class:`~operators.neighbours.kernel.RowIndex`.

    Parameters
    ----------
    gradients : n >= 1 rows.
    metric : "euclidean", "cosine" or "centered_cosine" (the mean of these rows is subtracted).
    """

    def __init__(self, gradients: FactoredGradients, metric: Metric) -> None:
        self._points, self._metric = FactoredPoints(gradients, metric), metric

    def check_size(self, reach: Reach, limit: int, seed: int) -> None:
        """Raise ValueError if the graph is expected to have more than ``limit`` edges."""
        sample = draw(self._points.n, SAMPLE, seed)
        found = self.search(self._points.gradients[sample], reach, sample)
        furthest = np.full(len(sample), np.inf, np.float32)
        check_size(Truth(sample, found.degrees, furthest, self._points.n), reach, limit)

    def search(self, queries: FactoredGradients, reach: Reach, own: Ids | None = None) -> Graph:
        """Find the neighbours of ``queries`` among the rows; parameters as in ``RowIndex.search``."""
        own = np.full(len(queries), -1, np.int64) if own is None else np.asarray(own)
        return gather(self._pieces(queries, reach, own), self._points.n, reach.eps, reach.n_neighbors)

    def _pieces(
        self, queries: FactoredGradients, reach: Reach, own: Ids
    ) -> Iterator[tuple[Ids, Ids, Float32]]:
        step = max(1, PAIRS // self._points.n)
        for start in range(0, len(queries), step):
            block = FactoredPoints(queries[start : start + step], self._metric, self._points.mean)
            measures = block.measures(self._points)
            listed = np.flatnonzero(own[start : start + step] >= 0)
            measures[listed, own[start + listed]] = np.inf  # a row is not its own neighbour
            found = self._near(measures, reach)
            apart = np.sqrt(found.measures) if self._metric == "euclidean" else found.measures
            yield np.bincount(found.rows, minlength=block.n), found.cols, apart.astype(np.float32)

    def _near(self, measures: Float64, reach: Reach) -> Found:
        """Return the pairs of a block within reach, by row and column."""
        limit = np.full(len(measures), np.finfo(np.float64).max)
        if reach.eps is not None:
            limit[:] = min(reach.eps, SQUARABLE) ** 2 if self._metric == "euclidean" else reach.eps
        k = reach.n_neighbors
        if k is not None and k < measures.shape[1]:
            limit = np.minimum(limit, np.partition(measures, k - 1, axis=1)[:, k - 1])
        rows, cols = np.nonzero(measures <= limit[:, None])
        found = Found(rows, cols, measures[rows, cols])
        if k is None:
            return found
        found = smallest(found, k)
        return found.where(np.lexsort((found.cols, found.rows)))
