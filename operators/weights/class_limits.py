"""Limits of ``weights: {method: robust}``: equal sums of classes, a cap, and enough effective rows per class.

Within a class the product of the factors is divided by its mean over the kept rows and cut at ``cap``. With f
the result divided by its own mean, the weight of a row is

    b_c * (1 - t_c + t_c f),

where b_c is the weight under class balance, N / (K n_c) for N kept rows in K classes, n_c of them in the
class; classes with few rows have less (``operators.class_shares``). The shrinkage 1 - t_c is the smallest
for which no row weighs more than ``cap`` times as much as under class balance, and for which Kish's
effective sample size of the class, n_c / (1 + t_c^2 var f), is at least ``min_effective_share`` of n_c.
Every class then weighs b_c n_c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Integers, Mask
from operators.class_shares import class_factors
from operators.explanations import Fact

LARGEST = float(np.finfo(np.float32).max)

Moments = dict[int, tuple[float, ...]]
"""Class index to sums over its kept rows."""


@dataclass(frozen=True)
class ClassLimits:
    """Normalisation and shrinkage of each class.

    Attributes
    ----------
    balance : weight of a row of each class under class balance.
    mean : mean of the factors' product.
    capped_mean : mean of the product over ``mean``, cut at ``cap``.
    trust : t_c in [0, 1].
    cap : largest weight as a multiple of ``balance``.
    """

    balance: dict[int, float]
    mean: dict[int, float]
    capped_mean: dict[int, float]
    trust: dict[int, float]
    cap: float

    def apply(self, product: Float64, y: Integers, kept: Mask) -> Float64:
        """Return the weights, shape (n,): finite, not negative, 0 for rows that are not kept.

        Parameters
        ----------
        product : factors' product, shape (n,).
        y : class of each row, shape (n,). A class that had no kept row has balance 1.
        kept : rows that are not dropped, shape (n,).
        """
        capped = _ratios(product, y, self.mean, self.cap) / _of(self.capped_mean, y)
        trust = _of(self.trust, y, 0.0)
        weights: Float64 = np.where(kept, _of(self.balance, y) * (1.0 - trust + trust * capped), 0.0)
        return weights

    def shrinkage(self) -> float:
        """Return 1 - t of the class that is shrunk most; 0 without classes."""
        return max((1 - t for t in self.trust.values()), default=0.0)

    def explain(self, c: int, product: float, weight: float) -> list[Fact]:
        """Return the steps from the factors' product of a row of class ``c`` to its weight within the
        limits.
        """
        balance, trust = self.balance.get(c, 1.0), self.trust.get(c, 0.0)
        ratio = product / self.mean.get(c, 1.0)
        cut = f"cut at the cap {self.cap:g}" if ratio > self.cap else f"the cap is {self.cap:g}"
        return [
            Fact("class balance", balance, "weight of every row of the class ahead of the factors"),
            Fact("relative to class", ratio, f"product of the factors over its mean in the class; {cut}"),
            Fact("shrinkage", 1.0 - trust, "towards class balance, so that enough rows of the class count"),
            Fact("within limits", weight, "class balance * (shrinkage + (1 - shrinkage) * relative)"),
        ]


def sum_products(product: Float64, y: Integers, kept: Mask) -> Moments:
    """Return per class the number of rows and the sum of the factors' product over them.

    ``kept`` (n,) are the rows that count: those that a final factor sets to 0 are not among them.
    """
    finite = np.nan_to_num(product, nan=1.0, posinf=LARGEST, neginf=0.0)
    found: Moments = {}
    for c in np.unique(y[kept]):
        rows = kept & (y == c)
        found[int(c)] = float(rows.sum()), float(finite[rows].sum())
    return found


def sum_ratios(product: Float64, y: Integers, kept: Mask, means: Mapping[int, float], cap: float) -> Moments:
    """Return per class the sum, the sum of squares and the maximum of the capped ratios of its kept rows."""
    ratio = _ratios(product, y, means, cap)
    found: Moments = {}
    for c in np.unique(y[kept]):
        r = ratio[kept & (y == c)]
        found[int(c)] = float(r.sum()), float(r @ r), float(r.max())
    return found


def class_means(sums: Moments) -> dict[int, float]:
    """Return the mean product of each class, from ``sum_products``; 1 where all are 0."""
    return {c: total / n if total > 0 else 1.0 for c, (n, total) in sums.items()}


def find_limits(
    sums: Moments, ratios: Moments, balance: dict[int, float], cap: float, min_effective_share: float
) -> ClassLimits:
    """Choose normalisation and shrinkage from the sums over all shards.

    Parameters
    ----------
    sums, ratios : from ``sum_products`` and ``sum_ratios``, added up by ``add_moments``.
    balance : weight of a row of each class under class balance, from ``balance_classes``.
    cap, min_effective_share : as in the parameters of ``weights``.
    """
    capped_mean, trust = {}, {}
    for c, (n, _) in sums.items():
        total, squares, largest = ratios[c]
        capped_mean[c] = total / n if total > 0 else 1.0
        trust[c] = 0.0 if total <= 0 else _trust(total / n, squares / n, largest, cap, min_effective_share)
    return ClassLimits(balance, class_means(sums), capped_mean, trust, cap)


def balance_classes(sums: Moments, min_class_rows: int, strength: float) -> dict[int, float]:
    """Return the weight of a row of each class under class balance; the parameters are those of
    ``class_shares``."""
    counts = np.array([n for n, _ in sums.values()]).astype(np.int64)
    return dict(zip(sums, class_factors(counts, min_class_rows, strength).tolist(), strict=True))


def add_moments(parts: Sequence[Moments]) -> Moments:
    """Add the sums of several shards. The third entry of a class, if there is one, is a maximum."""
    whole: Moments = {}
    for part in parts:
        for c, values in part.items():
            before = whole.get(c, (0.0,) * len(values))
            added = [a + b for a, b in zip(before[:2], values[:2], strict=True)]
            whole[c] = (*added, *(max(a, b) for a, b in zip(before[2:], values[2:], strict=True)))
    return dict(sorted(whole.items()))


def _trust(mean: float, mean_square: float, largest: float, cap: float, share: float) -> float:
    """Return the largest t in [0, 1] under which cap and effective share hold."""
    variance = max(mean_square / mean**2 - 1.0, 0.0)
    top = largest / mean
    by_share = np.sqrt((1.0 / share - 1.0) / variance) if variance > 1e-12 else 1.0
    by_cap = (cap - 1.0) / (top - 1.0) if top > cap else 1.0
    return float(min(1.0, by_share, by_cap))


def _ratios(product: Float64, y: Integers, means: Mapping[int, float], cap: float) -> Float64:
    finite = np.nan_to_num(product, nan=1.0, posinf=LARGEST, neginf=0.0)
    ratios: Float64 = np.clip(finite / _of(means, y), 0.0, cap)
    return ratios


def _of(values: Mapping[int, float], y: Integers, default: float = 1.0) -> Float64:
    """Return each row's value by its class, shape (n,)."""
    classes, place = np.unique(y, return_inverse=True)
    return np.array([values.get(c, default) for c in classes.tolist()], np.float64)[place]
