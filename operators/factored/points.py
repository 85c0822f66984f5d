"""Factored gradients as the points of an exact DBSCAN, without forming flat gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from operators.arrays import Float64, Index, Matrix
from operators.factored.gradients import LOST, FactoredGradients, MeanGradient
from operators.points import DIRECTIONS, METRICS, PANEL, Metric, gap_of, power_of_two_above

LANDMARKS = 64
"""Rows in whose span the directions of the low-dimensional coordinates lie."""
RESOLVED = 1e-6
"""A direction with an eigenvalue below this share of the largest is a rounding error."""
PAIRS_AT_ONCE = 1 << 16
"""Pairs that are decided at once."""


@dataclass(frozen=True, eq=False)
class FactoredOperand:
    """Prepared rows u (G - m) as factors.

    <u G - u m, u' G' - u' m> = <u G, u' G'> - s u' - u s' with s = u (<G, m> - |m|^2 / 2). With t = a power
    of two above all u, s t and u / t stand for s and u: their products are the same, and u alone may be more
    than float32 holds.

    Attributes
    ----------
    activations, errors : per layer; a 1 in the bias's place among the activations, errors times u.
    scale, shift : (n, 2): (u / t, s t) and (-s t, -u / t).
    """

    activations: tuple[Tensor, ...]
    errors: tuple[Tensor, ...]
    scale: Tensor
    shift: Tensor

    @classmethod
    def of(cls, gradients: FactoredGradients, u: Float64, s: Float64, dtype: Any) -> FactoredOperand:
        """Make the operand of all rows, in ``dtype`` (numpy)."""
        pairs = [layer.widened(dtype) for layer in gradients.layers]
        # Multiplied in float64, because s was computed from the unrounded u.
        errors = [(layer.errors * u[:, None]).astype(dtype) for layer in gradients.layers]
        unit = power_of_two_above(float(u.max()))
        u, s = u / unit, s * unit
        columns = [np.column_stack(pair).astype(dtype) for pair in ((u, s), (-s, -u))]
        return cls(
            tuple(torch.from_numpy(a) for a, _ in pairs),
            tuple(torch.from_numpy(d) for d in errors),
            *(torch.from_numpy(part) for part in columns),
        )

    def take(self, index: Tensor) -> FactoredOperand:
        """Return the rows at the positions ``index``."""
        return FactoredOperand(
            tuple(part.index_select(0, index) for part in self.activations),
            tuple(part.index_select(0, index) for part in self.errors),
            self.scale.index_select(0, index),
            self.shift.index_select(0, index),
        )

    def to(self, device: torch.device) -> FactoredOperand:
        """Return the rows in the memory of ``device``."""
        return FactoredOperand(
            tuple(part.to(device) for part in self.activations),
            tuple(part.to(device) for part in self.errors),
            self.scale.to(device),
            self.shift.to(device),
        )

    def __len__(self) -> int:
        return len(self.scale)

    def multiply(self, other: FactoredOperand, bias: Tensor, out: Tensor) -> None:
        """Write inner products plus ``bias`` (one per row of ``other``) to ``out`` (n, m)."""
        torch.addmm(bias, self.shift, other.scale.T, out=out)
        by_activation, by_error = torch.empty_like(out), torch.empty_like(out)
        for a, d, b, e in zip(self.activations, self.errors, other.activations, other.errors, strict=True):
            torch.mm(d, e.T, out=by_error)
            torch.mm(a[:, :PANEL], b[:, :PANEL].T, out=by_activation)
            for start in range(PANEL, a.shape[1], PANEL):
                by_activation.addmm_(a[:, start : start + PANEL], b[:, start : start + PANEL].T)
            out.addcmul_(by_activation, by_error)


class FactoredPoints:
    """Prepared factored rows, the counterpart of :class:`operators.points.Points` for flat rows.

    A prepared row is u (G - m): m is the class mean for "centered_cosine", else 0; u is 1 / |G - m| for
    the cosine metrics, else one power of two for all rows. Inner products of prepared rows follow from
    those of the gradients, <G, m> and |m|^2. A row within 3e-7 of the mean, relative to both norms, counts as
    equal to it: the difference is a rounding error of float64.

    Parameters
    ----------
    gradients : n rows, finite.
    metric : "euclidean", "cosine" or "centered_cosine".
    mean : mean that "centered_cosine" subtracts; by default that of these rows.

    Attributes
    ----------
    n : rows.
    mean : what was subtracted, or None.
    depth : terms in the longest sum behind a product; bounds its rounding.
    half : (n,) half the squared norm of the prepared rows; 1/2 for the cosine metrics.
    size : (n,) what the rounding of a product is proportional to, as half is for flat rows.

    Raises
    ------
    ValueError : unknown metric, or no rows.
    """

    def __init__(
        self, gradients: FactoredGradients, metric: Metric, mean: MeanGradient | None = None
    ) -> None:
        if metric not in METRICS:
            raise ValueError(f"metric is {metric!r}; use one of {', '.join(METRICS)}")
        if not len(gradients):
            raise ValueError(f"gradients have shape {gradients.shape}; give at least one row")
        self.metric, self.gradients, self.n = metric, gradients, len(gradients)
        self.depth = 2 + sum(layer.depth for layer in gradients.layers)
        centred = metric == "centered_cosine"
        self.mean: MeanGradient | None = (mean or gradients.mean()) if centred else None
        squares = gradients.squared_norms()
        self._toward = self.mean.products(gradients) if self.mean else np.zeros(self.n)
        self._mean_square = self.mean.squared_norm() if self.mean else 0.0
        self.unit = power_of_two_above(float(np.sqrt(squares.max()))) if metric == "euclidean" else 1.0
        self.scale = self._scales(squares)
        reach = np.sqrt(squares) + np.sqrt(self._mean_square)
        self.size: Float64 = (reach * self.scale) ** 2 / 2
        euclidean = metric == "euclidean"
        self.half: Float64 = squares * self.scale**2 / 2 if euclidean else np.full(self.n, 0.5)

    def _scales(self, squares: Float64) -> Float64:
        if self.metric == "euclidean":
            return np.full(self.n, 1 / self.unit)
        left = squares - 2 * self._toward + self._mean_square
        left[left <= LOST * (squares + self._mean_square)] = 0.0
        return np.divide(1.0, np.sqrt(left), out=np.zeros(self.n), where=left > 0)

    def operand(self, dtype: Any) -> tuple[FactoredOperand, Matrix]:
        """Return all rows as one side of a product in ``dtype``, and half their squared norms."""
        shift = (self._toward - self._mean_square / 2) * self.scale
        rows = FactoredOperand.of(self.gradients, self.scale, shift, dtype)
        return rows, self.half.astype(dtype)

    def limit(self, eps: float) -> float:
        """Convert a radius to a gap."""
        return gap_of(eps, self.unit, self.metric)

    def products(self, rows: Index, cols: Index) -> Float64:
        """Return the inner products (len(rows), len(cols)), float64, of prepared rows."""
        found = self.gradients[rows].products(self.gradients[cols])
        found += self._mean_square - self._toward[rows, None] - self._toward[cols]
        found *= self.scale[rows, None] * self.scale[cols]
        return found

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the flat gradients: (n, entries of a gradient)."""
        return self.n, self.gradients.shape[1]

    def distances(self, rows: Index, cols: Index) -> Float64:
        """Return the Euclidean distances (len(rows), len(cols)) of prepared rows, 0 between equal ones."""
        # A row without a direction is the origin here, as for flat rows; to DBSCAN its cosines are 0.
        half = np.where(self.scale > 0, self.half, 0.0)
        gaps = half[rows, None] + half[cols] - self.products(rows, cols)
        # The gap of equal rows is a rounding error, which the root would magnify.
        gaps[gaps <= LOST * (self.size[rows, None] + self.size[cols])] = 0
        return np.asarray(np.sqrt(2 * gaps))

    def measures(self, other: FactoredPoints) -> Float64:
        """Return (n, m) float64 squared distances ("euclidean") or 1 - cos to points of the same metric and
        mean.
        """
        found = self.gradients.products(other.gradients)
        found += self._mean_square - self._toward[:, None] - other._toward
        if self.metric != "euclidean":
            return np.asarray(np.clip(1.0 - found * self.scale[:, None] * other.scale, 0.0, 2.0))
        squares = [2 * points.half * points.unit**2 for points in (self, other)]
        both = squares[0][:, None] + squares[1]
        apart = both - 2 * found
        apart[apart <= LOST * both] = 0.0
        return np.asarray(apart)

    def pairs_within(self, i: Index, j: Index, eps: Float64) -> npt.NDArray[np.bool_]:
        """Return whether the distance of rows ``i[k]`` and ``j[k]`` is at most ``eps[k]``, decided in
        float64: (len(i),).
        """
        inside = np.empty(len(i), np.bool_)
        for start in range(0, len(i), PAIRS_AT_ONCE):
            some = slice(start, start + PAIRS_AT_ONCE)
            inside[some] = self._reach(self._pair_gaps(i[some], j[some]), eps[some])
        return inside

    def coordinates(self, rows: Index, random: np.random.Generator) -> Float64:
        """Return every prepared row along k orthonormal directions, and the norm of the rest: (n, k + 1).

        The directions are the principal ones of some landmarks, within their span: a row's coordinates
        follow from its products with them, as in the Nystrom method.
        """
        landmarks = random.choice(np.unique(rows), min(LANDMARKS, len(np.unique(rows))), replace=False)
        values, vectors = np.linalg.eigh(self.products(landmarks, landmarks))
        kept = np.flatnonzero(values > RESOLVED * values[-1])[::-1][:DIRECTIONS]
        weights = vectors[:, kept] / np.sqrt(values[kept])
        at = np.empty((self.n, len(kept) + 1))
        for start in range(0, self.n, 4096):
            some = np.arange(start, min(start + 4096, self.n))
            along = self.products(some, landmarks) @ weights
            left = 2 * self.half[some] - np.einsum("ij,ij->i", along, along)
            at[some, :-1], at[some, -1] = along, np.sqrt(np.maximum(left, 0.0))
        return at

    def _pair_gaps(self, i: Index, j: Index) -> Float64:
        found = self.gradients[i].pair_products(self.gradients[j])
        found += self._mean_square - self._toward[i] - self._toward[j]
        return np.asarray(self.half[i] + self.half[j] - found * self.scale[i] * self.scale[j])

    def _reach(self, gaps: Float64, eps: Any) -> Any:
        if self.metric == "euclidean":
            return 2 * gaps * self.unit**2 <= np.square(eps)
        return np.minimum(gaps, 2.0) <= eps
