"""The class that each value of a column stands for, and the balance of these classes against the label.

A value stands for the class among whose rows it is most over-represented, unless it goes with all classes
nearly alike, or as nearly as chance has it, as a missing value mostly does: counted to one class, it would
hide the rows of the others that break a shortcut by the values of that class.

The factor of class c and side s is mean_k P(s | k) / P(s | c), among the sides that rows of c show: after
Kamiran and Calders 2012, whose weights are P(s) P(c) / P(s, c), with every class counted alike. The sides of
a cut stand for no class: they get equal totals within each class.
"""

from __future__ import annotations

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.cues.limits import MAX_FACTOR

MIN_CLASS_SHARE = 4 / 3
"""Part of a value's rows that its class has at least, in units of 1 / C and with classes of equal size: else
the value stands for none."""
CHANCE = 3.0
"""Standard errors by which the rows of that class exceed those of a value that goes with all alike."""
TINY = 1e-12
"""Least divisor, against division by 0."""


def classes_of_levels(
    level: Integers,
    n_levels: int,
    y: Integers,
    n_classes: int,
    *,
    least: float = MIN_CLASS_SHARE,
    errors: float = CHANCE,
) -> Integers:
    """Return the class for which each level stands, shape (n_levels,), or ``n_classes`` for none.

    Parameters
    ----------
    level, y
        Level 0 .. n_levels - 1 and label 0 .. n_classes - 1 of each row, shape (n,).
    n_levels, n_classes
        L and C.
    least
        Part of a level's rows that its class has at least, in units of 1 / C.
    errors
        Standard errors by which its rows in that class exceed what the class would have of it by chance. With
        0 for both only a level without rows stands for none.

    """
    count = count_levels(level, n_levels, y, n_classes)
    rows = count.sum(axis=1, keepdims=True)
    share = count / np.maximum(rows, 1)
    limit = least / max(int(np.count_nonzero(rows)), 1) * share.sum(axis=0)
    best = share.argmax(axis=0)
    by_chance = rows[best, 0] * count.sum(axis=0) / max(len(y), 1)
    excess = count[best, np.arange(n_levels)] - by_chance
    stands = count.any(axis=0) & (share.max(axis=0) >= limit) & (excess >= errors * np.sqrt(by_chance))
    return np.asarray(np.where(stands, best, n_classes))


def independent_factors(side: Integers, y: Integers, n_classes: int) -> Float64:
    """Return factors (C, C + 1) under which every class has the sides that occur in it in the same shares.

    ``side`` and ``y`` have shape (n,); the last side stands for no class. A factor is 20 at most, and 1 where
    there are no rows.
    """
    count = count_levels(side, n_classes + 1, y, n_classes)
    share = count / np.maximum(count.sum(axis=1, keepdims=True), 1)
    factor = independent_shares(share) / np.maximum(share, TINY)
    return np.asarray(np.where(count > 0, np.minimum(factor, MAX_FACTOR), 1.0))


def equal_factors(part: Floats) -> Float64:
    """Return factors (C, S) under which the sides that occur in a class weigh the same, at most 20.

    ``part`` holds the rows, or the shares, of each class and side, shape (C, S). A class with one side has
    factor 1.
    """
    occurs = part > 0
    sides = occurs.sum(axis=1, keepdims=True)
    factor = part.sum(axis=1, keepdims=True) / (np.maximum(sides, 1) * np.maximum(part, TINY))
    return np.asarray(np.where((sides > 1) & occurs, np.minimum(factor, MAX_FACTOR), 1.0))


def independent_shares(share: Float64) -> Float64:
    """Return the shares (C, S) of all sides over the classes that have rows, among the sides of each class.

    A class lacks sides that none of its rows shows; the others then keep their proportions.
    """
    overall = share[share.sum(axis=1) > 0].mean(axis=0)
    shown = np.where(share > 0, overall, 0.0)
    return np.asarray(shown / np.maximum(shown.sum(axis=1, keepdims=True), TINY))


def count_levels(side: Integers, n_sides: int, y: Integers, n_classes: int) -> Integers:
    """Return the rows of each class and side, or level, shape (C, S)."""
    count = np.bincount(y * n_sides + side, minlength=n_classes * n_sides)
    return np.asarray(count.reshape(n_classes, n_sides))
