"""Distances between the rows of two datasets, each with a p-value under the hypothesis of no change.

Incremental runs use them to decide whether operators have to fit again: the p-value must be small, and the
distance must exceed a threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import (
    chi2_contingency,
    false_discovery_control,
    fisher_exact,
    ks_2samp,
    pearson3,
    skew,
)

from operators.arrays import Float64
from operators.distances import median_gamma, square_distances

QUANTILE = 0.95
MIN_BEYOND = 10
"""With this many draws beyond the measured value, their share is the p-value."""
MAX_VALUES = 10
"""A column with at most this many different values is compared by counts."""
MIN_EXPECTED = 5
"""Smallest expected count in a chi-square test (Cochran 1954)."""


@dataclass(frozen=True)
class Shift:
    """A distance between two samples, its p-value, and its size without any change."""

    value: float
    """The measured distance."""
    noise: float
    """The 0.95 quantile of the distance of two samples of these sizes from one distribution."""
    excess: float
    """``value`` less the mean contribution of chance, at least 0; it is independent of the sizes."""
    p: float = 0.0
    """Probability of so large a distance without drift."""
    columns: tuple[int, ...] = ()
    """For :func:`column_shift`: columns that have moved, the farthest first."""

    def beyond(self, threshold: float, level: float = 1 - QUANTILE) -> bool:
        """Return whether the p-value is at most ``level`` and ``excess`` is above ``threshold``."""
        return self.p <= level and self.excess > threshold


def mmd_shift(
    X: npt.ArrayLike, mask: npt.ArrayLike, *, permutations: int = 300, random_state: int = 0
) -> Shift:
    """Return the maximum mean discrepancy of two samples in an RBF kernel, with a permutation test.

    Gretton et al., A Kernel Two-Sample Test, JMLR 2012: the biased estimate of eq. 5, gamma being 1 / median
    squared distance. ``excess`` is the root of the squared MMD less its mean over permutations, which
    estimates the MMD of the two distributions. O(n^2) memory and O(n^2 (d + permutations)) time. Below ten
    permutations beyond the distance, the p-value is that of a Pearson type III distribution with the mean,
    variance and skewness of the permutations, so that small levels need no thousands of them.

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
    return replace(_against(value, null), p=count_p_value(counts))


def count_p_value(counts: npt.NDArray[np.int64]) -> float:
    """Return the p-value of the chi-square test that both rows of counts (2, k) have the same shares.

    Values that are expected less than five times are counted as one value: the test rejects too often there.
    """
    expected = counts.sum(axis=0) * (counts.sum(axis=1).min() / counts.sum())
    cells = counts[:, np.argsort(expected, kind="stable")]
    ordered = np.cumsum(np.sort(expected))
    # Join the smallest cells until their sum is expected often enough.
    joined = min(int(np.searchsorted(ordered, MIN_EXPECTED)) + 1, cells.shape[1])
    cells = np.column_stack([cells[:, :joined].sum(axis=1), cells[:, joined:]])
    if cells.shape[1] < 2:
        return 1.0
    if cells.shape[1] == 2:
        return float(fisher_exact(cells).pvalue)
    return float(chi2_contingency(cells, correction=False).pvalue)


def column_shift(before: npt.ArrayLike, after: npt.ArrayLike, *, level: float = 1 - QUANTILE) -> Shift:
    """Return the shift of the column that moved farthest, with a p-value over all columns.

    Each column is tested by the two-sample Kolmogorov-Smirnov test or, with at most ten different values, by
    the chi-square test. The p-values are adjusted by Benjamini and Hochberg (1995), so that a change of one
    of many columns is found and many columns cause no false alarm. The distance is Kolmogorov's (the largest
    difference of two distribution functions, 0 to 1), or the total variation distance for few values; neither
    depends on the numbers of rows and columns.

    Parameters
    ----------
    before, after : (n, d) and (m, d) finite numbers.
    level : adjusted p-value up to which a column is listed as moved.

    Raises
    ------
    ValueError
        One of the samples is empty.
    """
    old, new = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if not len(old) or not len(new):
        raise ValueError(f"column_shift: samples of {len(old)} and {len(new)} rows; both need rows.")
    found = [_one_column(a, b) for a, b in zip(old.T, new.T, strict=True)]
    if not found:
        return Shift(0.0, 0.0, 0.0, 1.0)
    distances, p = (np.array(values) for values in zip(*found, strict=True))
    adjusted = false_discovery_control(p)
    moved = np.flatnonzero(adjusted <= level)
    ranked = moved[np.argsort(-distances[moved], kind="stable")]
    place = int(ranked[0]) if len(ranked) else int(distances.argmax())
    value = float(distances[place])
    return Shift(value, 0.0, value, float(adjusted[place]), tuple(ranked.tolist()))


def _one_column(old: Float64, new: Float64) -> tuple[float, float]:
    """Return the distance and the p-value of one column."""
    kinds, place = np.unique(np.concatenate([old, new]), return_inverse=True)
    if len(kinds) < 2:
        return 0.0, 1.0
    if len(kinds) > MAX_VALUES:
        test = ks_2samp(old, new, method="asymp")
        return float(test.statistic), float(test.pvalue)
    counts = np.array(
        [np.bincount(part, minlength=len(kinds)) for part in np.split(place, [len(old)])], np.int64
    )
    shares = counts / counts.sum(axis=1, keepdims=True)
    return float(np.abs(shares[0] - shares[1]).sum() / 2), count_p_value(counts)


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
    error = float(np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m)))
    p = float(fisher_exact([[b, m - b], [a, n - a]], alternative="greater").pvalue)
    return Shift(value, 1.645 * error, max(value, 0.0), p)


def _against(value: float, null: Float64, *, root: bool = False) -> Shift:
    excess, noise = max(value - float(null.mean()), 0.0), float(np.quantile(null, QUANTILE))
    p = _tail(value, null)
    if root:
        return Shift(float(np.sqrt(value)), float(np.sqrt(noise)), float(np.sqrt(excess)), p)
    return Shift(value, noise, excess, p)


def _tail(value: float, null: Float64) -> float:
    """Return the probability of a value at least as large, given draws of the null distribution."""
    beyond = int((null >= value).sum())
    spread = float(null.std())
    if beyond >= MIN_BEYOND or spread <= 1e-12 * max(float(null.mean()), 1e-300):
        return (1 + beyond) / (1 + len(null))
    fitted = pearson3(max(float(skew(null)), 0.0), loc=float(null.mean()), scale=spread)
    return float(min(fitted.sf(value), (1 + beyond) / (1 + len(null))))
