"""alpha-LPBoost by sifting: a small LP over the rows near the threshold, the others fixed on their side.

At the optimum of equations 5 and 6 of Zhai et al. 2021, a row whose risk (losses @ lambda)_i is above the
threshold rho has the weight 1/tail, and a row below it the weight 0. Only rows at rho lie between, and they
are few or equal. The method solves the LP over a window of rows around an estimate of rho, computes the risk
of all rows, adds those to the window that are on the wrong side of rho, and repeats until the duality gap is
closed (sifting; Bixby et al. 1992). Rows with the same losses are one column of the small LP and get the same
weight. Without a start, if many rows are equal (0/1 losses of few or good models), each set of equal rows is
one row throughout. Sample weights multiply the caps; rows of weight 0 never enter the window. Models are
sifted in the same way: the LP starts with those that had weight in the last round or nearly had, and a model
with a lower score than all of them is added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from operators.arrays import Float64, Int64, Mask
from operators.lpboost.interior import CappedMinimaxProblem, rescale_to_budget, solve_interior_point
from operators.lpboost.problem import GOAL, Solution

WINDOW, MIN_WINDOW = 12, 768
"""Rows in the window per model, and the smallest window. The same number may be added in one pass (measured:
half or twice as many take up to a third longer)."""
MAX_PASSES = 100
TRIALS = 5
"""Shares of a new model that are tried (measured: more save no passes)."""
NEGLIGIBLE = 1e-6
"""A model of less weight is not in the first LP of the next round, unless its score is among the lowest."""
PROBE, MAX_DISTINCT = 1024, 0.5
"""Rows that are compared to estimate whether equal rows are common, and the share of different rows among
them up to which equal rows are collapsed (50,000 x 30: a share of .4 halves the time, .75 or more doubles
it).
"""
WRONG = 1e-10
"""Distance from rho, in units of loss, beyond which a fixed row is on the wrong side."""


@dataclass(frozen=True)
class Start:
    """The point at which sifting starts."""

    model_weights: Float64
    """(t,), in the simplex."""
    risk: Float64
    """(n,): losses @ model_weights."""
    models: Mask
    """(t,): models of the first LP; at least one has weight."""


class _Window:
    """Rows and models of the small LP, and the rows that are fixed at the cap with what they contribute."""

    def __init__(self, losses: Float64, start: Start, tail: float, rows: int, copies: Float64 | None) -> None:
        n = len(losses)
        self.caps = np.ones(n) if copies is None else copies
        self.losses, self.tail, self.models = losses, tail, start.models.copy()
        middle = int(in_tail(start.risk, tail, copies).sum())
        first, last = max(0, middle - rows // 2), min(n, middle + rows // 2 + 1)
        # Rows that do not count come last, so that they are in no tail.
        risk = np.where(self.caps > 0, start.risk, -1.0)
        self.capped = largest(risk, first)
        self.inside = largest(risk, last) & ~self.capped & (self.caps > 0)
        # (t,): sum of the capped rows' losses
        self.fixed = _weighted_sum(losses, np.where(self.capped, self.caps, 0.0))
        self.budget = tail - float(self.caps[self.capped].sum())

    def admit_rows(self, wrong: Mask) -> None:
        """Make rows (n,) variables of the LP; those that were capped give their weight back to the budget."""
        leaving = wrong & self.capped
        self.fixed = self.fixed - (self.losses[leaving] * self.caps[leaving, None]).sum(axis=0)
        self.budget += float(self.caps[leaving].sum())
        self.inside |= wrong
        self.capped &= ~wrong

    def solve(self, model_weights: Float64) -> tuple[Float64, Float64, float, float]:
        """Solve the LP over the window: w times tail (n,), lambda (t,), rho and the lower bound."""
        rows = self.losses[self.inside]
        _, first, kind = np.unique(row_keys(rows), return_index=True, return_inverse=True)
        own, models = self.caps[self.inside], self.models
        cap = np.bincount(kind, own).astype(np.float64)
        A = np.ascontiguousarray(rows[first][:, models].T)
        start = model_weights[models] + 1e-9  # not all 0
        problem = CappedMinimaxProblem(A, self.fixed[models], cap, self.budget)
        x, found, rho = solve_interior_point(problem, GOAL / 3 * self.tail, start / start.sum())
        each = rescale_to_budget(x, cap, self.budget) / cap
        inside = each[kind] * own
        scores = self.fixed + inside @ rows
        weights = np.where(self.capped, self.caps, 0.0)
        weights[self.inside] = inside
        lam = np.zeros(len(scores))
        lam[models] = np.maximum(found, 0)
        self.models = models | (scores < scores[models].min())
        return weights, lam / lam.sum(), rho, float(scores.min()) / self.tail


def cold_start(losses: Float64) -> Start:
    """Start from equal model weights."""
    t = losses.shape[1]
    return Start(np.full(t, 1 / t), losses.mean(axis=1), np.ones(t, np.bool_))


def row_keys(losses: Float64) -> Float64:
    """Return a number for each row (n,): equal for equal rows, different for others almost surely."""
    factors = np.random.default_rng(0).random(losses.shape[1])
    keys: Float64 = (losses * factors).sum(axis=1)  # not losses @ factors: each row is summed in one order
    return keys


def equal_rows(losses: Float64) -> tuple[Int64, Int64] | None:
    """Return the first row (k,) of every set of equal rows and each row's set (n,), or None if few are
    equal.
    """
    probe = row_keys(losses[:: max(1, len(losses) // PROBE)])
    if len(np.unique(probe)) > MAX_DISTINCT * len(probe):
        return None
    _, first, kind = np.unique(row_keys(losses), return_index=True, return_inverse=True)
    return (first, kind) if np.array_equal(losses[first[kind]], losses) else None


def _weighted_sum(losses: Float64, weights: Float64) -> Float64:
    """Return weights @ losses (t,); where few rows have weight, the others are not read."""
    rows = np.flatnonzero(weights)
    total: Float64 = weights[rows] @ losses[rows] if 4 * len(rows) < len(weights) else weights @ losses
    return total


def warm_start(losses: Float64, last: Solution, tail: float, copies: Float64 | None = None) -> Start:
    """Return the mixture of the last optimum and a new model that has the smallest CVaR.

    The CVaR is convex in the new model's share, and its slope is the mean change of the rows in the tail, so
    a bracketed secant method finds the minimum. A good start halves the number of passes.

    Parameters
    ----------
    losses : (n, t), the new model's in the last column.
    last : the solution without it.
    """
    t = losses.shape[1]
    scores = _weighted_sum(losses, last.sample_weights)
    old = losses[:, :-1] @ last.model_weights
    change = losses[:, -1] - old
    low, high, share = 0.0, 1.0, 1 / t
    below, above = tail * float(scores[-1] - scores[:-1] @ last.model_weights), 0.0
    for _ in range(TRIALS):
        worst = in_tail(old + share * change, tail, copies).astype(np.float64)
        slope = float(change @ (worst if copies is None else worst * copies))
        low, below = (low, below) if slope > 0 else (share, slope)
        high, above = (share, slope) if slope > 0 else (high, above)
        if above > 0:
            share = low + (high - low) * min(0.9, max(0.1, -below / (above - below)))
        else:
            share = min(2 * share, (low + high) / 2)
    lam = np.append(last.model_weights * (1 - low), low)
    models = lam > NEGLIGIBLE
    near = np.argsort(np.where(models, np.inf, scores), kind="stable")[: t // 10 + 1]
    models[near] = models[-1] = True
    return Start(lam, old + low * change, models)


def sift_cold(losses: Float64, tail: float, copies: Float64 | None = None) -> Solution:
    """Solve the game as :func:`sift` does, from equal model weights; equal rows are priced once."""
    sets = equal_rows(losses)
    if sets is None:
        return sift(losses, cold_start(losses), tail, copies)
    first, kind = sets
    own = np.ones(len(losses)) if copies is None else copies
    total = np.bincount(kind, own).astype(np.float64)
    found = sift(losses[first], cold_start(losses[first]), tail, total)
    share = found.sample_weights / np.where(total > 0, total, 1.0)
    return replace(found, sample_weights=share[kind] * own)


def sift(losses: Float64, start: Start, tail: float, copies: Float64 | None = None) -> Solution:
    """Solve the game for losses (n, t), sample weights ``copies`` (n,) and a tail of less than their sum.

    Returns
    -------
    A solution with the gap that was reached; the caller decides whether it is small enough.
    """
    limit = max(MIN_WINDOW, WINDOW * int(start.models.sum()))
    lam = start.model_weights
    window = _Window(losses, start, tail, limit, copies)
    best = Solution(window.caps / window.caps.sum(), lam, 0.0, np.inf, "sifting")
    for passes in range(1, MAX_PASSES + 1):
        models = window.models
        weights, lam, rho, lower = window.solve(lam)
        excess = losses @ lam - rho
        upper = rho + float((np.maximum(excess, 0) * window.caps).sum()) / tail
        stalled = not upper - lower < best.gap
        if not stalled:
            best = Solution(weights / tail, lam, lower, upper - lower, "sifting", passes)
        if best.gap <= GOAL:
            break
        off_side = np.where(window.capped, -excess, excess)
        off_side[window.inside | (window.caps == 0)] = 0
        wrong = off_side > WRONG
        count = int(wrong.sum())
        if stalled and not count and (models == window.models).all():
            break
        window.admit_rows(wrong & largest(off_side, min(count, limit)))
    return best


def in_tail(risk: Float64, tail: float, copies: Float64 | None) -> Mask:
    """Return the mask (n,) of the rows of largest risk whose sample weights add up to at most ``tail``."""
    if copies is None:
        return largest(risk, int(tail))
    order = np.argsort(-np.where(copies > 0, risk, -1.0), kind="stable")
    mask = np.zeros(len(risk), bool)
    mask[order[np.cumsum(copies[order]) <= tail]] = True
    return mask


def largest(values: Float64, count: int) -> Mask:
    """Return the mask (n,) of the ``count`` largest of finite values, 0 <= count <= n; of equal ones the
    first.
    """
    if count <= 0:
        return np.zeros(len(values), bool)
    cut = np.partition(values, len(values) - count)[len(values) - count]
    taken: Mask = values > cut
    taken[np.flatnonzero(values == cut)[: count - int(np.count_nonzero(taken))]] = True
    return taken
