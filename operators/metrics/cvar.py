"""Conditional value at risk (CVaR), and sample weights relative to their mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64


def cvar(losses: npt.ArrayLike, alpha: float, sample_weight: npt.ArrayLike | None = None) -> float:
    """Return the conditional value at risk: the mean of the worst ``alpha * n`` losses.

    Parameters
    ----------
    losses : (n,) array
        Finite losses of any scale.
    alpha : float
        Size of the tail, in (0, 1]; 1 gives the mean.
    sample_weight : (n,) array, optional
        How often each row counts, at least 0 and not all 0; by default once. A whole number counts as that
        many copies of its row.

    Returns
    -------
    float
        At least the mean and at most the largest loss.

    Raises
    ------
    ValueError
        There are no rows, more than one column or a value that is not finite, or alpha or a weight is out of
        range.

    Notes
    -----
    The largest sum_i w_i losses_i over weights in the simplex with w_i <= 1/(alpha n) (Zhai et al. 2021,
    equation 2). ``alpha * n`` need not be a whole number: the last row of the tail counts in part. Below one
    row the result is the largest loss. For 0/1 losses it is min(1, mean / alpha).

    Examples
    --------
    >>> from operators.metrics import cvar
    >>> cvar([0.0, 0.0, 1.0, 3.0], alpha=0.5)
    2.0
    """
    values = np.asarray(losses, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"losses has shape {values.shape}; give (n,) with at least one row")
    if not np.isfinite(values).all():
        raise ValueError(f"{np.sum(~np.isfinite(values))} of {len(values)} losses are not finite; drop them")
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha is {alpha!r}; give the share of rows that make up the tail, 0 < alpha <= 1")
    if sample_weight is not None:
        return _weighted_cvar(values, alpha, relative_weights(sample_weight, len(values)))
    n = len(values)
    tail = min(float(n), max(1.0, alpha * n))
    whole = int(tail)
    part = tail - whole
    worst = -np.partition(-values, min(whole, n - 1))[: whole + 1]
    total = float(worst[:whole].sum())
    return (total + part * float(worst[whole]) if part else total) / tail


def _weighted_cvar(values: Float64, alpha: float, weights: Float64) -> float:
    order = np.argsort(-values, kind="stable")
    own = weights[order]
    tail = alpha * len(values)
    taken = np.clip(tail - (np.cumsum(own) - own), 0, own)
    return float(values[order] @ taken / taken.sum())


def relative_weights(sample_weight: npt.ArrayLike, n: int) -> Float64:
    """Return weights (n,) divided by their mean; equal ones become exactly 1.

    Raises ValueError for another shape, a weight that is negative or not finite, or no weight above 0.
    """
    weights = np.asarray(sample_weight, np.float64)
    if weights.shape != (n,):
        raise ValueError(f"sample_weight has shape {weights.shape}; give one value for each of the {n} rows")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise ValueError(f"sample_weight: row {bad[0]} has {weights[bad[0]]:g}; give finite numbers >= 0")
    if not weights.any():
        raise ValueError(f"sample_weight: the weights of the {n} rows are all 0; at least one must count")
    if weights.min() == weights.max():
        return np.ones(n)
    return np.asarray(weights / weights.mean(), np.float64)
