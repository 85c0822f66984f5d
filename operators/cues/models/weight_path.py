"""Weights as a path from no weighting to full robustness.

The strength of weighting is one number: 0 gives every row the same weight (ERM), 1 gives every class the
same total (class balance), values between are powers of the class sizes, and 2 is class balance times the
full robust factor within the limits of ``limits``. Between 1 and 2 the factor is mixed in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.class_shares import class_factors
from operators.cues.limits import Limits, fit_limits

UNWEIGHTED, CLASS_BALANCE, FULL = 0.0, 1.0, 2.0
"""Strengths at the ends of the path, and between its two parts."""
CONSTANT = 1e-9
"""Spread of the factor within a class up to which it is constant there."""


@dataclass(frozen=True)
class WeightPath:
    """Weights of any row at any strength.

    Attributes
    ----------
    counts
        Rows of each class, shape (C,).
    limits
        Limits of the robust factor.

    """

    counts: Integers
    limits: Limits

    @classmethod
    def fit(
        cls, factor: Floats, y: Integers, counts: Integers, *, cap: float, min_effective: float
    ) -> WeightPath:
        """Measure the limits on a sample.

        Parameters
        ----------
        factor
            Robust factor relative to class balance ahead of the limits, shape (n,).
        y
            Labels 0 .. C - 1, shape (n,).
        counts
            Rows of each class in the whole table, shape (C,).
        cap, min_effective
            As in ``limits.fit_limits``.

        """
        return cls(counts, fit_limits(factor, y, len(counts), cap=cap, min_effective=min_effective))

    def weights(self, strength: float, factor: Floats, y: Integers) -> Float64:
        """Return the weights, shape (n,): finite, not negative, mean near 1 over the rows of the table.

        Parameters
        ----------
        strength
            From 0 to 2.
        factor, y
            Robust factor ahead of the limits and label of any rows, shape (n,).

        Raises
        ------
        ValueError
            The strength is out of range.

        """
        if not 0.0 <= strength <= FULL:
            raise ValueError(f"the strength of weighting is {strength}: give a number from 0 to {FULL:g}")
        by_class = class_factors(self.counts, strength=min(strength, CLASS_BALANCE))[y]
        part = max(strength - CLASS_BALANCE, 0.0)
        if part == 0.0:
            return np.asarray(by_class, np.float64)
        return np.asarray(by_class * (1.0 + part * (self.limits.apply(factor, y) - 1.0)))


def has_factor(factor: Floats, y: Integers) -> bool:
    """Return whether the robust factor differs within any class, so that the path goes beyond 1."""
    return any(float(np.ptp(factor[y == c])) > CONSTANT for c in np.unique(y))
