"""The assignment step, exactly: the rows of each group that gain most by going to the validation part.

The linear program of Napoli and White (eq. 5 to 8) falls apart into one problem per group where groups are
disjoint, and each of these is solved by the k rows with the smallest D_validation - D_train.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np

from operators.arrays import Float64, Mask
from operators.splits.hashing import Ints

Tolerance: TypeAlias = float | Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Quotas:
    """Least and most validation rows of each group; ``names``, ``low`` and ``high`` are (g,) int64."""

    names: Ints
    low: Ints
    high: Ints


def make_quotas(names: Ints, sizes: Ints, holdout: float, tolerance: Tolerance = 0.0) -> Quotas:
    """round(h (1 - tau_g) |g|) to round(h (1 + tau_g) |g|), half to even, at most the whole group.

    Parameters
    ----------
    names, sizes : (g,) groups, ascending, and their rows.
    holdout : h in (0, 1).
    tolerance : tau_g >= 0 for all groups, or by group (0 for those left out).

    Raises
    ------
    ValueError
        No row, or every row, would be validation.
    """
    if isinstance(tolerance, Mapping):
        tau = np.array([tolerance.get(int(name), 0.0) for name in names], np.float64)
    else:
        tau = np.full(len(names), float(tolerance))
    low = np.rint(holdout * np.maximum(1 - tau, 0) * sizes).astype(np.int64)
    high = np.minimum(np.rint(holdout * (1 + tau) * sizes).astype(np.int64), sizes)
    if not high.sum() or low.sum() == sizes.sum():
        left = "no row" if not high.sum() else "every row"
        raise ValueError(
            f"a holdout of {holdout:g} of each of {len(names)} groups, of {sizes.max(initial=0)} rows at "
            f"most, leaves {left} to validation. Change the holdout, or constrain larger groups, such as "
            "labels alone."
        )
    return Quotas(names, low, high)


class Selector(Protocol):
    """Picks validation rows."""

    def select(self, gain: Float64) -> Mask:
        """(n,) the feasible rows with the smallest sum of ``gain`` (n,)."""
        ...


class Disjoint:
    """Closed form for disjoint groups.

    Parameters
    ----------
    groups : (n,) int64.
    holdout, tolerance : see :func:`make_quotas`.
    """

    def __init__(self, groups: Ints, holdout: float, tolerance: Tolerance = 0.0) -> None:
        self._order = np.argsort(groups, kind="stable")
        ordered = groups[self._order]
        starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
        bounds = np.append(starts, len(groups))
        self._ends = list(pairwise(bounds.tolist()))
        self.quotas = make_quotas(ordered[starts], np.diff(bounds), holdout, tolerance)

    def select(self, gain: Float64) -> Mask:
        """(n,) which rows to take: in each group the smallest ``gain``, the earlier row of equals.

        As many as have a negative one, but no fewer than ``quotas.low`` and no more than ``quotas.high``.
        """
        ordered = gain[self._order]
        taken = np.empty(len(gain), bool)
        limits = zip(self.quotas.low.tolist(), self.quotas.high.tolist(), strict=True)
        for (start, stop), (low, high) in zip(self._ends, limits, strict=True):
            values = ordered[start:stop]
            count = low if low == high else min(max(np.count_nonzero(values < 0), low), high)
            taken[start:stop] = smallest(values, count)
        mask = np.empty_like(taken)
        mask[self._order] = taken
        return mask


def smallest(values: Float64, count: int) -> Mask:
    """(n,) the ``count`` smallest, the earlier of equals."""
    if count <= 0 or count >= len(values):
        return np.full(len(values), count > 0)
    last = np.partition(values, count - 1)[count - 1]
    taken: Mask = values < last
    equal = np.flatnonzero(values == last)
    taken[equal[: count - np.count_nonzero(taken)]] = True
    return taken
