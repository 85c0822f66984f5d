"""Entropy-regularised alpha-LPBoost (Warmuth et al. 2008; Zhai et al. 2021, equation 8) by Newton's method.

Given lambda, the best w is a capped softmax of beta (losses @ lambda). What is left is smooth in t variables,

    min over lambda in the simplex of g(lambda) = max over w of <w, losses @ lambda> + H(w)/beta,

with gradient losses' w, and curvature from the rows that are not at the cap. A primal-dual barrier keeps
lambda > 0; a step goes on while the barrier function falls. The gap g(lambda) minus the value at w
is <lambda, losses' w> - min_s <w, l_s>.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from operators.lpboost.group import Group
from operators.lpboost.problem import GOAL, Solution
from operators.lpboost.softmax import capped_softmax, entropy

Array = npt.NDArray[np.float64]

MAX_STEPS, MAX_TRIALS = 100, 20
OVERSHOOT = 0.1
PATIENCE = 25
"""Steps without a smaller gap after which rounding, or too large a beta, is taken to be in the way."""
NEGLIGIBLE = 1e-4
"""Rows below this share of the cap, and of 1/n, are left out of the curvature: other steps, same optimum."""


@dataclass
class _State:
    risk: Array  # losses @ lambda, of this worker's rows
    weights: Array
    value: float  # g
    shift: float  # of the capped softmax: where the next one starts


class _Dual:
    """g and its derivatives."""

    def __init__(self, group: Group, losses: Array, tail: float, beta: float) -> None:
        self.group, self.losses, self.tail, self.beta = group, losses, tail, beta

    def at(self, risk: Array, start: float | None = None) -> _State:
        w, shift = capped_softmax(self.beta * risk, self.tail, self.group, start)
        value = self.group.total(np.array([w @ risk + entropy(w) / self.beta]))[0]
        return _State(risk, w, float(value), shift)

    def gradient(self, state: _State) -> Array:
        return self.group.total(state.weights @ self.losses)

    def curvature(self, state: _State) -> Array:
        w, t = state.weights, self.losses.shape[1]
        free = (w < (1 - 1e-12) / self.tail) & (w > NEGLIGIBLE / self.tail)
        root = np.sqrt(w[free])
        scaled = self.losses[free] * root[:, None]
        sums = self.group.total(np.vstack([scaled.T @ scaled, root @ scaled, np.full(t, root @ root)]))
        square, mean, mass = sums[:t], sums[t], sums[t + 1, 0]
        if mass > 0:
            square = square - np.outer(mean, mean / mass)
        return self.beta * square


def newton(group: Group, losses: Array, model_weights: Array, tail: float, beta: float) -> Solution:
    """Solve the regularised game for the rows of a group; every worker gets its own rows' weights.

    losses : (n, t) of this worker. model_weights : (t,), where to start; tail : 1 <= tail <= all rows.

    The gap is what was reached; the caller decides whether it will do.
    """
    dual = _Dual(group, losses, tail, beta)
    lam = 0.9 * model_weights + 0.1 / losses.shape[1]
    lam, steps = _descend(dual, lam)
    state = dual.at(losses @ lam)
    gradient = dual.gradient(state)
    gap = float(lam @ gradient - gradient.min())
    return Solution(state.weights, lam, state.value - gap, gap, "newton", steps)


def _descend(dual: _Dual, lam: Array) -> tuple[Array, int]:
    """The lambda of the least gap that was seen, and the steps it took."""
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
        # Kept near the central path, or later steps would be cut short (Waechter and Biegler 2006, eq. 16).
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


def _direction(curvature: Array, gradient: Array, lam: Array, multiplier: Array, barrier: float) -> Array:
    """Newton step of the barrier problem, primal-dual, along sum lambda = 1."""
    matrix = curvature.copy()
    matrix.flat[:: len(lam) + 1] += multiplier / lam
    right = np.column_stack([barrier / lam - gradient, np.ones(len(lam))])
    lower, info = lapack.dpotrf(matrix, lower=1)
    # Where rounding has made it indefinite, its positive diagonal alone still gives descent.
    steps: Array = right / matrix.diagonal()[:, None] if info else lapack.dpotrs(lower, right, lower=1)[0]
    step: Array = steps[:, 0] - steps[:, 1] * (steps[:, 0].sum() / steps[:, 1].sum())
    return step


def _search(
    dual: _Dual, state: _State, lam: Array, direction: Array, fall: float, barrier: float
) -> tuple[float, _State, Array]:
    """How far to go, the state there and its gradient: the longest step that does not overshoot.

    g(lambda) - barrier sum log lambda is convex, so its slope tells; its values would be lost in rounding
    near the optimum, where rows change between capped and free from step to step.
    """
    share = min(1.0, 0.99 / max(1e-300, float((-direction / lam).max())))
    along = dual.losses @ direction
    for _ in range(MAX_TRIALS):
        there = dual.at(state.risk + share * along, state.shift)
        gradient = dual.gradient(there)
        slope = float((gradient - barrier / (lam + share * direction)) @ direction)
        if fall >= 0 or slope <= OVERSHOOT * abs(fall):  # no descent: solved for this barrier, to rounding
            break
        share *= min(0.9, max(0.1, fall / (fall - slope)))
    return share, there, gradient
