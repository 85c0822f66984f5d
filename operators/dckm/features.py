"""Coding of features for DCKM, as signs or as standard scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.dckm.balance import ROW_BLOCK, Coded
from operators.spread import usable_scale

Coding: TypeAlias = Literal["binarize", "standardize"]
CODINGS: tuple[Coding, ...] = ("binarize", "standardize")


def column_sums(X: npt.NDArray[np.floating]) -> Float64:
    """Return number of rows, sum, least and largest value (4, d) of each column."""
    found = np.zeros((4, X.shape[1]))
    found[2], found[3] = np.inf, -np.inf
    for start in range(0, len(X), ROW_BLOCK):
        block = X[start : start + ROW_BLOCK].astype(np.float64)
        found[0] += len(block)
        found[1] += block.sum(axis=0)
        found[2] = np.minimum(found[2], block.min(axis=0))
        found[3] = np.maximum(found[3], block.max(axis=0))
    return found


def join_sums(first: Float64, second: Float64) -> Float64:
    """Return :func:`column_sums` of two sets of rows together."""
    return np.vstack(
        [first[:2] + second[:2], np.minimum(first[2], second[2]), np.maximum(first[3], second[3])]
    )


def squared_deviations(X: npt.NDArray[np.floating], mean: Float64) -> Float64:
    """Return the sums (d,) of (x - mean)^2."""
    found = np.zeros(X.shape[1])
    for start in range(0, len(X), ROW_BLOCK):
        found += np.square(X[start : start + ROW_BLOCK] - mean).sum(axis=0)
    return found


@dataclass(frozen=True)
class Coder:
    """Codes features for the regulariser and the clusters.

    ``binarize`` makes values above the column's mean +1 and all others -1. ``standardize`` gives mean 0 and
    standard deviation 1, and 0 for constant columns. Either way a row counts as treated by a feature, in the
    sense of :mod:`operators.dckm.balance`, where its value is above the column's mean.

    Attributes
    ----------
    coding : "binarize" or "standardize".
    mean, scale : (d,) mean and standard deviation of the raw features; the scale of a constant one is
        infinite.
    """

    coding: Coding
    mean: Float64
    scale: Float64

    @classmethod
    def from_sums(cls, coding: Coding, sums: Float64, squares: Float64 | None = None) -> Coder:
        """Return the coder for :func:`column_sums` and, for ``standardize``, :func:`squared_deviations`."""
        mean = sums[1] / sums[0]
        if squares is None:
            return cls(coding, mean, np.ones_like(mean))
        spread = np.sqrt(squares / sums[0])
        return cls(coding, mean, usable_scale(spread, sums[2], sums[3], constant=np.inf))

    @classmethod
    def of(cls, X: npt.NDArray[np.floating], coding: Coding) -> Coder:
        """Return the coder for rows X (n, d) in memory."""
        sums = column_sums(X)
        squares = squared_deviations(X, sums[1] / sums[0]) if coding == "standardize" else None
        return cls.from_sums(coding, sums, squares)

    def __call__(self, X: npt.NDArray[np.floating]) -> Coded:
        """Return the codes (n, d), float32, of rows X (n, d)."""
        if self.coding == "binarize":
            Z = np.full(X.shape, -1, np.float32)
            Z[self.mean < X] = 1
            return Coded(Z, signs=True)
        Z = np.empty(X.shape, np.float32)
        for start in range(0, len(X), ROW_BLOCK):
            rows = slice(start, start + ROW_BLOCK)
            Z[rows] = (X[rows] - self.mean) / self.scale
        return Coded(Z, signs=False)
