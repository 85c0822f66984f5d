"""The capped softmax: sample weights that maximise risk plus entropy under a cap.

With a cap of 1/tail on every weight, the w that maximises <w, risk> + H(w) / beta over the simplex is
min(1/tail, exp(beta risk + shift)), where only the shift has to be searched (Warmuth et al. 2008). Newton's
method for the regularised game (equation 8 of Zhai et al. 2021) and its duality gap use it.

Rows with sample weights c (mean 1) count as c_i copies each: the caps are c_i/tail, the entropy is that of
the copies, H(w) = -sum w log(w / c), and the solution is c_i min(1/tail, exp(beta risk_i + shift)).
"""

from __future__ import annotations

import numpy as np

from operators.arrays import Float64

ROUNDING = 1e-13


def entropy(weights: Float64, copies: Float64 | None = None) -> float:
    """Return H(w) = -sum w log(w / c) in nats, with 0 log 0 = 0; ``copies`` c (n,) is 1 by default."""
    is_positive = weights > 0
    positive = weights[is_positive]
    return float(-(positive @ np.log(positive if copies is None else positive / copies[is_positive])))


def capped_softmax(
    scores: Float64, tail: float, start: float | None = None, copies: Float64 | None = None
) -> tuple[Float64, float]:
    """Maximise <w, scores> + H(w) over the simplex with every w_i <= c_i/tail.

    The optimality conditions give c_i min(1/tail, exp(scores + shift)). Each step towards the shift scales
    the free rows to the weight that the capped ones leave, or halves a bracket where that is slow.

    Parameters
    ----------
    scores : (n,) finite, n >= 1.
    tail : at least 1, at most n.
    start : shift from which the search starts; by default the lower end of its bracket.
    copies : (n,) c >= 0, sum n; default 1.

    Returns
    -------
    w : (n,) weights, sum 1.
    shift : float.
    """
    log_cap = -np.log(tail)
    smallest, largest = float(scores.min()), float(scores.max())
    # At the lower end all rows weigh at most 1/n, at the upper end all rows are at the cap.
    low, high = -largest - np.log(float(len(scores))), log_cap - smallest
    shift, move, total = low if start is None else float(np.clip(start, low, high)), np.inf, 1.0
    for _ in range(200):
        raw = scores + shift
        weights = _times(np.exp(np.minimum(raw, log_cap)), copies)
        total, free = float(weights.sum()), float(weights[raw < log_cap].sum())
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
        weights = _times(np.exp(np.minimum(scores + high, log_cap)), copies)
        total = float(weights.sum())
    return np.minimum(weights / total, 1 / tail if copies is None else copies / tail), shift


def _times(values: Float64, copies: Float64 | None) -> Float64:
    return values if copies is None else values * copies


def regularised_risk(risk: Float64, tail: float, beta: float, copies: Float64 | None = None) -> float:
    """Return the largest <w, risk> + H(w)/beta over the weights of :func:`capped_softmax`.

    This is the CVaR of the risk (n,) with an entropy term. It is computed as a Lagrangian, which is an upper
    bound however much rounding has moved the shift.
    """
    _, shift = capped_softmax(beta * risk, tail, copies=copies)
    excess = risk + shift / beta
    log_w = np.minimum(beta * excess, -np.log(tail))
    each = _times(np.exp(log_w), copies) * (excess + (1 - log_w) / beta)
    return float(each.sum() - (shift + 1) / beta)
