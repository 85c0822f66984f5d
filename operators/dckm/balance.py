"""The decorrelation regulariser (DCKM, equation 5) as a function of four sums over rows.

For each feature k, rows are treated (T_ik = 1) or not, and the weighted means of all other features should be
the same among treated and untreated rows. With s = T'w, t = sum(w) - s, C = Z' diag(w) T and v = Z'w,

    D_jk = C_jk / s_k - (v_j - C_jk) / t_k,   D_kk = 0,   cost = ||D||_F^2.

The sums are computed in blocks of rows and columns, from features that are coded as -1 and +1 or as standard
scores (:class:`Coded`).

Source: Wang, Fan, Kuang, Shi, Liu, Wang: Decorrelated Clustering with Data Selection Bias, IJCAI 2020.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from operators.arrays import Float64, Floats

MIN_SHARE = 1e-6
"""A feature counts as balanced if its treated or its untreated rows have less than this share of the weight:
in float32 the mean of so little weight is rounding."""


class Moments(NamedTuple):
    """Sums over rows, linear in the weights.

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
        """Return the sums under w + step w1 + step^2 w2, from those under w, w1 and w2."""
        return Moments(*(a + step * (b + step * c) for a, b, c in zip(self, first, second, strict=True)))


class Derivative(NamedTuple):
    """Derivatives of the cost by the four sums of :class:`Moments`, of the same shapes."""

    cross: Float64
    total: Float64
    treated: Float64
    weight: float


def balance_cost(sums: Moments) -> float:
    """Return the cost of equation 5. A feature that is the same in all of the weight counts as balanced."""
    D = _difference(sums, *_shares(sums))
    return float(np.vdot(D, D))


def balance_derivative(sums: Moments) -> tuple[float, Derivative]:
    """Return the cost of equation 5, and its derivatives by the four sums."""
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
    """Return the Frobenius norm of the off-diagonal weighted covariance (figure 2; Cogswell et al. 2016).

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
    """Return 1 / s and 1 / t (d,), both 0 for a feature that is the same in nearly all of the weight."""
    s, t = sums.treated, sums.weight - sums.treated
    least = MIN_SHARE * sums.weight
    usable = (s > least) & (t > least)
    over_s, over_t = (np.divide(1.0, part, out=np.zeros_like(part), where=usable) for part in (s, t))
    return over_s, over_t


def _difference(sums: Moments, over_s: Float64, over_t: Float64) -> Float64:
    D: Float64 = sums.cross * (over_s + over_t)
    D -= np.outer(sums.total, over_t)
    np.fill_diagonal(D, 0.0)
    return D


ROW_BLOCK = 2048
"""Rows whose weighted copy is held at a time."""
COLUMN_BLOCK = 128
"""Columns of a symmetric product that are computed at a time; blocks below the diagonal are copied."""


@dataclass(frozen=True)
class Coded:
    """Features as the regulariser reads them.

    Attributes
    ----------
    Z : (n, d) float32 or float64, C-contiguous.
    signs : whether every entry of Z is -1 or +1. Then T = (Z + 1) / 2, and all products are symmetric.
        Otherwise T = (Z > 0).
    """

    Z: Floats
    signs: bool

    def __len__(self) -> int:
        return len(self.Z)

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.Z.shape[1])

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield up to ``ROW_BLOCK`` rows at a time, as a slice and their codes."""
        for start in range(0, len(self.Z), ROW_BLOCK):
            rows = slice(start, min(start + ROW_BLOCK, len(self.Z)))
            yield rows, self.Z[rows]


def moments(coded: Coded, weight: Float64) -> Moments:
    """Compute the sums of :class:`Moments` under ``weight`` (n,), whose entries may be negative.

    Products are of the features' type. The sums over one column are float64, because with signs s is the
    difference of two of them: in float32 a share of 1e-6 of the weight would have an error of 4 %.
    """
    d = coded.width
    cross, along, treated = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for rows, Z in coded.blocks():
        w = weight[rows].astype(Z.dtype)
        along += weight[rows] @ Z.astype(np.float64)
        if coded.signs:
            cross += _symmetric_product(Z, w)
        else:
            T = Z > 0
            treated += weight[rows] @ T.astype(np.float64)
            cross += Z.T @ (T * w[:, None])
    weight_sum = np.array(weight.sum())
    if coded.signs:
        treated = (weight_sum + along) / 2
        cross += along[:, None]
        cross /= 2
    return Moments(cross, along, treated, weight_sum)


def row_gradient(coded: Coded, derivative: Derivative) -> Float64:
    """Return the derivative (n,) of the balance cost by the weight of each row.

    The cost depends on the weights through the four sums alone, so that
    g_i = z_i' P t_i + p' z_i + q' t_i + c, where t_i is row i of T.
    """
    P, p, q = derivative.cross, derivative.total, derivative.treated
    constant = derivative.weight
    found = np.empty(len(coded))
    if coded.signs:  # t = (z + 1) / 2
        p = p + (q + P.sum(axis=1)) / 2
        constant += float(q.sum()) / 2
        P = _upper_twice((P + P.T) / 4)
    narrow: list[Floats] = [part.astype(coded.Z.dtype) for part in (P, p, q)]
    for rows, Z in coded.blocks():
        if coded.signs:
            found[rows] = _quadratic(Z, narrow[0]) + Z @ narrow[1]
        else:
            T = (Z > 0).astype(Z.dtype)
            found[rows] = np.einsum("ij,ij->i", Z @ narrow[0], T) + Z @ narrow[1] + T @ narrow[2]
    return found + constant


def gram(coded: Coded, weight: Float64) -> Float64:
    """Return Z' diag(weight) Z (d, d)."""
    found = np.zeros((coded.width, coded.width))
    for rows, Z in coded.blocks():
        found += _symmetric_product(Z, weight[rows].astype(Z.dtype))
    return found


def total(coded: Coded, weight: Float64) -> Float64:
    """Return the weighted column sums Z'w (d,)."""
    found = np.zeros(coded.width)
    for rows, Z in coded.blocks():
        found += weight[rows].astype(Z.dtype) @ Z
    return found


def _symmetric_product(Z: Floats, w: Floats) -> Floats:
    """Return Z' diag(w) Z (d, d), of which only the blocks on and above the diagonal are computed."""
    d = Z.shape[1]
    out = np.empty((d, d), Z.dtype)
    for start in range(0, d, COLUMN_BLOCK):
        stop = min(start + COLUMN_BLOCK, d)
        np.matmul(Z[:, :stop].T, Z[:, start:stop] * w[:, None], out=out[:stop, start:stop])
        out[start:stop, :start] = out[:start, start:stop].T
    return out


def _upper_twice(Q: Float64) -> Float64:
    """Return U (d, d) with z' U z = z' Q z for a symmetric Q, whose blocks above the diagonal are doubled.

    :func:`_quadratic` does not read the blocks below the diagonal.
    """
    upper = 2 * Q
    for start in range(0, len(Q), COLUMN_BLOCK):
        block = slice(start, start + COLUMN_BLOCK)
        upper[block, block] = Q[block, block]
    return upper


def _quadratic(Z: Floats, upper: Floats) -> Float64:
    """Return z' U z (n,) of each row, where blocks of U below the diagonal count as zero."""
    found = np.zeros(len(Z))
    d = Z.shape[1]
    for start in range(0, d, COLUMN_BLOCK):
        stop = min(start + COLUMN_BLOCK, d)
        found += np.einsum("ij,ij->i", Z[:, :stop] @ upper[:stop, start:stop], Z[:, start:stop])
    return found
