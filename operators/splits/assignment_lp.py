"""Assignments without a closed form, as linear programs: two overlapping groupings, or over two clusters.

Both programs are network flows, whose vertices are integral; HiGHS' simplex method ends at a vertex. The dual
prices of a program also assign rows that were not part of it: a row goes where its cost less the price is
least (complementary slackness), which keeps the shares on average.

Source: Napoli and White 2024, equations 5 to 8 and section 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from operators.arrays import Float64, Mask
from operators.splits.hashing import Ints
from operators.splits.selection import Disjoint, Selector, Tolerance


def make_selector(codes: Ints, holdout: float, tolerance: Tolerance) -> Selector:
    """Return what picks validation rows under disjoint groups (n, 1) or two overlapping groupings (n, 2)."""
    if codes.shape[1] == 1:
        return Disjoint(codes[:, 0], holdout, tolerance)
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

    def __init__(self, codes: Ints, holdout: float, tolerance: Tolerance = 0.0) -> None:
        n = len(codes)
        tau = float(tolerance)  # type: ignore[arg-type]
        incidence = [
            sparse.csr_array((np.ones(n), (column, np.arange(n))), shape=(column.max() + 1, n))
            for column in codes.T
        ]
        self._counts = [part.shape[0] for part in incidence]
        self._rows = sparse.vstack([*incidence, np.ones((1, n))], format="csr")
        sizes = self._rows.sum(axis=1)
        self._low, self._high = np.floor(holdout * (1 - tau) * sizes), np.ceil(holdout * (1 + tau) * sizes)
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


def binary_program(
    cost: Float64, rows: Any, low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> tuple[Mask, Float64]:
    """Minimise <cost, x> over x in {0, 1}^v with low <= rows x <= high, by HiGHS through cvxpy.

    Parameters
    ----------
    cost : (v,).
    rows : (r, v) sparse and totally unimodular, such as the incidence matrix of a bipartite graph.
    low, high : (r,).

    Returns
    -------
    The mask x (v,), and the dual price (r,) of each constraint in units of the cost: x_i is 1 only where
    cost_i <= (rows' price)_i, and 0 only where it is >= that.

    Raises
    ------
    ValueError
        Nothing is feasible, or the solver ends at a fraction.
    """
    import cvxpy as cp

    x = cp.Variable(len(cost), bounds=[0, 1])
    scale = float(np.abs(cost).max(initial=0)) or 1.0
    bounds = [rows @ x >= low, rows @ x <= high]
    problem = cp.Problem(cp.Minimize((cost / scale) @ x), bounds)
    problem.solve(solver=cp.HIGHS)  # type: ignore[no-untyped-call]
    if x.value is None or np.abs(x.value - np.rint(x.value)).max() > 1e-6:
        raise ValueError(
            f"operators.splits: the assignment of {len(cost)} variables under {len(low)} constraints ended "
            f"as {problem.status}, without whole rows. Raise the tolerance, or constrain pairs of label and "
            "domain."
        )
    above, below = (np.asarray(bound.dual_value, np.float64) for bound in bounds)
    return np.asarray(x.value > 0.5), scale * (above - below)
