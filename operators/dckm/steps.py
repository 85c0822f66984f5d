"""Steps of DCKM on the rows of one shard, each of which returns sums.

Weights are w = omega^2 (equation 16), so that they are never negative. Each step reads a shard's rows and
their :class:`RowState` and returns the next state and sums; :func:`add` adds the sums of two shards.

Along a line omega = y - r g, w = y^2 - 2 r y g + r^2 g^2, so all sums are polynomials in the step size r. The
sums under y^2, -2 y g and g^2 give the objective at every step size, and backtracking reads no rows.

The starts of k-means++ (Arthur & Vassilvitskii 2007) are drawn without an order of the rows: the row with the
smallest -log(u_i) / D_i^2 is a draw with probabilities proportional to D_i^2, as the least of independent
exponential times. The u_i are hashes of the row ids, so the draw does not depend on shards. scikit-learn's
``kmeans_plusplus`` needs all rows in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from operators.arrays import Float64, Integers, Labels
from operators.dckm.balance import Coded, Derivative, Moments, gram, moments, row_gradient, total
from operators.distances import nearest_centres
from operators.hashing import row_hashes, uniform

S = TypeVar("S")


class Clusters(NamedTuple):
    """Sums of w z, (..., K, d), and of w, (..., K), over the rows of each cluster."""

    sums: Float64
    weights: Float64

    def centres(self, fallback: Float64) -> Float64:
        """Return the means (K, d) of equation 10. A cluster without weight has its row of ``fallback``."""
        kept = self.weights > 1e-9 * self.weights.sum()
        return np.divide(self.sums, self.weights[:, None], out=fallback.copy(), where=kept[:, None])


@dataclass(frozen=True)
class RowState:
    """State of the n rows of a shard between steps; all arrays are (n,).

    Attributes
    ----------
    omega : root of the weight, of either sign.
    ahead : y = omega + momentum (omega - omega before), where the gradient is taken.
    gradient : gradient of the objective at y.
    labels, error : nearest centre, and squared distance to it; 0 without clusters.
    """

    omega: Float64
    ahead: Float64
    gradient: Float64
    labels: Labels
    error: Float64


class InitialSums(NamedTuple):
    """Sums of :func:`initialise`, each row counting once."""

    gram: Float64
    total: Float64
    clusters: Clusters


class GradientSums(NamedTuple):
    """Sums of :func:`assign_rows`, from which the objective at y follows."""

    moments: Moments
    error: Float64
    """Sum of w error at y."""
    square: Float64
    """Sum of w^2 at y."""
    error_before: Float64
    """Sum of w error at omega."""


class LineSums(NamedTuple):
    """Sums of :func:`compute_gradient`, under -2 y g and g^2 or as coefficients of the step size's powers."""

    first: Moments
    second: Moments
    error: Float64
    """(3,) coefficients of the sum of w error."""
    square: Float64
    """(5,) coefficients of the sum of w^2."""
    clusters: Clusters
    """(3, K, d) and (3, K) coefficients."""


class FinalSums(NamedTuple):
    """Sums of :func:`finish`, under the final weights."""

    gram: Float64
    total: Float64
    weight: Float64
    square: Float64
    sizes: Float64


class Slope(NamedTuple):
    """Quantities from which, with a row, the derivative of the objective by its weight is computed."""

    derivative: Derivative
    """Derivative of the balance cost by the four sums."""
    lambda1: float
    lambda2: float
    common: float
    """2 lambda3 (sum w - 1), the same for all rows."""


def add(first: S, second: S) -> S:
    """Add the sums of two sets of rows."""
    parts: Any = first, second
    if isinstance(first, tuple):
        return type(first)(*map(add, *parts))
    found: S = parts[0] + parts[1]
    return found


def initialise(
    coded: Coded, row_ids: Integers, n_clusters: int, start: float, seed: int
) -> tuple[RowState, InitialSums]:
    """Return the state with weight ``start``^2 for all rows and a random partition, and its sums.

    The partition is a hash of seed and row id, so it does not depend on shards.
    """
    n = len(coded)
    labels = (row_hashes(row_ids, seed, "dckm/partition") % np.uint64(max(n_clusters, 1))).astype(np.int32)
    omega, nothing, ones = np.full(n, start), np.zeros(n), np.ones(n)
    sums = InitialSums(
        gram(coded, ones), total(coded, ones), _clusters(coded, labels, ones[None], n_clusters)
    )
    return RowState(omega, omega, nothing, labels, nothing), sums


def assign_rows(
    coded: Coded, state: RowState, centres: Float64 | None, step: float | None, momentum: float
) -> tuple[RowState, GradientSums]:
    """Take the chosen step, assign rows to centres, and extrapolate to y.

    Parameters
    ----------
    centres : (K, d), or None without clusters.
    step : size of the step from y against the gradient; None stays at omega.
    momentum : factor of the extrapolation y = omega + momentum (omega - omega before).
    """
    omega = state.omega if step is None else state.ahead - step * state.gradient
    ahead = omega + momentum * (omega - state.omega)
    labels, error = (state.labels, state.error) if centres is None else nearest(coded, centres)
    w = ahead**2
    sums = GradientSums(moments(coded, w), np.array(w @ error), np.array(w @ w), np.array(omega**2 @ error))
    return RowState(omega, ahead, state.gradient, labels, error), sums


def compute_gradient(
    coded: Coded, state: RowState, slope: Slope, n_clusters: int
) -> tuple[RowState, LineSums]:
    """Return the state with the gradient at y (equation 17), and the sums along the line y - r g."""
    y = state.ahead
    by_weight = slope.lambda1 * row_gradient(coded, slope.derivative) + 2 * slope.lambda2 * y**2
    # Equation 17 lacks the factor 2 of the first term; see the module operators.dckm.kernel.
    g = 2 * y * (state.error + by_weight + slope.common)
    powers = np.stack([y**2, -2 * y * g, g**2])
    cross = powers @ powers.T
    line = LineSums(
        moments(coded, powers[1]),
        moments(coded, powers[2]),
        powers @ state.error,
        np.array([cross[0, 0], 2 * cross[0, 1], cross[1, 1] + 2 * cross[0, 2], 2 * cross[1, 2], cross[2, 2]]),
        _clusters(coded, state.labels, powers, n_clusters),
    )
    return RowState(state.omega, y, g, state.labels, state.error), line


def finish(
    coded: Coded, state: RowState, centres: Float64 | None, step: float
) -> tuple[Float64, Labels, FinalSums]:
    """Return weights (n,) and labels (n,) after the last step, and the sums under these weights."""
    w = (state.ahead - step * state.gradient) ** 2
    labels = state.labels if centres is None else nearest(coded, centres)[0]
    sizes = np.bincount(labels, minlength=0 if centres is None else len(centres)).astype(np.float64)
    sums = FinalSums(gram(coded, w), total(coded, w), np.array(w.sum()), np.array(w @ w), sizes)
    return w, labels, sums


def nearest(coded: Coded, centres: Float64) -> tuple[Labels, Float64]:
    """Return the nearest centre (n,) of each row (equation 14) and the squared distance (n,) to it.

    Of equally near centres it is the first.
    """
    labels, error = np.empty(len(coded), np.int32), np.empty(len(coded))
    for rows, block in coded.blocks():
        Z = block.astype(np.float64)
        labels[rows], gaps = nearest_centres(Z, centres)
        error[rows] = np.maximum(gaps + np.einsum("ij,ij->i", Z, Z), 0.0)
    return labels, error


def _clusters(coded: Coded, labels: Labels, weights: Float64, n_clusters: int) -> Clusters:
    """Return the sums of clusters under each of m weightings (m, n), without the leading axis if m = 1."""
    m = len(weights)
    sums, mass = np.zeros((m * n_clusters, coded.width)), np.zeros(m * n_clusters)
    for rows, Z in coded.blocks() if n_clusters else ():
        member = np.eye(n_clusters)[labels[rows]]
        share = (weights[:, rows, None] * member).transpose(0, 2, 1).reshape(m * n_clusters, -1)
        sums += share @ Z.astype(np.float64)
        mass += share.sum(axis=1)
    shape = (m, n_clusters) if m > 1 else (n_clusters,)
    return Clusters(sums.reshape(*shape, coded.width), mass.reshape(shape))


class Candidate(NamedTuple):
    """The row of a shard that k-means++ may draw."""

    time: float
    """-log(u) / D^2; the smallest over all shards is drawn."""
    row_id: int
    row: Float64
    """(d,) codes of the row."""


def candidate(coded: Coded, row_ids: Integers, centres: Float64, seed: int) -> Candidate:
    """Return the candidate of a shard (n >= 1 rows) for the next centre after ``centres`` (k, d).

    For k = 0 all rows are equally likely.
    """
    squares = nearest(coded, centres)[1] if len(centres) else np.ones(len(coded))
    with np.errstate(divide="ignore"):
        times = -np.log(uniform(row_hashes(row_ids, seed + len(centres), "dckm/k-means++"))) / squares
    first = int(times.argmin())
    return Candidate(float(times[first]), int(row_ids[first]), coded.Z[first].astype(np.float64))


def earlier(first: Candidate, second: Candidate) -> Candidate:
    """Return the candidate with the smaller time; of equal times, the one with the smaller row id."""
    return min(first, second, key=lambda found: (found.time, found.row_id))
