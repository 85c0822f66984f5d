"""Weights of maximal entropy under a cap: the rows' answer to given risks, closed up to one scalar."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.lpboost.group import Alone, Group, extremes

Array = npt.NDArray[np.float64]

ROUNDING = 1e-13


def entropy(weights: Array) -> float:
    """-sum w log w, with 0 log 0 = 0."""
    positive = weights[weights > 0]
    return float(-(positive @ np.log(positive)))


def capped_softmax(
    scores: Array, tail: float, group: Group | None = None, start: float | None = None
) -> tuple[Array, float]:
    """The w that maximises <w, scores> + H(w) over the simplex with every w_i <= 1/tail.

    By the optimality conditions it is min(1/tail, exp(scores + shift)). Each step towards the shift
    scales the free rows to what the capped ones leave, or halves a bracket where that is slow.

    Parameters
    ----------
    scores : (n,) finite; those of this worker.
    tail : at least 1, at most the number of rows of the group.
    group : the workers that hold the rows; default: this one alone.
    start : where to start looking for the shift; default: the plain softmax's.

    Returns
    -------
    w : (n,) of this worker's rows.
    shift : float.
    """
    group = group or Alone()
    log_cap = -np.log(tail)
    n = float(group.total(np.array([float(len(scores))]))[0])
    least, most = extremes(group, scores)
    low, high = -most - np.log(n), log_cap - least  # all rows below 1/n; all rows at the cap
    shift, move, total = low if start is None else float(np.clip(start, low, high)), np.inf, 1.0
    for _ in range(200):
        raw = scores + shift
        weights = np.exp(np.minimum(raw, log_cap))
        sums = np.array([weights.sum(), weights[raw < log_cap].sum()])
        total, free = (float(value) for value in group.total(sums))
        low, high = (shift, high) if total < 1 else (low, shift)
        if abs(total - 1) <= ROUNDING or high - low <= ROUNDING * max(1.0, abs(shift)):
            break
        rest = free - (total - 1)
        step = float(np.log(rest / free)) if rest > 0 and free > 0 else np.inf
        slow = abs(step) > move / 2 or not low < shift + step < high
        following = (low + high) / 2 if slow else shift + step
        move, shift = abs(following - shift), following
    # The bracket may close before rounding lets the sum reach 1; its upper end can be scaled down.
    if total < 1 - 2 * ROUNDING:
        weights = np.exp(np.minimum(scores + high, log_cap))
        total = float(group.total(np.array([weights.sum()]))[0])
    return np.minimum(weights / total, 1 / tail), shift


def regularised_risk(risk: Array, tail: float, beta: float) -> float:
    """Largest <w, risk> + H(w)/beta over the weights of :func:`capped_softmax`: CVaR with entropy.

    Computed as a Lagrangian, which bounds it from above however much rounding has moved the shift.
    """
    _, shift = capped_softmax(beta * risk, tail)
    excess = risk + shift / beta
    log_w = np.minimum(beta * excess, -np.log(tail))
    each = np.exp(log_w) * (excess + (1 - log_w) / beta)
    return float(each.sum() - (shift + 1) / beta)
