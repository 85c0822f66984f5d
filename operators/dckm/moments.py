"""Weighted sums over rows that the decorrelation regulariser needs, and its derivative by a row's weight.

Everything here is additive over rows, so that blocks, shards and workers add up. Products are made in the
type of the features (float32 as a rule, float64 for a reference), sums over blocks in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.dckm.balance import Derivative, Moments

Floats = npt.NDArray[np.floating]

ROW_BLOCK = 2048
"""Rows whose weighted copy is held at a time."""
COLUMN_BLOCK = 128
"""Columns of a symmetric product made at a time: nothing left of the diagonal's block is computed."""


@dataclass(frozen=True)
class Coded:
    """Features as the regulariser reads them.

    Attributes
    ----------
    Z : (n, d) float32 or float64, C-contiguous.
    signs : every entry of Z is -1 or +1. Then treated = (Z + 1) / 2, and all products are symmetric.
    """

    Z: Floats
    signs: bool

    def __len__(self) -> int:
        return len(self.Z)

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.Z.shape[1])

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """A bounded number of rows at a time, counted from the first."""
        for start in range(0, len(self.Z), ROW_BLOCK):
            rows = slice(start, min(start + ROW_BLOCK, len(self.Z)))
            yield rows, self.Z[rows]


def moments(coded: Coded, weight: Float64) -> Moments:
    """The sums of :class:`Moments` under ``weight`` (n,), which may have either sign."""
    d = coded.width
    cross, along, treated = np.zeros((d, d)), np.zeros(d), np.zeros(d)
    for rows, Z in coded.blocks():
        w = weight[rows].astype(Z.dtype)
        along += w @ Z
        if coded.signs:
            cross += _symmetric_product(Z, w)
        else:
            T = (Z > 0).astype(Z.dtype)
            treated += w @ T
            T *= w[:, None]
            cross += Z.T @ T
    weight_sum = np.array(weight.sum())
    if coded.signs:
        treated = (weight_sum + along) / 2
        cross += along[:, None]
        cross /= 2
    return Moments(cross, along, treated, weight_sum)


def row_gradient(coded: Coded, derivative: Derivative) -> Float64:
    """(n,) derivative of the balance cost by the weight of each row.

    The cost depends on the weights through four sums alone, so that
    g_i = z_i' P t_i + p' z_i + q' t_i + c, with t_i the row's treated marks.
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
    """(d, d) Z' diag(weight) Z, whatever the coding."""
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
    """Z' diag(w) Z from its blocks on and above the diagonal: about 60 % of the work at 500 columns."""
    d = Z.shape[1]
    out = np.empty((d, d), Z.dtype)
    for start in range(0, d, COLUMN_BLOCK):
        stop = min(start + COLUMN_BLOCK, d)
        np.matmul(Z[:, :stop].T, Z[:, start:stop] * w[:, None], out=out[:stop, start:stop])
        out[start:stop, :start] = out[:start, start:stop].T
    return out


def _upper_twice(Q: Float64) -> Float64:
    """The symmetric Q with the blocks below the diagonal moved above it: z' Q z stays the same."""
    upper = 2 * Q
    for start in range(0, len(Q), COLUMN_BLOCK):
        block = slice(start, start + COLUMN_BLOCK)
        upper[block, block] = Q[block, block]
    return upper


def _quadratic(Z: Floats, upper: Floats) -> Float64:
    """z' U z of each row, U zero below the blocks of the diagonal."""
    found = np.zeros(len(Z))
    d = Z.shape[1]
    for start in range(0, d, COLUMN_BLOCK):
        stop = min(start + COLUMN_BLOCK, d)
        found += np.einsum("ij,ij->i", Z[:, :stop] @ upper[:stop, start:stop], Z[:, start:stop])
    return found
