"""Constrained kernel k-means with two clusters, wherever the rows are: it sees sums alone.

Napoli and White, section 1.3. With S the sum of phi over all n rows and S_V over the v validation rows, the
k-means objective is SS - between, where SS = sum |phi - mean|^2 and between = v (n - v) / n MMD^2. So a step
needs no more of the rows than S_V, and lowering the objective is raising ``between``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
H = TypeVar("H")


@dataclass(frozen=True, eq=False)
class Chosen(Generic[H]):
    """Validation rows: sum of their phi, how many they are, and what tells which they are."""

    total: Vector
    count: int
    handle: H


class SplitRows(Protocol[H]):
    """Interface of the rows to the iteration; the rows may be in memory or in shards."""

    n: int
    total: Vector
    """S, the sum of phi over all rows."""

    def inner(self, a: Vector, b: Vector) -> float:
        """Return <a, b> in the space of phi."""
        ...

    def choose(self, direction: Vector, offset: float) -> tuple[Chosen[H], Chosen[H]]:
        """Choose the best validation rows for the gains -2 <phi, direction> + offset, and for minus these."""
        ...


class Pair(NamedTuple):
    """Centroids of the validation and the training part."""

    first: Vector
    second: Vector


@dataclass(frozen=True, eq=False)
class Fit(Generic[H]):
    """The end of an iteration.

    Attributes
    ----------
    chosen : the validation rows.
    rule : (direction, offset, sign): the last step took the rows with the smallest
        sign * (-2 <phi, direction> + offset).
    between : per step, v (n - v) / n MMD^2, rising.
    centroids : of validation and training rows.
    """

    chosen: Chosen[H]
    rule: tuple[Vector, float, int]
    between: list[float]
    centroids: Pair


def mmd_of(rows: SplitRows[H], chosen: Chosen[H]) -> float:
    """Return the distance between the means of validation and training rows in the space of phi."""
    return _mmd(rows, means(rows, chosen))


def means(rows: SplitRows[H], chosen: Chosen[H]) -> Pair:
    """Return the centroids of validation and training rows. Raises ValueError if a part is empty."""
    rest = rows.n - chosen.count
    if not 0 < chosen.count < rows.n:
        raise ValueError(
            f"the tolerance lets validation take {chosen.count} of {rows.n} rows, which leaves one part "
            "empty. Lower it."
        )
    return Pair(chosen.total / chosen.count, (rows.total - chosen.total) / rest)


def iterate(rows: SplitRows[H], start: Pair, max_iter: int) -> Fit[H]:
    """Assign, update, until the objective no longer falls.

    Each step tries both labelings of the centroids and keeps the one with the lower cost, as the paper does.
    The previous rows are always among those a step may choose, so the objective cannot rise.
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


def _step(rows: SplitRows[H], centroids: Pair) -> Fit[H]:
    direction = centroids.first - centroids.second
    offset = rows.inner(centroids.first, centroids.first) - rows.inner(centroids.second, centroids.second)
    straight, swapped = rows.choose(direction, offset)

    def gain(total: Vector, count: int) -> float:
        return -2 * rows.inner(direction, total) + offset * count

    # Cost of a labeling, less the sum of distances to the second centroid.
    cost = gain(straight.total, straight.count)
    swapped_cost = gain(rows.total, rows.n) - gain(swapped.total, swapped.count)
    chosen, sign = (straight, 1) if cost <= swapped_cost else (swapped, -1)
    return Fit(chosen, (direction, offset, sign), [], means(rows, chosen))


def _mmd(rows: SplitRows[H], centroids: Pair) -> float:
    apart = centroids.first - centroids.second
    return float(np.sqrt(max(rows.inner(apart, apart), 0.0)))


def random_mmd(scatter: float, n: int, count: int) -> float:
    """Return the root mean square of the MMD over all random splits of ``count`` of n rows, the floor of a
    shift.

    ``scatter`` is SS, the sum of |phi - mean|^2. Sampling without replacement: E |mean_V - mean_T|^2 =
    SS / (n - 1) (1 / v + 1 / t).
    """
    return float(np.sqrt(max(scatter, 0.0) / max(n - 1, 1) * (1 / count + 1 / (n - count))))
