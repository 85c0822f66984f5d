"""Balance weights for shortcuts that the user names: a number, a slice (feature with cut) or a one-hot
category.

Every named shortcut becomes a set of sides. A number has two, below and above the cut on which held-out
class-balanced models lean most, or the user's cut. A category given by several one-hot columns has a side per
class, and one for levels that stand for no class, as a missing value may (``class_sides``). The label is made
independent of the sides; of two classes, the two sides of a number get the same total weight within each.
"""

from __future__ import annotations

import numpy as np

from operators.arrays import Floats, Integers
from operators.cues.search.slices import Slices
from operators.cues.settings import Named
from operators.cues.sides.class_sides import classes_of_levels, equal_factors, independent_factors
from operators.cues.sides.sides import Sides, level_of

MIN_RARE_FACTOR = 4 / 3
"""Factor from which a side is rare in one of more than two classes: one that has about as much of it as all
classes together goes along with neither side."""


def fit_sides(named: Named, Z: Floats, y: Integers, n_classes: int, cut: float) -> Sides:
    """Count the sides of one shortcut on the sample.

    Parameters
    ----------
    named
        The shortcut.
    Z, y
        Standardised rows (n, d) and labels (n,).
    n_classes
        C.
    cut
        Cut on the standardised value; unused for a category.

    """
    single = len(named.columns) == 1
    cuts = np.array([cut], np.float32) if single else np.empty(0, np.float32)
    level = level_of(Z, named.columns, cuts)
    if not single:
        # The user has said that it is a shortcut: also where it goes with the classes but weakly.
        level_side = classes_of_levels(level, len(named.columns) + 1, y, n_classes, least=0.0)
        factor = independent_factors(level_side[level], y, n_classes)
        return Sides(named.columns, cuts, level_side, factor)
    sides = np.array([0, 1])
    count = np.bincount(y * 2 + level, minlength=n_classes * 2).reshape(n_classes, 2).astype(float)
    if np.count_nonzero(count.sum(axis=1)) > 2:
        factor = independent_factors(level, y, n_classes)
        return Sides(named.columns, cuts, sides, factor, rare=factor >= MIN_RARE_FACTOR)
    return Sides(named.columns, cuts, sides, equal_factors(count))


def resolve_one_of(named: Named, slices: Slices) -> Named:
    """Return the shortcut with one of its features, where it is ``one_of`` several, else as it is."""
    if not named.one_of:
        return named
    own = np.flatnonzero(np.isin(slices.feature, named.columns) & ~slices.is_error)
    best = int(slices.feature[own[slices.lean[own].argmax()]]) if len(own) else named.columns[0]
    return Named((best,))


def best_cut(slices: Slices, column: int) -> float | None:
    """Return the cut of the column on which the models lean most; None if it has no usable cut."""
    own = np.flatnonzero((slices.feature == column) & ~slices.is_error)
    return float(slices.cut[own[0]]) if len(own) else None
