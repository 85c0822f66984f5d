"""Damage that is planted in known rows: what corrupt rows would look like among the rows at hand."""

from __future__ import annotations

import numpy as np

from operators.arrays import Float32, Int64
from operators.hashing import row_hashes

KINDS = ("flipped", "mixed", "permuted")
"""Kinds of damage: another label; every feature from another row; features permuted within the row."""
PLANTED = "outliers/planted"
"""Purpose of the random draws."""
MIN_LEVELS = 0.95
"""Least share of the rows that have one of the levels of a category."""


def plant(Z: Float32, y: Int64, n_classes: int, seed: int) -> tuple[Int64, tuple[Float32, Float32]]:
    """Return (n,) planted labels, and the (n, d) features of each kind of damage to them, as ``KINDS``.

    Parameters
    ----------
    Z : (n, d) standardised features; a column of zeros stays one.
    y : (n,) class index below ``n_classes``.
    """
    rng = np.random.default_rng(int(row_hashes(np.zeros(1, np.int64), seed, PLANTED)[0]))
    flipped, varies = flip_labels(y, n_classes, rng), Z.any(axis=0)
    return flipped, (mix_columns(Z, rng) * varies, permute_within(Z, rng) * varies)


def flip_labels(y: Int64, n_classes: int, rng: np.random.Generator) -> Int64:
    """Return (n,) another class for every row, each with the same probability."""
    return np.asarray((y + rng.integers(1, n_classes, len(y))) % n_classes, np.int64)


def mix_columns(Z: Float32, rng: np.random.Generator) -> Float32:
    """Return (n, d) rows of which every column is drawn from another row.

    The values are plausible one by one and implausible together. Columns that encode one category are drawn
    together (:func:`category_of`): apart they would be damage that no source contains, and too easy to see.
    """
    mixed, category = np.empty_like(Z), category_of(Z)
    for each in range(int(category.max()) + 1):
        columns = np.flatnonzero(category == each)
        mixed[:, columns] = Z[np.ix_(rng.permutation(len(Z)), columns)]
    return mixed


def category_of(Z: Float32) -> Int64:
    """Return (d,) a number for each column, the same for neighbouring columns that encode one category.

    Such columns have two values each, no row has the larger value of two of them, and nearly all rows have
    that of one: a level may be too rare for a column.
    """
    low, high = Z.min(axis=0), Z.max(axis=0)
    binary = (high > low) & ((low == Z) | (high == Z)).all(axis=0)
    category, start, stop = np.arange(Z.shape[1]), 0, 0
    union = np.zeros(len(Z), np.bool_)  # rows with the larger value of a column from start to stop
    while start < Z.shape[1]:
        while stop < Z.shape[1] and binary[stop]:
            level = Z[:, stop] == high[stop]
            if (union & level).any():
                break
            union |= level
            stop += 1
        if stop > start + 1 and union.mean() >= MIN_LEVELS:
            category[start:stop] = start
            start, union = stop, np.zeros_like(union)
            continue
        if stop > start:  # the columns that are left stay disjoint
            union[Z[:, start] == high[start]] = False
        start += 1
        stop = max(stop, start)
    return np.unique(category, return_inverse=True)[1].astype(np.int64)


def permute_within(Z: Float32, rng: np.random.Generator) -> Float32:
    """Return (n, d) standardised rows whose values are permuted within the row."""
    return np.asarray(rng.permuted(Z, axis=1), Z.dtype)
