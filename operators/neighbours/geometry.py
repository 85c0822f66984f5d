"""Comparison of two rows by a metric: in float32 for an index, in float64 for the decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from operators.arrays import Float32, Float64, Matrix
from operators.points import METRICS, Metric, blocks, mean_row, unit_rows

FAR = 1e6
"""Largest entry of a query in units; larger ones are moved to it, so that no square overflows."""
LARGEST = 1e18
"""Largest radius in units whose square float32 holds."""
SQUARABLE = 1e154
"""Largest distance whose square float64 holds."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """A metric together with the centre and unit with which it prepares rows.

    Three scales of one comparison: the *distance* a caller sees; the *measure*, which decides in
    float64 (squared distance for "euclidean", else the distance 1 - cos itself); and the *gap*, which
    an index computes in float32 from prepared rows (the measure, for "euclidean" in units).

    Attributes
    ----------
    metric : "euclidean", "cosine" or "centered_cosine"; a zero row has no direction and lies at
        distance 1 from every row under the last two.
    centre : (p,) float64 subtracted from every row; zeros for "cosine".
    unit : power of two by which "euclidean" divides rows, so that no square over- or underflows.
    """

    metric: Metric
    centre: Float64
    unit: float = 1.0

    @classmethod
    def of(cls, X: Matrix, metric: Metric) -> Geometry:
        """Learn centre and unit from (n, p) rows, n >= 1. Raises ValueError for an unknown metric."""
        if metric not in METRICS:
            raise ValueError(f"metric is {metric!r}; use one of {', '.join(METRICS)}")
        centre = np.zeros(X.shape[1]) if metric == "cosine" else mean_row(X)
        if metric != "euclidean":
            return cls(metric, centre)
        largest = max(float(np.abs(X[rows] - centre).max()) for rows in blocks(len(X)))
        size = largest * float(np.sqrt(X.shape[1]))
        return cls(metric, centre, float(2.0 ** np.ceil(np.log2(size))) if size > 0 else 1.0)

    def prepared(self, X: Matrix) -> Float32:
        """Return the rows (n, p), float32, for an index: unit rows, or rows about the centre in units."""
        if self.metric != "euclidean":
            return unit_rows(X, self.centre).astype(np.float32)
        # Fitted rows lie within one unit: moving a far query into the box brings it nearer to all of them.
        return np.clip((X - self.centre) / self.unit, -FAR, FAR).astype(np.float32)

    def exact(self, X: Matrix) -> Float64:
        """Return the rows (n, p), float64, for the decision: unit rows, or the rows themselves."""
        return X.astype(np.float64) if self.metric == "euclidean" else unit_rows(X, self.centre)

    def measures(self, A: Float64, B: Float64) -> Float64:
        """Return the measure (n,), float64, of each pair of ``exact`` rows, as in operators.dbscan."""
        if self.metric == "euclidean":
            difference = A - B
            return np.asarray(np.einsum("ij,ij->i", difference, difference))
        return np.asarray(np.clip(1.0 - np.einsum("ij,ij->i", A, B), 0.0, 2.0))

    def measure(self, distance: float) -> float:
        """Convert a distance to a measure."""
        return min(distance, SQUARABLE) ** 2 if self.metric == "euclidean" else distance

    def distances(self, measures: Float64) -> Float64:
        """Convert measures to distances."""
        return np.sqrt(measures) if self.metric == "euclidean" else measures

    def gaps(self, measures: Any) -> Any:
        """Convert measures to gaps."""
        if self.metric != "euclidean":
            return measures
        return np.minimum(np.sqrt(measures) / self.unit, LARGEST) ** 2

    def error(self, queries: Float32) -> float:
        """Return a bound on the rounding error of every gap between prepared ``queries`` q and fitted rows.

        A float32 sum of p products errs by at most p unit roundoffs of the sum of their sizes, in whatever
        order a library takes them (Higham, Accuracy and stability of numerical algorithms, section 3.1).
        Casts, norms and the last additions need fewer than 16. The sizes of the products of a squared
        distance from a row no longer than 1 sum to at most 2 (1 + |q|^2), those of an inner product to less;
        an epsilon is two unit roundoffs.
        """
        info, p = np.finfo(np.float32), queries.shape[1]
        # Fitted rows are no longer than 1, neither are queries under cosine.
        squares = np.einsum("ij,ij->i", queries, queries, dtype=np.float64)
        return float((p + 16) * float(info.eps) * (1.0 + squares.max(initial=1.0)) + p * float(info.tiny))
