"""Small exact statistics over counts: what the report says about a group or a pair of labelings."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

A = TypeVar("A", bound=Hashable)
B = TypeVar("B", bound=Hashable)
Z95 = 1.959963984540054


@dataclass(frozen=True)
class Stat:
    """Sums over some rows. ``right`` and ``loss`` are nan where the chain has no such column."""

    rows: int = 0
    right: float = 0.0
    loss: float = 0.0
    weight: float = 0.0

    def __add__(self, other: Stat) -> Stat:
        return Stat(
            self.rows + other.rows,
            self.right + other.right,
            self.loss + other.loss,
            self.weight + other.weight,
        )

    @property
    def accuracy(self) -> float:
        """Share of rows that the probe gets right; nan without rows."""
        return self.right / self.rows if self.rows else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson 95 % interval of the accuracy."""
        return wilson(self.right, self.rows)

    @property
    def mean_loss(self) -> float:
        """Mean loss; nan without rows."""
        return self.loss / self.rows if self.rows else math.nan

    @property
    def mean_weight(self) -> float:
        """Mean sample weight; nan without rows."""
        return self.weight / self.rows if self.rows else math.nan


def wilson(right: float, rows: int) -> tuple[float, float]:
    """Wilson score interval (95 %) of a binomial share; (nan, nan) without rows or without a count.

    Wilson: Probable inference, the law of succession, and statistical inference, JASA 1927.
    """
    if rows == 0 or math.isnan(right):
        return math.nan, math.nan
    share, z2 = right / rows, Z95**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = Z95 * math.sqrt(share * (1 - share) / rows + z2 / (4 * rows**2)) / (1 + z2 / rows)
    return max(0.0, centre - half), min(1.0, centre + half)


def adjusted_rand_index(table: Mapping[tuple[A, B], int]) -> float:
    """Adjusted Rand index of two labelings, from their contingency counts alone.

    Parameters
    ----------
    table : (label of the first, label of the second) -> rows.

    Returns
    -------
    1.0 for the same partition, about 0 for chance; 1.0 if both have no pair to disagree on.
    Integers throughout until the last division. Hubert and Arabie: Comparing partitions, 1985, eq. 5.
    """
    first: dict[A, int] = {}
    second: dict[B, int] = {}
    for (a, b), rows in table.items():
        first[a] = first.get(a, 0) + rows
        second[b] = second.get(b, 0) + rows
    both = sum(rows * rows for rows in table.values())
    together = sum(rows * rows for rows in first.values())
    predicted = sum(rows * rows for rows in second.values())
    n = sum(first.values())
    # Ordered pairs: in both, only in the first, only in the second, in neither.
    tp, fn, fp = both - n, together - both, predicted - both
    tn = n * n - both - fn - fp
    if fn == 0 and fp == 0:
        return 1.0
    return 2 * (tp * tn - fn * fp) / ((tp + fn) * (fn + tn) + (tp + fp) * (fp + tn))
