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
    """x and theta = min(c + A x) with slacks; lambda and rho with theirs. All but theta and rho are > 0."""

    x: Array
    room: Array  # cap - x
    slack: Array  # c + A x - theta
    theta: float
    lam: Array
    rho: float
    low: Array  # multiplier of x >= 0
    high: Array  # multiplier of x <= cap
    risk: Array  # A' lambda


def solve_small(game: SmallGame, tolerance: float, model_weights: Array) -> tuple[Array, Array, float]:
    """x (k,), lambda (t,) and rho, of a duality gap of about ``tolerance`` x mass; lambda may start anywhere.

    Returns the last point reached where rounding stops it earlier: the caller computes the gap.
    """
    point = _start(game, model_weights)
    for _ in range(MAX_STEPS):
        newton = _Newton(game, point)
        if newton.error <= 1e-9 and newton.complementarity <= tolerance * max(game.mass, 1.0):
            break
        if not newton.factor():
            break
        point = newton.advance()
    return point.x, point.lam, point.rho


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
    return Point(x, game.cap - x, slack, theta, lam, rho, high - excess, high, risk)


def _reach(values: Array, step: Array) -> float:
    """Longest step of at most 1 that keeps values + step >= 0."""
    worst = float((step / values).min())
    return 1.0 if worst >= -1 else -1 / worst


class _Newton:
    """One predictor-corrector step from a point."""

    def __init__(self, game: SmallGame, p: Point) -> None:
        self.game, self.p = game, p
        self.slack_off = p.theta - game.c - game.A @ p.x + p.slack
        self.mass_off = game.mass - float(p.x.sum())
        self.risk_off = p.rho - p.risk - p.low + p.high
        if game.temperature:
            self.risk_off += game.temperature * (np.log(p.x) + 1)
        self.sum_off = 1 - float(p.lam.sum())
        self.complementarity = float(p.x @ p.low + p.room @ p.high + p.lam @ p.slack)
        scale = max(game.mass, 1.0)
        self.error = max(
            float(np.abs(self.slack_off).max()) / scale,
            abs(self.mass_off) / scale,
            float(np.abs(self.risk_off).max()),
            abs(self.sum_off),
        )

    def factor(self) -> bool:
        """Factor the normal matrix, rho eliminated; False where rounding has made it indefinite."""
        game, p = self.game, self.p
        self.weight = 1 / ((p.low + game.temperature) / p.x + p.high / p.room)
        scaled = game.A * np.sqrt(self.weight)
        self.row_sum, self.weight_sum = game.A @ self.weight, float(self.weight.sum())
        normal = scaled @ scaled.T - np.outer(self.row_sum, self.row_sum / self.weight_sum)
        normal.flat[:: len(game.c) + 1] += p.slack / p.lam
        self.lower, info = lapack.dpotrf(normal, lower=1)
        if info:
            return False
        self.ones = lapack.dpotrs(self.lower, np.ones(len(game.c)), lower=1)[0]
        return bool(np.isfinite(self.ones).all())

    def advance(self) -> Point:
        """The next point."""
        p = self.p
        size = 2 * len(p.x) + len(p.lam)
        first = self._direction(-p.x * p.low, -p.room * p.high, -p.lam * p.slack)
        left = self._after(first, 1.0)
        mean = self.complementarity / size
        after = left.x @ left.low + left.room @ left.high + left.lam @ left.slack
        target = (after / self.complementarity) ** 3 * mean
        second = self._direction(
            target - p.x * p.low - first.x * first.low,
            target - p.room * p.high - first.room * first.high,
            target - p.lam * p.slack - first.lam * first.slack,
        )
        return self._after(second, 0.995)

    def _direction(self, to_low: Array, to_high: Array, to_slack: Array) -> Point:
        """The Newton direction that moves the three kinds of products by the given amounts."""
        game, p = self.game, self.p
        pull = self.risk_off - to_low / p.x + to_high / p.room
        pulled = pull * self.weight
        mass = (self.mass_off + float(pulled.sum())) / self.weight_sum
        right = self.slack_off + to_slack / p.lam + game.A @ pulled - self.row_sum * mass
        part = lapack.dpotrs(self.lower, right, lower=1)[0]
        theta = (self.sum_off - float(part.sum())) / float(self.ones.sum())
        lam = part + self.ones * theta
        rho = float(self.row_sum @ lam) / self.weight_sum - mass
        risk = lam @ game.A
        x = (risk - rho - pull) * self.weight
        low = (to_low - p.low * x) / p.x
        high = (to_high + p.high * x) / p.room
        return Point(x, -x, (to_slack - p.slack * lam) / p.lam, theta, lam, rho, low, high, risk)

    def _after(self, d: Point, share: float) -> Point:
        """The point after ``share`` of the longest feasible primal and dual steps, at most whole ones."""
        p = self.p
        a = share * min(_reach(p.x, d.x), _reach(p.room, d.room), _reach(p.slack, d.slack))
        b = share * min(_reach(p.low, d.low), _reach(p.high, d.high), _reach(p.lam, d.lam))
        if (
            self.game.temperature
        ):  # x and lambda then meet in one equation, which holds along steps of one length
            a = b = min(a, b)
        return Point(
            p.x + a * d.x,
            p.room + a * d.room,
            p.slack + a * d.slack,
            p.theta + a * d.theta,
            p.lam + b * d.lam,
            p.rho + b * d.rho,
            p.low + b * d.low,
            p.high + b * d.high,
            p.risk + b * d.risk,
        )
