"""The decorrelation regulariser (DCKM, equation 5) as a function of four sums over rows.

For each feature k, rows are treated (T_ik = 1) or not, and the weighted means of all other features
should be the same in both parts. With s = T'w, t = sum(w) - s, C = Z' diag(w) T and v = Z'w,

    D_jk = C_jk / s_k - (v_j - C_jk) / t_k,   D_kk = 0,   cost = ||D||_F^2.

Source: Wang, Fan, Kuang, Shi, Liu, Wang: Decorrelated Clustering with Data Selection Bias, IJCAI 2020.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from operators.arrays import Float64

LEAST_SHARE = 1e-6
"""A part with less of the weight than this has no mean in float32: its feature is left out."""


class Moments(NamedTuple):
    """Sums over rows, all linear in the weights.

    Attributes
    ----------
    cross : (d, d) C = Z' diag(w) T.
    total : (d,) v = Z'w.
    treated : (d,) s = T'w.
    weight : () sum of w.
    """

    cross: Float64
    total: Float64
    treated: Float64
    weight: Float64

    def along(self, first: Moments, second: Moments, step: float) -> Moments:
        """The sums under w + step w1 + step^2 w2, from those under w, w1 and w2."""
        return Moments(*(a + step * (b + step * c) for a, b, c in zip(self, first, second, strict=True)))


class Derivative(NamedTuple):
    """Derivatives of the cost by each of the four sums, as in :class:`Moments`."""

    cross: Float64
    total: Float64
    treated: Float64
    weight: float


def balance_cost(sums: Moments) -> float:
    """Equation 5. A feature without treated or without untreated weight counts as balanced."""
    D = _difference(sums, *_shares(sums))
    return float(np.vdot(D, D))


def balance_derivative(sums: Moments) -> tuple[float, Derivative]:
    """Equation 5, and its derivatives by the sums."""
    over_s, over_t = _shares(sums)
    D = _difference(sums, over_s, over_t)
    both = over_s + over_t
    along_c = np.einsum("jk,jk->k", D, sums.cross)
    along_v = sums.total @ D
    by_s = -2 * along_c * over_s**2
    by_t = 2 * (along_v - along_c) * over_t**2
    return float(np.vdot(D, D)), Derivative(
        cross=2 * D * both,
        total=-2 * (D @ over_t),
        treated=by_s - by_t,
        weight=float(by_t.sum()),
    )


def correlation(gram: Float64, total: Float64, weight: float) -> float:
    """Frobenius norm of the off-diagonal weighted covariance (figure 2; Cogswell et al. 2016).

    Parameters
    ----------
    gram : (d, d) Z' diag(w) Z.
    total : (d,) Z'w.
    weight : sum of w, > 0.
    """
    mean = total / weight
    covariance = gram / weight - np.outer(mean, mean)
    np.fill_diagonal(covariance, 0.0)
    return float(np.linalg.norm(covariance))


def _shares(sums: Moments) -> tuple[Float64, Float64]:
    """1 / s and 1 / t; 0 and 0 where a feature is the same in (nearly) all of the weight."""
    s, t = sums.treated, sums.weight - sums.treated
    least = LEAST_SHARE * sums.weight
    usable = (s > least) & (t > least)
    over_s, over_t = (np.divide(1.0, part, out=np.zeros_like(part), where=usable) for part in (s, t))
    return over_s, over_t


def _difference(sums: Moments, over_s: Float64, over_t: Float64) -> Float64:
    D: Float64 = sums.cross * (over_s + over_t)
    D -= np.outer(sums.total, over_t)
    np.fill_diagonal(D, 0.0)
    return D
