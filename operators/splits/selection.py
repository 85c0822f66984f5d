"""The assignment step: the rows for the validation part that lower the objective most.

The linear program of Napoli and White (2024, equations 5 to 8) separates into one problem for each group if
the groups are disjoint. The exact solution of each is the k rows with the smallest gain, that is, squared
distance to the validation centroid less squared distance to the training centroid
(:class:`DisjointGroups`). Two overlapping groupings, such as labels and domains, need the program itself
(:class:`Marginals`). It is a network flow, whose vertices are integral, and HiGHS' simplex method ends at a
vertex. The dual prices of the program also assign rows that were not part of it: a row is taken if its gain
is below the sum of its groups' prices (complementary slackness), which keeps the shares on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from operators.arrays import Float64, Int64, Mask

Tolerance: TypeAlias = float | Mapping[int, float]


@dataclass(frozen=True, eq=False)
class Quotas:
    """Smallest (``low``) and largest (``high``) number of validation rows of each group, all (g,) int64."""

    names: Int64
    low: Int64
    high: Int64


def make_quotas(names: Int64, sizes: Int64, holdout: float, tolerance: Tolerance = 0.0) -> Quotas:
    """Return the limits round(h (1 - tau_g) |g|) and round(h (1 + tau_g) |g|) of each group (section 1.3).

    Halves are rounded to even; no limit exceeds the whole group.

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
            f"a holdout of {holdout:g} puts {left} into the validation part: there are {len(names)} groups, "
            f"and the largest has {sizes.max(initial=0)} rows. Change the holdout, or constrain larger "
            "groups, such as labels alone."
        )
    return Quotas(names, low, high)


class Selector(Protocol):
    """Assigns rows to the validation part under constraints on the shares of groups."""

    def select(self, gain: Float64) -> Mask:
        """Return the mask (n,) of the feasible rows with the smallest sum of ``gain`` (n,)."""
        ...


class DisjointGroups:
    """Closed form for disjoint groups.

    Parameters
    ----------
    groups : (n,) int64.
    holdout, tolerance : see :func:`make_quotas`.
    """

    def __init__(self, groups: Int64, holdout: float, tolerance: Tolerance = 0.0) -> None:
        self._order = np.argsort(groups, kind="stable")
        ordered = groups[self._order]
        starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
        bounds = np.append(starts, len(groups))
        self._ends = list(pairwise(bounds.tolist()))
        self.quotas = make_quotas(ordered[starts], np.diff(bounds), holdout, tolerance)

    def select(self, gain: Float64) -> Mask:
        """Return the mask (n,) of the rows with the smallest ``gain`` (n,) in each group.

        Each group gives as many rows as have a negative gain, but at least ``quotas.low`` and at most
        ``quotas.high``. Of equal gains the earlier row is taken.
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
    """Return the mask (n,) of the ``count`` smallest values; of equal values the earlier ones."""
    if count <= 0 or count >= len(values):
        return np.full(len(values), count > 0)
    last = np.partition(values, count - 1)[count - 1]
    taken: Mask = values < last
    equal = np.flatnonzero(values == last)
    taken[equal[: count - np.count_nonzero(taken)]] = True
    return taken


def make_selector(codes: Int64, holdout: float, tolerance: Tolerance) -> Selector:
    """Return the selector for disjoint groups, codes (n, 1), or for two overlapping groupings, codes (n,
    2).
    """
    if codes.shape[1] == 1:
        return DisjointGroups(codes[:, 0], holdout, tolerance)
    return Marginals(codes, holdout, tolerance)


class Marginals:
    """Two groupings that each keep their shares, such as labels and domains, while their pairs need not.

    Each group gives its share rounded down or up, as both groupings cannot always round alike; the total is
    round(h n). With a tolerance tau the bounds are floor(h (1 - tau) |g|) and ceil(h (1 + tau) |g|).

    Parameters
    ----------
    codes : (n, 2) int64, group of each row in each grouping, from 0.
    holdout : h in (0, 1).
    tolerance : tau >= 0.
    """

    def __init__(self, codes: Int64, holdout: float, tolerance: Tolerance = 0.0) -> None:
        n = len(codes)
        tau = float(tolerance)  # type: ignore[arg-type]
        incidence = [
            sparse.csr_array((np.ones(n), (column, np.arange(n))), shape=(column.max() + 1, n))
            for column in codes.T
        ]
        self._counts = [part.shape[0] for part in incidence]
        self._rows = sparse.vstack([*incidence, np.ones((1, n))], format="csr")
        sizes = self._rows.sum(axis=1)
        self._low = np.floor(_whole_where_close(holdout * (1 - tau) * sizes))
        self._high = np.ceil(_whole_where_close(holdout * (1 + tau) * sizes))
        if tau == 0:
            self._low[-1] = self._high[-1] = np.rint(holdout * n)

    def select(self, gain: Float64) -> Mask:
        """Return the mask (n,) with the smallest sum of ``gain`` (n,) that keeps all shares."""
        return binary_program(gain, self._rows, self._low, self._high)[0]

    def prices(self, gain: Float64) -> list[Float64]:
        """Return the dual price of each group of each grouping, the total's price included in the first's.

        A row is taken where its gain is below the sum of its groups' prices.
        """
        found = binary_program(gain, self._rows, self._low, self._high)[1]
        first, second, total = np.split(found, np.cumsum(self._counts))
        return [first + total[0], second]


def _whole_where_close(counts: Float64) -> Float64:
    """Return counts, whole where they are so but for a rounding error: .07 * 300 is 21.000000000000004."""
    whole = np.rint(counts)
    return np.where(np.abs(counts - whole) <= 1e-9 * np.maximum(whole, 1), whole, counts)


def binary_program(
    cost: Float64, rows: Any, low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> tuple[Mask, Float64]:
    """Minimise <cost, x> over x in {0, 1}^v with low <= rows x <= high, by HiGHS' dual simplex method.

    Parameters
    ----------
    cost : (v,).
    rows : (r, v) sparse and totally unimodular, such as the incidence matrix of a bipartite graph.
    low, high : (r,).

    Returns
    -------
    x : (v,) bool, the solution.
    price : (r,) float64 dual price of each constraint in units of the cost: x_i is 1 only where
        cost_i <= (rows' price)_i, and 0 only where cost_i >= (rows' price)_i.

    Raises
    ------
    ValueError
        There is no feasible solution, or the solver ends at a fractional one.

    Notes
    -----
    Rows with low = high are equations. HiGHS' presolve is off: on 5,000 rows and 5 folds it searches for
    dependent equations for minutes, and the program takes .2 s without.
    """
    from scipy.optimize import linprog

    scale = float(np.abs(cost).max(initial=0)) or 1.0
    equal = low == high
    found = linprog(
        cost / scale,
        A_eq=rows[equal],
        b_eq=low[equal],
        A_ub=sparse.vstack([rows[~equal], -rows[~equal]]),
        b_ub=np.concatenate([high[~equal], -low[~equal]]),
        bounds=(0, 1),
        method="highs-ds",
        options={"presolve": False},
    )
    if found.x is None or np.abs(found.x - np.rint(found.x)).max() > 1e-6:
        raise ValueError(
            f"the linear program that assigns rows ({len(cost)} variables, {len(low)} constraints) has no "
            f"solution in whole rows ({found.message}). Raise the tolerance, or constrain pairs of label and "
            "domain (within: domain)."
        )
    price = np.empty(len(low))
    price[equal] = found.eqlin.marginals
    price[~equal] = np.subtract(*np.split(found.ineqlin.marginals, 2))
    return np.asarray(found.x > 0.5), scale * price
