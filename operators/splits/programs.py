"""Assignments without a closed form, as linear programs: overlapping groupings, or over two clusters.

Both are network flows, whose vertices are integral; HiGHS' simplex method ends at a vertex.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from operators.splits.selection import Disjoint, Float64, Ints, Mask, Selector, Tolerance


def make_selector(codes: Ints, holdout: float, tolerance: Tolerance) -> Selector:
    """What picks validation rows under (n, 1) disjoint groups, or two overlapping groupings (n, 2)."""
    if codes.shape[1] == 1:
        return Disjoint(codes[:, 0], holdout, tolerance)
    return Marginals(codes, holdout, tolerance)


class Marginals:
    """Two groupings that each keep their shares, such as labels and domains, but not their pairs.

    Each group gives its share rounded down or up, as both groupings cannot round as they please; the total is
    round(h n). With a tolerance tau the bounds are floor(h (1 - tau) |g|) and ceil(h (1 + tau) |g|).
    """

    def __init__(self, codes: Ints, holdout: float, tolerance: Tolerance = 0.0) -> None:
        n = len(codes)
        tau = float(tolerance)  # type: ignore[arg-type]
        incidence = [
            sparse.csr_array((np.ones(n), (column, np.arange(n))), shape=(column.max() + 1, n))
            for column in codes.T
        ]
        self._rows = sparse.vstack([*incidence, np.ones((1, n))], format="csr")
        sizes = self._rows.sum(axis=1)
        self._low, self._high = np.floor(holdout * (1 - tau) * sizes), np.ceil(holdout * (1 + tau) * sizes)
        if tau == 0:
            self._low[-1] = self._high[-1] = np.rint(holdout * n)

    def select(self, gain: Float64) -> Mask:
        """(n,) rows with the smallest sum of ``gain`` (n,) that keep all shares."""
        return binary_program(gain, self._rows, self._low, self._high)


def binary_program(
    cost: Float64, rows: Any, low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """The x in {0, 1}^v with the smallest <cost, x> and low <= rows x <= high, by HiGHS through cvxpy.

    Parameters
    ----------
    cost : (v,).
    rows : (r, v) sparse and totally unimodular, such as the incidence matrix of a bipartite graph.
    low, high : (r,).

    Raises
    ------
    ValueError
        Nothing is feasible, or the solver ends at a fraction.
    """
    import cvxpy as cp

    x = cp.Variable(len(cost), bounds=[0, 1])
    scale = float(np.abs(cost).max(initial=0)) or 1.0
    problem = cp.Problem(cp.Minimize((cost / scale) @ x), [rows @ x >= low, rows @ x <= high])
    problem.solve(solver=cp.HIGHS)  # type: ignore[no-untyped-call]
    if x.value is None or np.abs(x.value - np.rint(x.value)).max() > 1e-6:
        raise ValueError(
            f"operators.splits: the assignment of {len(cost)} variables under {len(low)} constraints ended "
            f"as {problem.status}, without whole rows. Raise the tolerance, or constrain pairs of label and "
            "domain."
        )
    return np.asarray(x.value > 0.5)
