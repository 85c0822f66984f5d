"""Risk in the tail: the mean of the worst losses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def cvar(losses: npt.ArrayLike, alpha: float) -> float:
    """Conditional value at risk: the mean of the worst ``alpha * n`` losses.

    The largest sum w_i losses_i over weights in the simplex with w_i <= 1/(alpha n) (Zhai et al. 2021,
    equation 2). ``alpha * n`` need not be a whole number: the last row of the tail counts in part;
    below one row the result is the largest loss. For 0/1 losses it is min(1, mean / alpha).

    Parameters
    ----------
    losses : (n,) finite losses, any scale; of a mixture of models: its expected losses.
    alpha : size of the tail, in (0, 1]; 1 gives the mean.

    Returns
    -------
    float, at least the mean and at most the largest loss.

    Raises
    ------
    ValueError : no rows, more than one column, a value that is not finite, or alpha out of range.
    """
    values = np.asarray(losses, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"losses has shape {values.shape}; give (n,) with at least one row")
    if not np.isfinite(values).all():
        raise ValueError(f"{np.sum(~np.isfinite(values))} of {len(values)} losses are not finite; drop them")
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha is {alpha!r}; give the share of rows that make up the tail, 0 < alpha <= 1")
    n = len(values)
    tail = min(float(n), max(1.0, alpha * n))
    whole = int(tail)
    part = tail - whole
    worst = -np.partition(-values, min(whole, n - 1))[: whole + 1]
    total = float(worst[:whole].sum())
    return (total + part * float(worst[whole]) if part else total) / tail
