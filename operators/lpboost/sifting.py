"""alpha-LPBoost by sifting: a small LP over the rows near the threshold, the others fixed on their side.

At the optimum a row's risk (losses @ lambda)_i above the threshold rho means weight 1/tail, below it
weight 0; only rows at rho lie between, and they are few or alike. So guess a window of rows around
rho, solve the LP over them alone, price all rows, let those in that stand on the wrong side, and
repeat until the duality gap is closed (Bixby et al. 1992 call it sifting). Rows with the same losses
are one column of the small LP and get the same weight. Models are sifted likewise: the LP starts with those
that had weight in the last round or were near it, and a model that beats them all joins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.lpboost.group import Group, Mask, largest
from operators.lpboost.interior import SmallGame, exact_mass, solve_small
from operators.lpboost.problem import GOAL, Solution

Array = npt.NDArray[np.float64]

WINDOW, LEAST_WINDOW = 12, 768
"""Rows in the window for each model, and at least; let in at most as many at a time (measured: half or
twice as many cost up to a third more)."""
MAX_PASSES = 100
TRIALS = 5
"""Shares of a new model that are tried (measured: more save no passes)."""
NEGLIGIBLE = 1e-6
"""A model of less weight is not in the next round's first LP, unless its loss is among the least of those."""
WRONG = 1e-10
"""Distance from rho, in units of loss, at which a fixed row stands on the wrong side."""


@dataclass(frozen=True)
class Start:
    """Where sifting starts."""

    model_weights: Array
    """(t,), in the simplex."""
    risk: Array
    """(n,): losses @ model_weights, of this worker's rows."""
    models: Mask
    """(t,): those of the first LP, at least one with weight."""


class _Window:
    """Rows and models of the small LP; which other rows are fixed at the cap, and what those contribute."""

    def __init__(self, group: Group, losses: Array, start: Start, tail: float, rows: int, n: int) -> None:
        self.group, self.losses, self.tail, self.models = group, losses, tail, start.models.copy()
        self.factors = np.random.default_rng(0).random(losses.shape[1])
        first, last = max(0, int(tail) - rows // 2), min(n, int(tail) + rows // 2 + 1)
        self.capped = largest(group, start.risk, first)
        self.inside = largest(group, start.risk, last) & ~self.capped
        # (t,): sum of the capped rows' losses
        self.fixed = group.total(_weighted_sum(losses, self.capped.astype(np.float64)))
        self.mass = tail - first

    def open(self, wrong: npt.NDArray[np.bool_]) -> None:
        """Let rows in."""
        leaving = wrong & self.capped
        out = self.group.total(np.append(self.losses[leaving].sum(axis=0), float(leaving.sum())))
        self.fixed, self.mass = self.fixed - out[:-1], self.mass + float(out[-1])
        self.inside |= wrong
        self.capped &= ~wrong

    def solve(self, model_weights: Array) -> tuple[Array, Array, float, float]:
        """(w of this worker's rows times tail, lambda, rho, lower bound) of the LP over the window."""
        rows, own = self.group.gather(self.losses[self.inside])
        # Equal rows have equal keys, as each is summed in one order; others differ almost surely.
        keys = (rows * self.factors).sum(axis=1)
        _, first, kind, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        cap, models = count.astype(np.float64), self.models
        A = np.ascontiguousarray(rows[first][:, models].T)
        start = model_weights[models] + 1e-9  # not all 0
        x, found, rho = solve_small(
            SmallGame(A, self.fixed[models], cap, self.mass), GOAL / 3 * self.tail, start / start.sum()
        )
        each = exact_mass(x, cap, self.mass) / cap
        scores = self.fixed + each[kind] @ rows
        weights = self.capped.astype(np.float64)
        weights[self.inside] = each[kind][own]
        lam = np.zeros(len(scores))
        lam[models] = np.maximum(found, 0)
        self.models = models | (scores < scores[models].min())
        return weights, lam / lam.sum(), rho, float(scores.min()) / self.tail


def cold_start(losses: Array) -> Start:
    """All models alike."""
    t = losses.shape[1]
    return Start(np.full(t, 1 / t), losses.mean(axis=1), np.ones(t, np.bool_))


def _weighted_sum(losses: Array, weights: Array) -> Array:
    """weights @ losses; where few rows have weight, without reading the others."""
    rows = np.flatnonzero(weights)
    total: Array = weights[rows] @ losses[rows] if 4 * len(rows) < len(weights) else weights @ losses
    return total


def with_new_model(group: Group, losses: Array, last: Solution, tail: float) -> Start:
    """Where to start once a model is added: the mixture of the last optimum and it that has the least CVaR.

    losses : (n, t) of this worker, the new model's in the last column. last : the solution without it.

    The CVaR is convex along the way, and its slope the tail's mean of what changes: a bracketed secant
    method. A good start halves the passes; a fixed share is too much for a model that was trained on
    the tail, or too little.
    """
    t = losses.shape[1]
    scores = group.total(_weighted_sum(losses, last.sample_weights))
    old = losses[:, :-1] @ last.model_weights
    change = losses[:, -1] - old
    low, high, share = 0.0, 1.0, 1 / t
    below, above = tail * float(scores[-1] - scores[:-1] @ last.model_weights), 0.0
    for _ in range(TRIALS):
        worst = largest(group, old + share * change, int(tail))
        slope = float(group.total(np.array([change @ worst.astype(np.float64)]))[0])
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


def sift(group: Group, losses: Array, start: Start, tail: float, n_rows: int) -> Solution:
    """Solve the game for the rows of a group; every worker gets its own rows' weights.

    losses : (n, t) of this worker. tail : 1 <= tail < n_rows, the rows of the whole group.

    The gap is what was reached; the caller decides whether it will do.
    """
    limit = max(LEAST_WINDOW, WINDOW * int(start.models.sum()))
    lam = start.model_weights
    best = Solution(np.full(len(losses), 1 / n_rows), lam, 0.0, np.inf, "sifting")
    window = _Window(group, losses, start, tail, limit, n_rows)
    for passes in range(1, MAX_PASSES + 1):
        models = window.models
        weights, lam, rho, lower = window.solve(lam)
        excess = losses @ lam - rho
        upper = rho + float(group.total(np.array([np.maximum(excess, 0).sum()]))[0]) / tail
        stalled = not upper - lower < best.gap
        if not stalled:
            best = Solution(weights / tail, lam, lower, upper - lower, "sifting", passes)
        if best.gap <= GOAL:
            break
        off_side = np.where(window.capped, -excess, excess)
        off_side[window.inside] = 0
        wrong = off_side > WRONG
        count = int(group.total(np.array([float(wrong.sum())]))[0])
        if stalled and not count and (models == window.models).all():
            break
        window.open(wrong & largest(group, off_side, min(count, limit)))
    return best
