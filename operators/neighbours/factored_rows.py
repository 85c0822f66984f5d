"""Neighbours of factored gradients: every pair is compared by its factors, in float64, without FAISS."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from operators.arrays import Float32, Float64, Ids
from operators.dbscan.points import Metric
from operators.factored import FactoredGradients
from operators.factored.points import FactoredPoints
from operators.neighbours.geometry import SQUARABLE
from operators.neighbours.graph import Graph, gather
from operators.neighbours.kernel import Found, Reach, smallest
from operators.neighbours.recall import SAMPLE, Truth, check_size, draw

PAIRS = 1 << 21  # pairs measured at once: some 16 MB each for a few arrays


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
        """Neighbours of ``queries`` among the rows; parameters as in ``RowIndex.search``."""
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
        """Pairs of a block within reach, by row and column."""
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
