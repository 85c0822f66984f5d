"""A primal-dual interior point method for the game over few rows, and for nothing else.

    max over x of min_s (c + A x)_s - temperature sum x log x   with sum x = mass, 0 <= x <= cap

without temperature (the small LP of sifting) or with it (the regularised game where Newton's method
fails). Its dual without temperature is min over lambda in the simplex and rho of
c'lambda + mass rho + sum cap (A'lambda - rho)+.
Mehrotra's predictor-corrector (Mehrotra 1992; Nocedal and Wright 2006, chapter 14); a Newton step costs
one t x t factor, t = number of models. Where the optimum is a face it ends near its centre, so that
rows that look alike get like weights; a simplex method would end in a corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

Array = npt.NDArray[np.float64]

MAX_STEPS = 60


@dataclass
class SmallGame:
    """A : (t, k); c : (t,); cap : (k,) > 0; 0 < mass < sum cap; temperature >= 0, that is 1/beta."""

    A: Array
    c: Array
    cap: Array
    mass: float
    temperature: float = 0.0


@dataclass
class Point:
    """Both players' variables, all > 0; the product of primal[i] and dual[i] is 0 at the optimum."""

    primal: Array
    """(2k + t): x, cap - x, and the slack c + A x - theta."""
    dual: Array
    """(2k + t): the multipliers of x >= 0 and of x <= cap, and lambda."""
    theta: float
    rho: float
    risk: Array  # A' lambda


def solve_small(game: SmallGame, tolerance: float, model_weights: Array) -> tuple[Array, Array, float]:
    """x (k,), lambda (t,) and rho, of a duality gap of about ``tolerance``; lambda may start anywhere.

    Returns the last point reached where rounding stops it earlier: the caller computes the gap.
    """
    k = len(game.cap)
    point = _start(game, model_weights)
    for _ in range(MAX_STEPS):
        newton = _Newton(game, point)
        if newton.complementarity <= tolerance and newton.error() <= 1e-9:
            break
        if not newton.factor():
            break
        point = newton.advance()
    return point.primal[:k], point.dual[2 * k :], point.rho


def exact_mass(x: Array, cap: Array, mass: float) -> Array:
    """x, clipped to 0 and cap, with sum ``mass``."""
    x = np.clip(x, 0, cap)
    off = mass - float(x.sum())
    if off <= 0:
        return x * (mass / (mass - off))
    room = cap - x
    return x + room * min(1.0, off / max(float(room.sum()), 1e-300))


def _start(game: SmallGame, model_weights: Array) -> Point:
    t = len(game.c)
    x = game.cap * np.clip(game.mass / game.cap.sum(), 0.05, 0.95)
    lam = 0.9 * model_weights + 0.1 / t
    risk = lam @ game.A
    rho = float(np.quantile(risk, np.clip(1 - game.mass / game.cap.sum(), 0, 1)))
    score = game.c + game.A @ x
    theta = float(score.min())
    excess = risk - rho
    margin = max(float(np.abs(excess).mean()), 1e-3)
    high = np.maximum(excess, 0) + margin
    slack = score - theta + 0.1 * max(1.0, 0.1 * game.mass)
    primal = np.concatenate([x, game.cap - x, slack])
    return Point(primal, np.concatenate([high - excess, high, lam]), theta, rho, risk)


def _reach(values: Array, step: Array) -> float:
    """Longest step of at most 1 that keeps values + step >= 0."""
    worst = float((step / values).min())
    return 1.0 if worst >= -1 else -1 / worst


class _Newton:
    """One predictor-corrector step from a point."""

    def __init__(self, game: SmallGame, p: Point) -> None:
        self.game, self.p, self.k = game, p, len(game.cap)
        x, slack = p.primal[: self.k], p.primal[2 * self.k :]
        low, high = p.dual[: self.k], p.dual[self.k : 2 * self.k]
        self.slack_off = p.theta - game.c - game.A @ x + slack
        self.mass_off = game.mass - float(x.sum())
        self.risk_off = p.rho - p.risk - low + high
        if game.temperature:
            self.risk_off += game.temperature * (np.log(x) + 1)
        self.sum_off = 1 - float(p.dual[2 * self.k :].sum())
        self.complementarity = float(p.primal @ p.dual)

    def error(self) -> float:
        """How far the point is from feasible."""
        scale = max(self.game.mass, 1.0)
        slack_off, risk_off = (float(np.abs(off).max()) for off in (self.slack_off, self.risk_off))
        return max(slack_off / scale, abs(self.mass_off) / scale, risk_off, abs(self.sum_off))

    def factor(self) -> bool:
        """Factor the normal matrix, rho eliminated; False where rounding has made it indefinite."""
        game, k = self.game, self.k
        slack, lam = self.p.primal[2 * k :], self.p.dual[2 * k :]
        self.stiffness = self.p.dual[: 2 * k] / self.p.primal[: 2 * k]
        self.weight = 1 / (self.stiffness[:k] + self.stiffness[k:] + game.temperature / self.p.primal[:k])
        scaled = game.A * np.sqrt(self.weight)
        self.row_sum, self.weight_sum = game.A @ self.weight, float(self.weight.sum())
        normal = scaled @ scaled.T - np.outer(self.row_sum, self.row_sum / self.weight_sum)
        self.slope = slack / lam
        normal.flat[:: len(lam) + 1] += self.slope
        self.lower, info = lapack.dpotrf(normal, lower=1)
        if info:
            return False
        self.ones = lapack.dpotrs(self.lower, np.ones(len(lam)), lower=1)[0]
        self.ones_sum = float(self.ones.sum())
        return bool(np.isfinite(self.ones_sum))

    def advance(self) -> Point:
        """The next point."""
        p, products = self.p, self.p.primal * self.p.dual
        first = self._direction(-products)
        a, b = self._shares(first)
        after = self.complementarity + float(
            a * (first.primal @ p.dual) + b * (p.primal @ first.dual) + a * b * (first.primal @ first.dual)
        )
        target = (after / self.complementarity) ** 3 * self.complementarity / len(products)
        d = self._direction(target - products - first.primal * first.dual)
        a, b = (0.995 * share for share in self._shares(d))
        return Point(
            p.primal + a * d.primal,
            p.dual + b * d.dual,
            p.theta + a * d.theta,
            p.rho + b * d.rho,
            p.risk + b * d.risk,
        )

    def _direction(self, push: Array) -> Point:
        """The Newton direction that moves the products primal x dual by ``push``."""
        game, k = self.game, self.k
        force = push[: 2 * k] / self.p.primal[: 2 * k]
        give = push[2 * k :] / self.p.dual[2 * k :]
        pulled = (self.risk_off - force[:k] + force[k:]) * self.weight
        mass = (self.mass_off + float(pulled.sum())) / self.weight_sum
        right = self.slack_off + give + game.A @ pulled - self.row_sum * mass
        part = lapack.dpotrs(self.lower, right, lower=1)[0]
        theta = (self.sum_off - float(part.sum())) / self.ones_sum
        lam = part + self.ones * theta
        rho = float(self.row_sum @ lam) / self.weight_sum - mass
        risk = lam @ game.A
        primal, dual = np.empty_like(push), np.empty_like(push)
        x = np.subtract((risk - rho) * self.weight, pulled, out=primal[:k])
        np.negative(x, out=primal[k : 2 * k])
        np.subtract(give, self.slope * lam, out=primal[2 * k :])
        np.subtract(force, self.stiffness * primal[: 2 * k], out=dual[: 2 * k])
        dual[2 * k :] = lam
        return Point(primal, dual, theta, rho, risk)

    def _shares(self, d: Point) -> tuple[float, float]:
        """The longest feasible primal and dual steps along a direction, at most whole ones."""
        a, b = _reach(self.p.primal, d.primal), _reach(self.p.dual, d.dual)
        if self.game.temperature:
            # x and lambda then meet in one equation, which holds along steps of one length
            a = b = min(a, b)
        return a, b
