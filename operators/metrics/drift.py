"""Distances between the rows of two datasets, with the distance that chance alone would give.

Incremental runs decide by them whether operators have to fit again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.metrics.mmd import median_gamma, square_distances

QUANTILE = 0.95


@dataclass(frozen=True)
class Shift:
    """A distance between two samples, and what chance contributes to it."""

    value: float
    """The measured distance."""
    noise: float
    """The 0.95 quantile of the distance of two samples of these sizes from one distribution."""
    excess: float
    """``value`` less the mean contribution of chance, at least 0; it is independent of the sizes."""

    def beyond(self, threshold: float) -> bool:
        """Return whether the distance exceeds both chance and the threshold."""
        return self.value > self.noise and self.excess > threshold


def mmd_shift(
    X: npt.ArrayLike, mask: npt.ArrayLike, *, permutations: int = 200, random_state: int = 0
) -> Shift:
    """Return the maximum mean discrepancy of two samples in an RBF kernel, with a permutation test.

    Gretton et al., A Kernel Two-Sample Test, JMLR 2012: the biased estimate of eq. 5, gamma being 1 / median
    squared distance. ``excess`` is the root of the squared MMD less its mean over permutations, which
    estimates the MMD of the two distributions. O(n^2) memory and O(n^2 (d + permutations)) time.

    Parameters
    ----------
    X : (n, d) rows of both samples; scale features first.
    mask : (n,) bool, True for one of them.

    Raises
    ------
    ValueError
        One of the samples is empty.
    """
    rows, inside = np.asarray(X, np.float64), np.asarray(mask, bool)
    if inside.all() or not inside.any():
        n = int(inside.sum())
        raise ValueError(f"mmd_shift: {n} of {len(inside)} rows are in the mask; both sides need rows.")
    squares = square_distances(rows)
    kernel = np.exp(squares * -median_gamma(squares))
    rng = np.random.default_rng(random_state)
    signs = np.where(inside, 1 / inside.sum(), -1 / (~inside).sum())
    columns = np.column_stack([signs, *(rng.permutation(signs) for _ in range(permutations))])
    found = np.maximum(np.einsum("ij,ij->j", columns, kernel @ columns), 0)
    return _against(float(found[0]), found[1:], root=True)


def share_shift(
    before: Mapping[Any, int], after: Mapping[Any, int], *, draws: int = 200, random_state: int = 0
) -> Shift:
    """Return the total variation distance of the shares of groups in two samples, 0 to 1.

    The noise is that of samples of these sizes from the shares of both together.

    Raises
    ------
    ValueError
        One of the samples is empty.
    """
    names = sorted(set(before) | set(after), key=str)
    counts = np.array([[side.get(name, 0) for name in names] for side in (before, after)], np.int64)
    sizes = counts.sum(axis=1)
    if not sizes.all():
        raise ValueError(f"share_shift: samples of {sizes[0]} and {sizes[1]} rows; both need rows.")
    rng = np.random.default_rng(random_state)
    pooled = counts.sum(axis=0) / sizes.sum()
    drawn = [rng.multinomial(size, pooled, draws) / size for size in sizes.tolist()]
    null = np.abs(drawn[0] - drawn[1]).sum(axis=1) / 2
    value = float(np.abs(counts[0] / sizes[0] - counts[1] / sizes[1]).sum() / 2)
    return _against(value, null)


def rise(before: tuple[int, int], after: tuple[int, int]) -> Shift:
    """Return the rise of a share between two samples, each given as (rows that count, all rows).

    The value is below 0 where the share fell. The noise is 1.645 standard errors of the difference, the 0.95
    quantile of the normal distribution. Raises ValueError where a sample is empty.
    """
    (a, n), (b, m) = before, after
    if not n or not m:
        raise ValueError(f"rise: samples of {n} and {m} rows; both need rows.")
    pooled = (a + b) / (n + m)
    value = b / m - a / n
    return Shift(value, 1.645 * float(np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))), max(value, 0.0))


def _against(value: float, null: npt.NDArray[np.float64], *, root: bool = False) -> Shift:
    excess, noise = max(value - float(null.mean()), 0.0), float(np.quantile(null, QUANTILE))
    if root:
        return Shift(float(np.sqrt(value)), float(np.sqrt(noise)), float(np.sqrt(excess)))
    return Shift(value, noise, excess)
