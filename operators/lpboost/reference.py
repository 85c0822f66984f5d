"""The game of alpha-LPBoost solved by a library, HiGHS or CLARABEL through CVXPY.

:func:`operators.lpboost.solve` uses it where its own solver leaves a gap, and tests compare with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np

from operators.arrays import Float64
from operators.lpboost.interior import rescale_to_budget
from operators.lpboost.problem import Solution, UncertifiedError
from operators.lpboost.softmax import entropy, regularised_risk
from operators.metrics import cvar

Library = Literal["highs", "clarabel"]

# Tighter than the libraries' defaults: feasibility of 1e-7 would leave a gap of that size.
SETTINGS: dict[str, dict[str, Any]] = {
    "highs": {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    "clarabel": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
}


def solve_by_library(
    losses: Float64, tail: float, library: Library, beta: float | None = None, copies: Float64 | None = None
) -> Solution:
    """Solve the game by a library.

    Parameters
    ----------
    losses : (n, t) in [0, 1].
    tail : number of rows in the tail, 1 <= tail <= n.
    library : its solver; HiGHS solves linear and quadratic programs, so it takes no entropy term.
    copies : (n,) sample weights of mean 1.

    Raises
    ------
    ValueError
        HiGHS was asked for an entropy term.
    UncertifiedError
        The library found no solution.
    """
    if library == "highs" and beta is not None:
        raise ValueError('method "highs" solves no entropy term; leave beta out, or set "auto" or "clarabel"')
    caps = np.ones(len(losses)) if copies is None else copies
    rows = np.flatnonzero(caps)
    x, lam = _solve(losses[rows], tail, library, beta, caps[rows])
    lam = np.maximum(lam, 0)
    lam /= lam.sum()
    risk = losses @ lam
    # This takes the library's own w instead of the softmax of lambda: CLARABEL's lambda is often off by
    # 1e-6 while its w is right to 1e-9, and an error in either costs the lower bound as much.
    w = np.zeros(len(losses))
    w[rows] = rescale_to_budget(x, caps[rows], tail) / tail
    value = float((w @ losses).min())
    if beta is None:
        upper = cvar(risk, min(1.0, tail / len(risk)), copies)
    else:
        upper = regularised_risk(risk, tail, beta, copies)
        value += entropy(w, copies) / beta
    return Solution(w, lam, value, upper - value, library)


def _solve(
    losses: Float64, tail: float, library: Library, beta: float | None, caps: Float64
) -> tuple[Float64, Float64]:
    cp: Any = import_module("cvxpy")  # imported here because it is slow and rarely needed
    n = len(losses)
    x, theta = cp.Variable(n), cp.Variable()  # x = tail w is of order 1, to which the tolerances relate
    scores_reach_theta = losses.T @ x >= theta
    # The entropy is -sum x log(x / cap) = entr(x) + x log(cap).
    aim = theta if beta is None else theta + (cp.sum(cp.entr(x)) + x @ np.log(caps)) / beta
    problem = cp.Problem(cp.Maximize(aim), [scores_reach_theta, cp.sum(x) == tail, x >= 0, x <= caps])
    try:
        problem.solve(solver=library.upper(), **SETTINGS[library])
    except cp.SolverError as error:
        raise UncertifiedError(f"{library} on {n} rows and {losses.shape[1]} models: {error}") from error
    if x.value is None or scores_reach_theta.dual_value is None:
        raise UncertifiedError(f"{library} on {n} rows and {losses.shape[1]} models: {problem.status}")
    return np.asarray(x.value), np.asarray(scores_reach_theta.dual_value)
