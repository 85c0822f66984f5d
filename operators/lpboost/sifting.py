"""alpha-LPBoost by sifting: a small LP over the rows near the threshold, the others fixed on their side.

At the optimum a row's risk (losses @ lambda)_i above the threshold rho means weight 1/tail, below it
weight 0; only rows at rho lie between, and they are few or alike. So guess a window of rows around
rho, solve the LP over them alone, price all rows, let those in that stand on the wrong side, and
repeat until the duality gap is closed (Bixby et al. 1992 call it sifting). Rows with the same losses
are one column of the small LP and get the same weight.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.lpboost.group import Group, largest
from operators.lpboost.interior import SmallGame, exact_mass, solve_small
from operators.lpboost.problem import GOAL, Solution

Array = npt.NDArray[np.float64]

WINDOW, LEAST_WINDOW = 12, 768
"""Rows in the window for each model, and at least; let in at most as many at a time (measured: half or
twice as many cost up to a third more)."""
MAX_PASSES = 100
HALVINGS = 8
WRONG = 1e-10
"""Distance from rho, in units of loss, at which a fixed row stands on the wrong side."""


class _Window:
    """Which rows are in the small LP, which are fixed at the cap, and what those contribute."""

    def __init__(self, group: Group, losses: Array, risk: Array, tail: float, rows: int, n: int) -> None:
        self.group, self.losses, self.tail = group, losses, tail
        self.factors = np.random.default_rng(0).random(losses.shape[1])
        first, last = max(0, int(tail) - rows // 2), min(n, int(tail) + rows // 2 + 1)
        self.capped = largest(group, risk, first)
        self.inside = largest(group, risk, last) & ~self.capped
        self.fixed = group.total(self.capped.astype(np.float64) @ losses)  # (t,): sum of capped rows' losses
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
        cap = count.astype(np.float64)
        game = SmallGame(np.ascontiguousarray(rows[first].T), self.fixed, cap, self.mass)
        x, lam, rho = solve_small(game, GOAL / 10, model_weights)
        each = exact_mass(x, cap, self.mass) / cap
        lower = float((self.fixed + each[kind] @ rows).min()) / self.tail
        weights = self.capped.astype(np.float64)
        weights[self.inside] = each[kind][own]
        lam = np.maximum(lam, 0)
        return weights, lam / lam.sum(), rho, lower


def with_new_model(group: Group, losses: Array, model_weights: Array, tail: float) -> Array:
    """Where to start once a model is added: the mixture of the last optimum and it that has the least CVaR.

    losses : (n, t), the new model's in the last column. model_weights : (t - 1,), the last optimum.

    The CVaR is convex along the way, and its slope the tail's mean of what changes: bisection. A good start
    halves the passes; a fixed share is too much for a model that was trained on the tail, or too little.
    """
    old = losses[:, :-1] @ model_weights
    change = losses[:, -1] - old
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        share = (low + high) / 2
        worst = largest(group, old + share * change, int(tail))
        slope = float(group.total(np.array([change[worst].sum()]))[0])
        low, high = (low, share) if slope > 0 else (share, high)
    return np.append(model_weights * (1 - low), low)


def sift(group: Group, losses: Array, model_weights: Array, tail: float, n_rows: int) -> Solution:
    """Solve the game for the rows of a group; every worker gets its own rows' weights.

    losses : (n, t) of this worker. model_weights : (t,), where to start.
    tail : 1 <= tail < n_rows, the rows of the whole group.

    The gap is what was reached; the caller decides whether it will do.
    """
    t = losses.shape[1]
    limit = max(LEAST_WINDOW, WINDOW * t)
    lam = model_weights
    best = Solution(np.full(len(losses), 1 / n_rows), lam, 0.0, np.inf, "sifting")
    window = _Window(group, losses, losses @ lam, tail, limit, n_rows)
    for passes in range(1, MAX_PASSES + 1):
        weights, lam, rho, lower = window.solve(lam)
        excess = losses @ lam - rho
        upper = rho + float(group.total(np.array([np.maximum(excess, 0).sum()]))[0]) / tail
        stalled = not upper - lower < best.gap
        if not stalled:
            best = Solution(weights / tail, lam, lower, upper - lower, "sifting", passes)
        off_side = np.where(window.capped, -excess, excess)
        off_side[window.inside] = 0
        wrong = off_side > WRONG
        count = int(group.total(np.array([float(wrong.sum())]))[0])
        if best.gap <= GOAL or (stalled and not count):
            break
        window.open(wrong & largest(group, off_side, min(count, limit)))
    return best
