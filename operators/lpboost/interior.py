"""Primal-dual interior-point method for a minimax problem over few rows, with an optional entropy term.

    maximise over x, theta     theta - temperature sum_i x_i log(x_i / cap_i)
    subject to                 c + A x - s = theta 1,   s >= 0        multipliers lambda (t,)
                               sum_i x_i = budget                     multiplier rho
                               0 <= x <= cap                          multipliers z, v (k,)

Sifting solves it without the entropy term (equation 5 of Zhai et al. 2021, restricted to a window of rows);
:mod:`operators.lpboost.regularised` solves it with temperature = 1 / beta (equation 8). The optimality
conditions, which the iterates satisfy up to the residuals of :class:`_NewtonStep`, are

    primal      theta 1 - c - A x + s = 0                                  (primal_residual)
                budget - sum x = 0                                         (budget_residual)
    dual        rho - A' lambda - z + v + temperature (log(x/cap) + 1) = 0 (dual_residual)
                1 - sum lambda = 0                                         (simplex_residual)
    products    x z = 0,  (cap - x) v = 0,  s lambda = 0                   (complementarity)

Without the entropy term the dual problem is min over lambda in the simplex and rho of
c' lambda + budget rho + sum_i cap_i (A' lambda - rho)_i^+.

Source: Mehrotra's predictor-corrector method (Mehrotra 1992; Nocedal and Wright 2006, section 14.2). A step
costs one Cholesky factor of a t x t matrix, t being the number of models. Where the optimum is a face, the
method ends near its centre, so that rows that look alike get like weights; a simplex method ends in a vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from operators.arrays import Float64

MAX_STEPS = 60
FEASIBLE = 1e-9
"""Largest scaled residual of a solution."""
TO_BOUNDARY = 0.995
"""Share of the longest feasible step that is taken."""


@dataclass
class CappedMinimaxProblem:
    """The problem of this module.

    Attributes
    ----------
    A : (t, k) losses of t models on k rows, or on k sets of equal rows.
    c : (t,) losses of the rows whose weights are fixed, summed.
    cap : (k,) > 0 largest weight of each row.
    budget : sum of the weights, above 0 and below sum(cap).
    temperature : factor of the entropy, >= 0; 1 / beta of equation 8.
    """

    A: Float64
    c: Float64
    cap: Float64
    budget: float
    temperature: float = 0.0


@dataclass
class Iterate:
    """Variables of both players. At the optimum primal[i] * dual[i] is 0 for all i.

    Attributes
    ----------
    primal : (2 k + t,) > 0: x, cap - x, and the slack s of the models.
    dual : (2 k + t,) > 0: the multipliers z of x >= 0, v of x <= cap, and lambda.
    theta : value of the least score.
    rho : multiplier of the budget: the threshold of the risk.
    risk : (k,) A' lambda.
    """

    primal: Float64
    dual: Float64
    theta: float
    rho: float
    risk: Float64


def solve_interior_point(
    problem: CappedMinimaxProblem, tolerance: float, model_weights: Float64
) -> tuple[Float64, Float64, float]:
    """Solve the problem to a sum of complementarity products of about ``tolerance``.

    Parameters
    ----------
    model_weights : (t,) in the simplex, where lambda starts.

    Returns
    -------
    x (k,), lambda (t,) and rho. Where rounding stops the method early they are the last iterate: the caller
    has to compute the duality gap.
    """
    k = len(problem.cap)
    iterate = _starting_point(problem, model_weights)
    for _ in range(MAX_STEPS):
        step = _NewtonStep(problem, iterate)
        if step.complementarity <= tolerance and step.residual_norm() <= FEASIBLE:
            break
        if not step.factorise():
            break
        iterate = step.next_iterate()
    return iterate.primal[:k], iterate.dual[2 * k :], iterate.rho


def rescale_to_budget(x: Float64, cap: Float64, budget: float) -> Float64:
    """Return x (k,) clipped to [0, cap] and then moved to the sum ``budget`` within these bounds."""
    x = np.clip(x, 0, cap)
    missing = budget - float(x.sum())
    if missing <= 0:
        return x * (budget / (budget - missing))
    room = cap - x
    return x + room * min(1.0, missing / max(float(room.sum()), 1e-300))


def max_feasible_step(values: Float64, direction: Float64) -> float:
    """Return the longest step of at most 1 for which values + step * direction >= 0."""
    steepest = float((direction / values).min())
    return 1.0 if steepest >= -1 else -1 / steepest


def _starting_point(problem: CappedMinimaxProblem, model_weights: Float64) -> Iterate:
    """Return a strictly positive point: equal shares of the caps, and rho at the matching quantile of the
    risk.
    """
    t = len(problem.c)
    share = problem.budget / problem.cap.sum()
    x = problem.cap * np.clip(share, 0.05, 0.95)
    lam = 0.9 * model_weights + 0.1 / t
    risk = lam @ problem.A
    rho = float(np.quantile(risk, np.clip(1 - share, 0, 1)))
    score = problem.c + problem.A @ x
    theta = float(score.min())
    excess = risk - rho
    margin = max(float(np.abs(excess).mean()), 1e-3)
    upper = np.maximum(excess, 0) + margin
    slack = score - theta + 0.1 * max(1.0, 0.1 * problem.budget)
    primal = np.concatenate([x, problem.cap - x, slack])
    return Iterate(primal, np.concatenate([upper - excess, upper, lam]), theta, rho, risk)


class _NewtonStep:
    """One predictor-corrector step from an iterate; the module's docstring defines the residuals."""

    def __init__(self, problem: CappedMinimaxProblem, at: Iterate) -> None:
        self.problem, self.at, self.k = problem, at, len(problem.cap)
        x, slack = at.primal[: self.k], at.primal[2 * self.k :]
        z, v = at.dual[: self.k], at.dual[self.k : 2 * self.k]
        self.primal_residual = at.theta - problem.c - problem.A @ x + slack
        self.budget_residual = problem.budget - float(x.sum())
        self.dual_residual = at.rho - at.risk - z + v
        if problem.temperature:
            self.dual_residual += problem.temperature * (np.log(x / problem.cap) + 1)
        self.simplex_residual = 1 - float(at.dual[2 * self.k :].sum())
        self.complementarity = float(at.primal @ at.dual)

    def residual_norm(self) -> float:
        """Return the largest residual; those in units of the budget are divided by it."""
        scale = max(self.problem.budget, 1.0)
        primal, dual = (float(np.abs(part).max()) for part in (self.primal_residual, self.dual_residual))
        return max(primal / scale, abs(self.budget_residual) / scale, dual, abs(self.simplex_residual))

    def factorise(self) -> bool:
        """Factor the normal matrix of lambda; return False where rounding has made it indefinite.

        With H = z / x + v / (cap - x) + temperature / x the elimination of x and then of rho leaves
        A H^-1 A' - (A H^-1 1)(A H^-1 1)' / (1' H^-1 1) + diag(s / lambda).
        """
        problem, k = self.problem, self.k
        slack, lam = self.at.primal[2 * k :], self.at.dual[2 * k :]
        self.bound_ratio = self.at.dual[: 2 * k] / self.at.primal[: 2 * k]
        hessian = self.bound_ratio[:k] + self.bound_ratio[k:] + problem.temperature / self.at.primal[:k]
        self.inverse_hessian = 1 / hessian
        scaled = problem.A * np.sqrt(self.inverse_hessian)
        self.row_sum, self.total = problem.A @ self.inverse_hessian, float(self.inverse_hessian.sum())
        normal = scaled @ scaled.T - np.outer(self.row_sum, self.row_sum / self.total)
        self.slack_ratio = slack / lam
        normal.flat[:: len(lam) + 1] += self.slack_ratio
        self.lower, info = lapack.dpotrf(normal, lower=1)
        if info:
            return False
        self.ones = lapack.dpotrs(self.lower, np.ones(len(lam)), lower=1)[0]
        self.ones_sum = float(self.ones.sum())
        return bool(np.isfinite(self.ones_sum))

    def next_iterate(self) -> Iterate:
        """Predict with target products of 0, centre by the cube of the achieved reduction, and correct."""
        at, products = self.at, self.at.primal * self.at.dual
        affine = self._direction(-products)
        a, b = self._step_lengths(affine)
        predicted = self.complementarity + float(
            a * (affine.primal @ at.dual)
            + b * (at.primal @ affine.dual)
            + a * b * (affine.primal @ affine.dual)
        )
        centring = (predicted / self.complementarity) ** 3
        target = centring * self.complementarity / len(products)
        direction = self._direction(target - products - affine.primal * affine.dual)
        a, b = (TO_BOUNDARY * length for length in self._step_lengths(direction))
        return Iterate(
            at.primal + a * direction.primal,
            at.dual + b * direction.dual,
            at.theta + a * direction.theta,
            at.rho + b * direction.rho,
            at.risk + b * direction.risk,
        )

    def _direction(self, comp_rhs: Float64) -> Iterate:
        """Solve the linearised conditions; the products primal * dual change by ``comp_rhs`` (2 k + t,)."""
        problem, k = self.problem, self.k
        bound_rhs = comp_rhs[: 2 * k] / self.at.primal[: 2 * k]
        slack_rhs = comp_rhs[2 * k :] / self.at.dual[2 * k :]
        x_rhs = (self.dual_residual - bound_rhs[:k] + bound_rhs[k:]) * self.inverse_hessian
        rho_rhs = (self.budget_residual + float(x_rhs.sum())) / self.total
        lam_rhs = self.primal_residual + slack_rhs + problem.A @ x_rhs - self.row_sum * rho_rhs
        lam_without_theta = lapack.dpotrs(self.lower, lam_rhs, lower=1)[0]
        theta = (self.simplex_residual - float(lam_without_theta.sum())) / self.ones_sum
        lam = lam_without_theta + self.ones * theta
        rho = float(self.row_sum @ lam) / self.total - rho_rhs
        risk = lam @ problem.A
        primal, dual = np.empty_like(comp_rhs), np.empty_like(comp_rhs)
        x = np.subtract((risk - rho) * self.inverse_hessian, x_rhs, out=primal[:k])
        np.negative(x, out=primal[k : 2 * k])
        np.subtract(slack_rhs, self.slack_ratio * lam, out=primal[2 * k :])
        np.subtract(bound_rhs, self.bound_ratio * primal[: 2 * k], out=dual[: 2 * k])
        dual[2 * k :] = lam
        return Iterate(primal, dual, theta, rho, risk)

    def _step_lengths(self, direction: Iterate) -> tuple[float, float]:
        """Return the longest feasible primal and dual steps along a direction, at most 1."""
        a = max_feasible_step(self.at.primal, direction.primal)
        b = max_feasible_step(self.at.dual, direction.dual)
        if self.problem.temperature:
            # x and lambda share the dual equation, which holds along steps of one length only.
            a = b = min(a, b)
        return a, b
