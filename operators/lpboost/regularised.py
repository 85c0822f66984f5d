"""Entropy-regularised alpha-LPBoost (Warmuth et al. 2008; Zhai et al. 2021, equation 8) by Newton's method.

Given lambda, the best w is a capped softmax of beta (losses @ lambda). The remaining problem is smooth in the
t model weights,

    min over lambda in the simplex of g(lambda) = max over w of <w, losses @ lambda> + H(w)/beta,

with gradient losses' w, and curvature from the rows that are not at the cap. A primal-dual barrier keeps
lambda > 0; a step is extended while the barrier function falls. The duality gap, g(lambda) minus the value at
w, is <lambda, losses' w> - min_s <w, l_s>.

The larger beta, the closer the capped softmax comes to a step function: beyond ``STEEP`` too few rows are
between capped and negligible to give a useful curvature. There the interior-point method takes over, which
keeps the rows as variables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from operators.arrays import Float64
from operators.lpboost.interior import CappedMinimaxProblem, rescale_to_budget, solve_interior_point
from operators.lpboost.problem import GOAL, MAX_GAP, Solution
from operators.lpboost.softmax import capped_softmax, entropy, regularised_risk

STEEP = 1e3
"""Up to this beta Newton's method is faster and seldom fails (measured: 1 game in 500; at 1e4, 1 in 3)."""
MAX_STEPS, MAX_TRIALS = 100, 20
OVERSHOOT = 0.1
PATIENCE = 25
"""Steps without a smaller gap after which the method gives up: rounding, or too large a beta."""
NEGLIGIBLE = 1e-4
"""Rows below this share of the cap are left out of the curvature: this changes the steps, not the optimum."""


@dataclass
class _State:
    """The optimal sample weights for a lambda."""

    risk: Float64
    """(n,) losses @ lambda."""
    weights: Float64
    """(n,) the capped softmax."""
    value: float
    """Value of the dual function, g(lambda)."""
    shift: float
    """Shift of the capped softmax; the next search starts from it."""


class _Dual:
    """The function g and its derivatives."""

    def __init__(self, losses: Float64, tail: float, beta: float, copies: Float64 | None) -> None:
        self.losses, self.tail, self.beta, self.copies = losses, tail, beta, copies

    def at(self, risk: Float64, start: float | None = None) -> _State:
        w, shift = capped_softmax(self.beta * risk, self.tail, start, self.copies)
        return _State(risk, w, float(w @ risk + entropy(w, self.copies) / self.beta), shift)

    def gradient(self, state: _State) -> Float64:
        gradient: Float64 = state.weights @ self.losses
        return gradient

    def curvature(self, state: _State) -> Float64:
        """Return beta times the covariance of the free rows' losses under their weights, (t, t)."""
        w = state.weights
        cap = (1.0 if self.copies is None else self.copies) / self.tail
        free = (w < (1 - 1e-12) * cap) & (w > NEGLIGIBLE * cap)
        root = np.sqrt(w[free])
        scaled = self.losses[free] * root[:, None]
        square, mean, mass = scaled.T @ scaled, root @ scaled, float(root @ root)
        if mass > 0:
            square = square - np.outer(mean, mean / mass)
        return self.beta * square


def solve_regularised(
    losses: Float64, model_weights: Float64, tail: float, beta: float, copies: Float64 | None = None
) -> Solution:
    """Solve equation 8 by Newton's method, or by the interior-point method where that leaves a gap.

    Parameters
    ----------
    losses : (n, t) in [0, 1].
    model_weights : (t,) in the simplex, where to start.
    tail : 1 <= tail < n.
    beta : > 0.
    copies : (n,) sample weights of mean 1; default: every row counts once.

    Returns
    -------
    A solution with the gap that was reached; the caller decides whether it is small enough.
    """
    if beta <= STEEP:
        found = newton(losses, model_weights, tail, beta, copies)
        if found.gap <= MAX_GAP:
            return found
    return _by_interior_point(losses, model_weights, tail, beta, copies)


def _by_interior_point(
    losses: Float64, model_weights: Float64, tail: float, beta: float, copies: Float64 | None
) -> Solution:
    n, t = losses.shape
    cap = np.ones(n) if copies is None else copies
    rows = slice(None) if copies is None else copies > 0  # the method needs caps above 0
    A = np.ascontiguousarray(losses[rows].T)
    problem = CappedMinimaxProblem(A, np.zeros(t), cap[rows], tail, 1 / beta)
    x, lam, _ = solve_interior_point(problem, MAX_GAP / 100 * tail, model_weights)
    w = np.zeros(n)
    w[rows] = rescale_to_budget(x, problem.cap, tail) / tail
    lam = np.maximum(lam, 0)
    lam /= lam.sum()
    lower = float((w @ losses).min()) + entropy(w, copies) / beta
    return Solution(w, lam, lower, regularised_risk(losses @ lam, tail, beta, copies) - lower, "interior")


def newton(
    losses: Float64, model_weights: Float64, tail: float, beta: float, copies: Float64 | None = None
) -> Solution:
    """Solve equation 8 by Newton's method in lambda; see :func:`solve_regularised` for the parameters."""
    dual = _Dual(losses, tail, beta, copies)
    lam = 0.9 * model_weights + 0.1 / losses.shape[1]
    lam, steps = _minimise_dual(dual, lam)
    state = dual.at(losses @ lam)
    gradient = dual.gradient(state)
    gap = float(lam @ gradient - gradient.min())
    return Solution(state.weights, lam, state.value - gap, gap, "newton", steps)


def _minimise_dual(dual: _Dual, lam: Float64) -> tuple[Float64, int]:
    """Return the lambda with the least gap that was seen, and the number of steps."""
    t = len(lam)
    state = dual.at(dual.losses @ lam)
    gradient = dual.gradient(state)
    gap = float(lam @ gradient - gradient.min())
    best, best_at = (gap, lam), 0
    barrier = max(gap, GOAL) / t
    multiplier = barrier / lam
    for steps in range(1, MAX_STEPS + 1):
        direction = _direction(dual.curvature(state), gradient, lam, multiplier, barrier)
        fall = float((gradient - barrier / lam) @ direction)
        share, state, gradient = _search(dual, state, lam, direction, fall, barrier)
        change = barrier / lam - multiplier - multiplier / lam * direction
        lam = lam + share * direction
        lam /= lam.sum()
        multiplier = multiplier + min(1.0, 0.99 / max(1e-300, float((-change / multiplier).max()))) * change
        # The multipliers stay near the central path: later steps would be cut short otherwise (Waechter and
        # Biegler 2006, equation 16).
        multiplier = np.clip(multiplier, barrier / lam / 1e3, barrier / lam * 1e3)
        gap = float(lam @ gradient - gradient.min())
        if gap < best[0]:
            best, best_at = (gap, lam), steps
        if gap <= GOAL or steps - best_at > PATIENCE:
            break
        shrink = 0.1 if share > 0.8 else 0.4
        if share > 0.1:
            barrier = max(GOAL / t / 4, min(barrier, shrink * float(lam @ multiplier) / t))
    return best[1], steps


def _direction(
    curvature: Float64, gradient: Float64, lam: Float64, multiplier: Float64, barrier: float
) -> Float64:
    """Return the primal-dual Newton step (t,) of the barrier problem along sum lambda = 1."""
    matrix = curvature.copy()
    matrix.flat[:: len(lam) + 1] += multiplier / lam
    right = np.column_stack([barrier / lam - gradient, np.ones(len(lam))])
    lower, info = lapack.dpotrf(matrix, lower=1)
    # Where rounding has made the matrix indefinite, its positive diagonal alone still gives descent.
    steps: Float64 = right / matrix.diagonal()[:, None] if info else lapack.dpotrs(lower, right, lower=1)[0]
    step: Float64 = steps[:, 0] - steps[:, 1] * (steps[:, 0].sum() / steps[:, 1].sum())
    return step


def _search(
    dual: _Dual, state: _State, lam: Float64, direction: Float64, fall: float, barrier: float
) -> tuple[float, _State, Float64]:
    """Return the longest step that does not overshoot, the state there and its gradient.

    g(lambda) - barrier sum log lambda is convex, so that its slope decides; its values would be lost in
    rounding near the optimum, where rows change between capped and free from step to step.
    """
    share = min(1.0, 0.99 / max(1e-300, float((-direction / lam).max())))
    along = dual.losses @ direction
    for _ in range(MAX_TRIALS):
        end = dual.at(state.risk + share * along, state.shift)
        gradient = dual.gradient(end)
        slope = float((gradient - barrier / (lam + share * direction)) @ direction)
        if fall >= 0 or slope <= OVERSHOOT * abs(fall):  # no descent: solved for this barrier, to rounding
            break
        share *= min(0.9, max(0.1, fall / (fall - slope)))
    return share, end, gradient
