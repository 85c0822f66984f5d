"""Constrained kernel k-means with two clusters (Napoli and White 2024, section 1.3).

The iteration reads the rows only through :class:`SplitRows`, whose methods return sums; the rows may lie in
memory or in shards. With S the sum of phi over all n rows and S_V the sum over the v validation rows, the
k-means objective (equation 4) is SS - between, where SS = sum |phi - mean|^2 and
between = v (n - v) / n MMD^2. A step therefore needs S_V alone, and the objective falls where ``between``
rises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from operators.arrays import Float64 as Vector

H = TypeVar("H")
"""Type that identifies the chosen rows: a mask in memory, thresholds over shards."""


@dataclass(frozen=True, eq=False)
class ValidationRows(Generic[H]):
    """The rows that a step assigns to validation."""

    total: Vector
    """Sum of phi over them."""
    count: int
    selection: H
    """Identifies these rows: a mask in memory, thresholds over shards."""


class SplitRows(Protocol[H]):
    """Rows as the iteration reads them, in memory or in shards."""

    n: int
    """Number of rows."""
    total: Vector
    """S, the sum of phi over all rows."""

    def inner(self, a: Vector, b: Vector) -> float:
        """Return <a, b> in the space of phi."""
        ...

    def choose(self, direction: Vector, offset: float) -> tuple[ValidationRows[H], ValidationRows[H]]:
        """Choose the best validation rows for the gains -2 <phi, direction> + offset, and for minus these."""
        ...


class Centroids(NamedTuple):
    """Centroids of two clusters. Those of a fit belong to validation and training rows, in this order."""

    first: Vector
    second: Vector


@dataclass(frozen=True, eq=False)
class Fit(Generic[H]):
    """State after the last step of an iteration.

    Attributes
    ----------
    chosen : the validation rows.
    rule : (direction, offset, sign): the last step took the rows with the smallest
        sign * (-2 <phi, direction> + offset).
    between : v (n - v) / n MMD^2 after each step, rising.
    centroids : of validation and training rows.
    """

    chosen: ValidationRows[H]
    rule: tuple[Vector, float, int]
    between: list[float]
    centroids: Centroids


def mmd_of(rows: SplitRows[H], chosen: ValidationRows[H]) -> float:
    """Return the distance between the means of validation and training rows in the space of phi."""
    return _mmd(rows, means(rows, chosen))


def means(rows: SplitRows[H], chosen: ValidationRows[H]) -> Centroids:
    """Return the centroids of validation and training rows. Raises ValueError if a part is empty."""
    rest = rows.n - chosen.count
    if not 0 < chosen.count < rows.n:
        raise ValueError(
            f"the tolerance lets validation take {chosen.count} of {rows.n} rows, which leaves one part "
            "empty. Lower it."
        )
    return Centroids(chosen.total / chosen.count, (rows.total - chosen.total) / rest)


def iterate(rows: SplitRows[H], start: Centroids, max_iter: int) -> Fit[H]:
    """Alternate assignment and centroid update until the objective no longer falls, at most ``max_iter``
    times.

    Each step solves the program of equations 5 to 8 for j = 1 and for j = 2, that is, with either centroid as
    the validation one, and keeps the cheaper solution. The objective cannot rise, because the previous
    assignment is a feasible solution of every step.
    """
    best: Fit[H] | None = None
    centroids = start
    for _ in range(max_iter):
        found = _step(rows, centroids)
        size = found.chosen.count
        between = size * (rows.n - size) / rows.n * _mmd(rows, found.centroids) ** 2
        if best and between <= best.between[-1]:
            break
        best = Fit(found.chosen, found.rule, [*(best.between if best else []), between], found.centroids)
        centroids = found.centroids
    assert best is not None  # noqa: S101  max_iter is at least 1
    return best


def _step(rows: SplitRows[H], centroids: Centroids) -> Fit[H]:
    direction = centroids.first - centroids.second
    offset = rows.inner(centroids.first, centroids.first) - rows.inner(centroids.second, centroids.second)
    straight, swapped = rows.choose(direction, offset)

    def gain(total: Vector, count: int) -> float:
        return -2 * rows.inner(direction, total) + offset * count

    # Objective of equation 5 for j = 1 and j = 2, each less the sum of distances to the second centroid.
    cost = gain(straight.total, straight.count)
    swapped_cost = gain(rows.total, rows.n) - gain(swapped.total, swapped.count)
    chosen, sign = (straight, 1) if cost <= swapped_cost else (swapped, -1)
    return Fit(chosen, (direction, offset, sign), [], means(rows, chosen))


def _mmd(rows: SplitRows[H], centroids: Centroids) -> float:
    apart = centroids.first - centroids.second
    return float(np.sqrt(max(rows.inner(apart, apart), 0.0)))


def random_mmd(scatter: float, n: int, count: int) -> float:
    """Return the root mean square of the MMD over all random splits of ``count`` of n rows.

    Notes
    -----
    Sampling v of n rows without replacement, with t = n - v, gives
    E |mean_V - mean_T|^2 = SS / (n - 1) (1 / v + 1 / t), where SS, the sum of |phi - mean|^2, is ``scatter``.
    """
    return float(np.sqrt(max(scatter, 0.0) / max(n - 1, 1) * (1 / count + 1 / (n - count))))
