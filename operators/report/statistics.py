"""Counts of rows, and the accuracy, loss and weight of a set of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64


def first_rows(rows: Float64, most: int) -> Float64:
    """Return at most ``most`` of some rows (n, 3) of whether an outlier, loss and row id.

    Outliers come first, then rows of larger loss, then those of smaller row id.
    """
    return rows[np.lexsort((rows[:, 2], -rows[:, 1], -rows[:, 0]))[:most]]


@dataclass(frozen=True)
class RowStatistics:
    """Sums over a set of rows. ``right`` and ``loss`` are nan if the recipe has no such column."""

    rows: int = 0
    right: float = 0.0
    """Rows whose prediction equals their label."""
    loss: float = 0.0
    weight: float = 0.0

    def __add__(self, other: RowStatistics) -> RowStatistics:
        return RowStatistics(
            self.rows + other.rows,
            self.right + other.right,
            self.loss + other.loss,
            self.weight + other.weight,
        )

    @property
    def accuracy(self) -> float:
        """Share of the rows that are predicted correctly; nan without rows."""
        return self._mean(self.right)

    @property
    def mean_loss(self) -> float:
        """Mean loss; nan without rows."""
        return self._mean(self.loss)

    @property
    def mean_weight(self) -> float:
        """Mean sample weight; nan without rows."""
        return self._mean(self.weight)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the accuracy; (nan, nan) without rows or without predictions."""
        # Imported on use: importing the contract of operators must not import scipy.
        from operators.metrics.intervals import wilson_interval

        if self.rows == 0 or math.isnan(self.right):
            return math.nan, math.nan
        low, high = wilson_interval(self.right, self.rows)
        return float(low), float(high)

    def _mean(self, total: float) -> float:
        return total / self.rows if self.rows else math.nan
