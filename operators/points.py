"""Rows prepared for a metric, and exact decisions on pairs of them.

The search (:mod:`operators.dbscan.tiles`) computes inner products of prepared rows, whose rounding error is
bounded by :func:`rounding_error`. A pair that the bound leaves undecided is decided by
:meth:`PreparedRows.pairs_within` in float64. Labels therefore equal those that float64 alone would give.

:class:`Points` prepares the rows of a matrix; :class:`operators.factored.points.FactoredPoints` prepares
factored gradients. Both implement :class:`PreparedRows`, the interface that the search uses. Their
low-dimensional coordinates bound distances from below: with orthonormal directions V and the norm r of the
part of a row outside their span, ``|V'(x - y)|^2 + (r_x - r_y)^2 <= |x - y|^2``.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from operators.arrays import Float64, Index, Mask, Matrix

PANEL = 1024
"""Features that one product adds up. Short sums keep the error bound small, and with it the doubtful
pairs.
"""

Self = TypeVar("Self")


class Operand(Protocol):
    """Prepared rows in the form that is fastest for inner products."""

    def __len__(self) -> int: ...
    def take(self: Self, index: Tensor, /) -> Self:
        """Return the rows at the positions ``index``, in the same form."""
        ...

    def to(self: Self, device: torch.device, /) -> Self:
        """Return the rows in the memory of ``device``, in the same form."""
        ...

    def multiply(self: Self, other: Self, bias: Tensor, out: Tensor) -> None:
        """Write inner products plus ``bias`` (one per row of ``other``) to ``out`` (n, m)."""
        ...


@dataclass(frozen=True, eq=False)
class FlatRows:
    """Points as vectors, shape (n, p)."""

    vectors: Tensor

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, index: Tensor) -> FlatRows:
        """Return the rows at the positions ``index``."""
        return FlatRows(self.vectors.index_select(0, index))

    def to(self, device: torch.device) -> FlatRows:
        """Return the rows in the memory of ``device``."""
        return FlatRows(self.vectors.to(device))

    def multiply(self, other: FlatRows, bias: Tensor, out: Tensor) -> None:
        """Write inner products plus ``bias`` to ``out``, summed over panels of ``PANEL`` features."""
        a, b = self.vectors, other.vectors
        torch.addmm(bias, a[:, :PANEL], b[:, :PANEL].T, out=out)
        for start in range(PANEL, a.shape[1], PANEL):
            out.addmm_(a[:, start : start + PANEL], b[:, start : start + PANEL].T)


class PreparedRows(Protocol):
    """Interface of rows that are prepared for one metric; :class:`Points` documents the names."""

    n: int
    metric: Metric

    @property
    def depth(self) -> int:
        """Number of terms of a product."""
        ...

    @property
    def half(self) -> Matrix:
        """Half the squared norm (n,) of each row."""
        ...

    @property
    def size(self) -> Matrix:
        """Size (n,) of each row, to which the rounding error of its products is proportional."""
        ...

    def limit(self, eps: float) -> float:
        """Convert a radius to a gap."""
        ...

    def operand(self, dtype: Any) -> tuple[Operand, Matrix]:
        """Return all rows as one side of a product in ``dtype``, and half their squared norms (n,)."""
        ...

    def coordinates(self, rows: Index, random: np.random.Generator) -> Float64:
        """Return the coordinates (n, k + 1) of all rows along directions that tell ``rows`` apart."""
        ...

    def pairs_within(self, i: Index, j: Index, eps: Float64) -> Mask:
        """Return, decided in float64, whether rows ``i[k]`` and ``j[k]`` are within ``eps[k]``."""
        ...


DIRECTIONS = 8
"""Number of principal directions along which rows have coordinates."""
SWEEPS = 2
"""Iterations by which the directions are computed."""


def coordinates(vectors: npt.NDArray[Any], directions: Float64) -> Float64:
    """Return each row along k orthonormal directions, and the norm of the rest of it: (n, k + 1)."""
    at = np.empty((len(vectors), directions.shape[1] + 1))
    for start in range(0, len(vectors), 8192):
        some = slice(start, start + 8192)
        rows = vectors[some].astype(np.float64)
        along = rows @ directions
        left = np.einsum("ij,ij->i", rows, rows) - np.einsum("ij,ij->i", along, along)
        at[some, :-1] = along
        at[some, -1] = np.sqrt(np.maximum(left, 0.0))
    return at


def principal(sample: Float64, random: np.random.Generator) -> Float64:
    """Return the orthonormal directions (p, k) of largest second moment, by subspace iteration."""
    k = min(DIRECTIONS, sample.shape[1])
    guess = random.normal(size=(sample.shape[1], k))
    for _ in range(SWEEPS):
        guess = np.linalg.qr(sample.T @ (sample @ guess))[0]
    # Any orthonormal directions give a valid bound, so a rank-deficient sample needs no special case.
    return np.asarray(guess)


Metric: TypeAlias = Literal["euclidean", "cosine", "centered_cosine"]

METRICS: tuple[Metric, ...] = ("euclidean", "cosine", "centered_cosine")

PAIRS_AT_ONCE = 1 << 22
"""Largest number of float64 entries that are gathered at once when pairs are decided one by one."""
SPAN = 1 << 16
"""Rows that are added up before their sum is added to the total, so that spans can be summed in other
tasks.
"""


class Points:
    """Rows prepared for one metric.

    The distance of two rows is the Euclidean one, or 1 - cos, in [0, 2]. ``centered_cosine``
    subtracts the mean of all rows first. A zero row has no direction: as in scikit-learn its cosine
    distance is 1 to every other row, zero rows included.

    Parameters
    ----------
    X : (n, p) float32 or float64, finite; products run in its dtype.
    metric : "euclidean", "cosine" or "centered_cosine".

    Attributes
    ----------
    vectors : (n, p), dtype of X: unit rows for the cosine metrics (zero rows stay zero). For
        "euclidean", rows moved to the mean and divided by one power of two, so that no square over-
        or underflows; their distances are the true ones divided by ``unit``.
    half : (n,): half the squared norm of each of ``vectors``; 1/2 throughout for the cosine metrics.
    centre : (p,) float64 that was subtracted from each row; zeros for "cosine".

    Raises
    ------
    ValueError : unknown metric, or X without rows or columns.
    """

    def __init__(self, X: Matrix, metric: Metric) -> None:
        if metric not in METRICS:
            raise ValueError(f"metric is {metric!r}; use one of {', '.join(METRICS)}")
        if 0 in X.shape:
            raise ValueError(f"X has shape {X.shape}; give at least one row and one column")
        self.metric = metric
        self.n, n_features = X.shape
        self._X = X
        self.centre = np.zeros(n_features) if metric == "cosine" else mean_row(X)
        self.unit = 1.0
        if metric == "euclidean":
            largest = max(float(np.abs(X[rows] - self.centre).max()) for rows in blocks(self.n))
            self.unit = power_of_two_above(largest) * power_of_two_above(np.sqrt(n_features))
        self.vectors: Matrix = np.empty(X.shape, X.dtype)
        for rows in blocks(self.n):
            self.vectors[rows] = self.prepared(rows)
        self.half: Matrix = self._half_norms(self.vectors).astype(X.dtype)

    def prepared(self, rows: Index) -> Float64:
        """Return ``vectors[rows]`` before rounding to the dtype of X."""
        if self.metric == "euclidean":
            return np.asarray((self._X[rows] - self.centre) / self.unit)
        return unit_rows(self._X[rows], self.centre)

    def take(self, rows: Index) -> Points:
        """Return some of the rows, prepared with the centre and the unit of all of them."""
        part = copy(self)
        part.n, part._X = len(rows), self._X[rows]
        part.vectors, part.half = self.vectors[rows], self.half[rows]
        return part

    @property
    def depth(self) -> int:
        """Terms in the sum behind a product; bounds its rounding."""
        return int(self.vectors.shape[1])

    @property
    def size(self) -> Matrix:
        """Size (n,) of each row: a product of two rows is rounded in proportion to the sum of their sizes."""
        return self.half

    def operand(self, dtype: Any) -> tuple[Operand, Matrix]:
        """Return all rows as one side of a product in ``dtype``, and half their squared norms."""
        wide = dtype == np.float64
        vectors, half = self.in_float64() if wide else (self.vectors, self.half)
        rows = torch.from_numpy(vectors.astype(dtype, copy=False))
        return FlatRows(rows), half.astype(dtype, copy=False)

    def coordinates(self, rows: Index, random: np.random.Generator) -> Float64:
        """Return the coordinates (n, k + 1) of all rows along directions that tell ``rows`` apart."""
        return coordinates(self.vectors, principal(self.vectors[rows].astype(np.float64), random))

    def in_float64(self) -> tuple[Float64, Float64]:
        """Return ``vectors`` and ``half`` before rounding to the dtype of X."""
        vectors = np.concatenate([self.prepared(rows) for rows in blocks(self.n)])
        return vectors, self._half_norms(vectors)

    def limit(self, eps: float) -> float:
        """Convert a radius to a gap."""
        return gap_of(eps, self.unit, self.metric)

    def pairs_within(self, i: Index, j: Index, eps: Float64) -> Mask:
        """Return whether the distance of rows ``i[k]`` and ``j[k]`` is at most ``eps[k]``, decided in
        float64: (len(i),).
        """
        step = max(1, PAIRS_AT_ONCE // self._X.shape[1])
        inside = np.empty(len(i), np.bool_)
        for start in range(0, len(i), step):
            some = slice(start, start + step)
            inside[some] = self._within_exactly(i[some], j[some], eps[some])
        return inside

    def _within_exactly(self, i: Index, j: Index, eps: Float64) -> Mask:
        if self.metric == "euclidean":
            difference = self._X[i].astype(np.float64) - self._X[j].astype(np.float64)
            return np.asarray(np.einsum("ij,ij->i", difference, difference) <= eps**2)
        cosine = np.einsum("ij,ij->i", self.prepared(i), self.prepared(j))
        return np.asarray(np.minimum(1.0 - cosine, 2.0) <= eps)

    def _half_norms(self, vectors: Matrix) -> Float64:
        if self.metric != "euclidean":
            return np.full(len(vectors), 0.5)
        return np.concatenate([_squared_norms(vectors[b]) / 2 for b in blocks(len(vectors))])


@dataclass(frozen=True, eq=False)
class EqualRows:
    """The m different rows among n rows.

    Attributes
    ----------
    first : (m,) position of the first occurrence of each different row, ascending.
    kind : (n,) index of each row among the different rows.
    counts : (m,) float64 number of occurrences.
    """

    first: Index
    kind: Index
    counts: Float64


def equal_rows(points: Points) -> EqualRows:
    """Find rows that are equal, bit by bit.

    Under the cosine metrics zero rows count as different, since each is at distance 1 from all others. DBSCAN
    of the different rows, weighted by their counts, gives the same labels as DBSCAN of all rows, since they
    are in the order of their first occurrence.
    """
    X = np.ascontiguousarray(points._X)
    words = X.view(np.dtype((np.void, X.dtype.itemsize * X.shape[1]))).ravel()
    _, first, kind = np.unique(words, return_index=True, return_inverse=True)
    lowest = first[kind.ravel()]
    if points.metric != "euclidean":
        zero = ~points.vectors.any(axis=1)
        lowest = np.where(zero, np.arange(points.n), lowest)
    first, kind, counts = np.unique(lowest, return_inverse=True, return_counts=True)
    return EqualRows(first, kind.ravel(), counts.astype(np.float64))


def unit_rows(X: Matrix, centre: Float64) -> Float64:
    """Return rows of X minus ``centre``, each divided by its norm, (n, p) float64; zero rows stay zero."""
    moved = X - centre
    norm = np.sqrt(_squared_norms(moved))[:, None]
    # The difference of a row and an equal centre is a rounding error, not a direction.
    norm[norm <= 4 * np.finfo(np.float64).eps * np.linalg.norm(centre)] = 0.0
    return np.divide(moved, norm, out=np.zeros_like(moved), where=norm > 0)


def blocks(n: int, size: int = 2048) -> list[Index]:
    """Divide ``arange(n)`` into pieces of at most ``size``."""
    return [np.arange(start, min(start + size, n)) for start in range(0, n, size)]


def mean_row(X: Matrix) -> Float64:
    """Return the mean (p,), float64, of the rows; it is exact if all rows are equal."""
    first = X[0].astype(np.float64)
    total = sum(span_sum(X[start : start + SPAN], first) for start in range(0, len(X), SPAN))
    return np.asarray(first + total / len(X))


def span_sum(X: Matrix, first: Float64) -> Float64:
    """Return the sum (p,), float64, of at most SPAN rows, each less ``first``: a term of :func:`mean_row`."""
    return np.asarray(sum((X[rows].astype(np.float64) - first).sum(axis=0) for rows in blocks(len(X))))


def gap_of(eps: float, unit: float, metric: Metric) -> float:
    """Return the gap of two rows at the distance ``eps``, where distances are stored in units of ``unit``."""
    # No distance exceeds 2 in these units; the cap keeps the square finite in float32.
    scaled = min(float(eps) / unit, 4.0)
    return scaled**2 / 2 if metric == "euclidean" else scaled


def rounding_error(n_features: int, dtype: Any) -> float:
    """Return a bound of |gap - exact gap| / (half_i + half_j).

    The error of a sum of k products is at most k unit roundoffs, in any order of summation; casts, norms and
    the last additions add fewer than 16. One machine epsilon is two unit roundoffs, so the bound is twice as
    large as needed, which also covers the rounding of the exact decision itself.
    """
    panels = -(-n_features // PANEL)
    return (min(n_features, PANEL) + panels + 16) * float(np.finfo(dtype).eps)


def smallest(n_features: int, dtype: Any) -> float:
    """Return a bound of the error of a gap that products which underflow cause."""
    return n_features * float(np.finfo(dtype).tiny)


def _squared_norms(X: Matrix) -> Float64:
    X = X.astype(np.float64, copy=False)
    return np.asarray(np.einsum("ij,ij->i", X, X))


def power_of_two_above(value: float) -> float:
    """Return the smallest power of two that is at least ``value``; 1 for 0."""
    return float(2.0 ** np.ceil(np.log2(value))) if value > 0 else 1.0
