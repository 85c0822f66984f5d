"""The game of alpha-LPBoost (Zhai et al. 2021, section 3.1): its data, its checks and its duality gap.

Losses are an (n, t) matrix: column s holds the losses of base model s on the n rows, each in [0, 1]. One
player mixes the models by lambda in the simplex; the other weights the rows by w in the simplex with
w_i <= 1/(alpha n). The value of the game is

    min over lambda of CVaR_alpha(losses @ lambda) = max over w of min_s <w, l_s>    (Proposition 3),

that is 1 - rho* of the paper's primal (6) and 1 - gamma* of its dual (5). Any feasible pair brackets it.
With sample weights c of mean 1 (published trust, or copies of rows) row i counts c_i times: the caps are
c_i/(alpha n), that is a share of 1/alpha times the row's share of all weight, and CVaR_alpha is that of the
weighted rows. Rows of weight 0 take no part.

With ``beta`` the second player also gains the entropy H(w)/beta (equation 8, whose inequality is printed the
wrong way round in the paper: it must read <w, l_s> >= 1 - gamma).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.lpboost.softmax import entropy, regularised_risk
from operators.metrics import cvar
from operators.metrics.cvar import relative_weights

MAX_GAP = 1e-7
"""Largest duality gap of a returned solution."""
GOAL = MAX_GAP / 4
"""Duality gap that the solvers aim at."""


class UncertifiedError(ArithmeticError):
    """Raised where no solver reaches a duality gap of ``MAX_GAP``; the message has the reached gap."""


@dataclass(frozen=True)
class Solution:
    """Optimal weights of both players, with the duality gap that proves them."""

    sample_weights: Float64
    """(n,) >= 0, sum 1, at most min(1, 1/(alpha n)) each, times the row's sample weight."""
    model_weights: Float64
    """(t,) >= 0, sum 1."""
    value: float
    """The lower bound: min_s <w, l_s>, plus H(w)/beta where there is a beta."""
    gap: float
    """Upper minus lower bound: the value is within ``gap`` of the optimum."""
    method: str
    """Solver: "sifting", "newton", "interior", "highs" or "clarabel"; "mean" where the tail is all rows."""
    passes: int = 0
    """Passes of sifting over all rows, or Newton steps; 0 for other solvers."""


def check_losses(losses: npt.ArrayLike) -> Float64:
    """Return the losses as float64 (n, t). Raises ValueError for another shape or values outside [0, 1]."""
    array = np.asarray(losses, np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"losses has shape {array.shape}; give (rows, models) with at least one of each, "
            "for a single model losses.reshape(-1, 1)"
        )
    _check_range(array)
    return array


def check_loss(loss: npt.ArrayLike, n: int) -> Float64:
    """Return one model's losses as float64 (n,). Raises ValueError as :func:`check_losses` does."""
    array = np.asarray(loss, np.float64)
    if array.shape != (n,):
        raise ValueError(f"loss has shape {array.shape}; give one value for each of the {n} rows")
    _check_range(array)
    return array


def _check_range(array: Float64) -> None:
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if not (low >= 0 and high <= 1):  # NaN fails both
        raise ValueError(
            f"losses lie in [{low:g}, {high:g}]; they must be finite and in [0, 1], "
            "such as 0/1 losses or one minus the probability of the true class"
        )


def check_alpha(alpha: float) -> float:
    """Return ``alpha``. Raises ValueError outside (0, 1]."""
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha is {alpha!r}; give the share of rows that make up the tail, 0 < alpha <= 1")
    return float(alpha)


def check_beta(beta: float | None) -> float | None:
    """Return ``beta``. Raises ValueError unless it is None or a finite number above 0."""
    if beta is not None and not 0 < beta < np.inf:
        raise ValueError(f"beta is {beta!r}; give a number > 0, or None for no entropy term")
    return beta


def tail_rows(n: int, alpha: float, copies: Float64 | None = None) -> float:
    """Return the number of rows in the tail: alpha n, at least 1 (below that the cap does not bind).

    With sample weights ``copies`` (n,) of mean 1 it is at least the smallest of them above 0.
    """
    smallest = 1.0 if copies is None else float(copies[copies > 0].min())
    return min(float(n), max(smallest, alpha * n))


def row_copies(sample_weight: npt.ArrayLike | None, n: int) -> Float64 | None:
    """Return sample weights (n,) divided by their mean; None where all are equal or there are none.

    Raises ValueError as :func:`operators.metrics.cvar.relative_weights` does.
    """
    if sample_weight is None:
        return None
    copies = relative_weights(sample_weight, n)
    return None if bool((copies == 1).all()) else copies


def duality_gap(
    losses: npt.ArrayLike,
    sample_weights: npt.ArrayLike,
    model_weights: npt.ArrayLike,
    alpha: float,
    beta: float | None = None,
    *,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Return an upper bound of the distance of a pair of weights from the optimum of the game.

    Parameters
    ----------
    losses : (n, t) array
        Losses in [0, 1].
    sample_weights : (n,) array
        In the simplex, each at most 1/(alpha n).
    model_weights : (t,) array
        In the simplex.
    alpha : float
        Size of the tail, in (0, 1].
    beta : float, optional
        Strength of the entropy term.
    sample_weight : (n,) array, optional
        How often each row counts, by default once.

    Returns
    -------
    float
        Upper minus lower bound of the game's value, at least 0 up to rounding. 0 means that both weights are
        optimal (strong duality, Proposition 3).

    Raises
    ------
    ValueError
        The weights are not feasible to 1e-9, so that the gap would prove nothing.
    """
    L, w, lam = check_losses(losses), np.asarray(sample_weights, float), np.asarray(model_weights, float)
    copies = row_copies(sample_weight, len(L))
    tail = tail_rows(len(L), check_alpha(alpha), copies)
    caps: tuple[tuple[str, Float64, int, float | Float64], ...] = (
        ("sample_weights", w, L.shape[0], 1 / tail if copies is None else copies / tail),
        ("model_weights", lam, L.shape[1], 1.0),
    )
    for name, values, size, cap in caps:
        _check_weights(name, values, size, cap)
    risks = L @ lam
    lower = float((w @ L).min())
    beta = check_beta(beta)
    if beta is None:
        return cvar(risks, alpha, copies) - lower
    return regularised_risk(risks, tail, beta, copies) - lower - entropy(w, copies) / beta


def _check_weights(name: str, values: Float64, size: int, cap: float | Float64) -> None:
    if values.shape != (size,):
        raise ValueError(f"{name} has shape {values.shape}; for these losses it must be ({size},)")
    low, high, total = float(values.min()), float(values.max()), float(values.sum())
    if not (low >= -1e-9 and bool((values <= cap + 1e-9).all()) and abs(total - 1) <= 1e-9):
        raise ValueError(
            f"{name} lie in [{low:g}, {high:g}] and sum to {total:.12g}; "
            f"they must lie in [0, {np.max(cap):g}] and sum to 1"
        )
