"""Class balance: the share of the total weight of each class, which is smaller for classes of few rows.

``weights``, ``cues`` and the models that they fit use this rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64

MIN_CLASS_ROWS = 50
"""Number of rows from which a class has the full share; the same as for groups that are scored by themselves
(``operators.metrics.group_scores``)."""

FULL_PART = 0.25
"""In small tables: share of the mean number of rows of a class from which a class has the full share."""


def class_shares(
    counts: npt.NDArray[np.integer[Any]], min_class_rows: int = MIN_CLASS_ROWS, strength: float = 1.0
) -> Float64:
    """Return the share of the total weight (C,) of each class, with sum 1 and 0 for classes without rows.

    Parameters
    ----------
    counts : rows of each class, shape (C,).
    min_class_rows : a class with at least so many rows, or with a quarter of the rows of the mean class (each
        then weighs at most four times the mean row), has the full share. One with n rows of f that it would
        need has (n / f)^2 of it: the fewer rows there are to learn from, the less does each of them weigh,
        down to the weight of a row of the largest class.
    strength : from 0 (every row has the same weight) to 1 (every class has the same total).

    Examples
    --------
    >>> import numpy as np
    >>> class_shares(np.array([900, 100])).tolist()
    [0.5, 0.5]
    >>> class_shares(np.array([997, 3])).round(3).tolist()
    [0.996, 0.004]
    >>> class_shares(np.array([10, 10, 0])).tolist()
    [0.5, 0.5, 0.0]
    >>> class_shares(np.array([900, 100]), strength=0.5).tolist()
    [0.75, 0.25]
    """
    rows = np.asarray(counts, np.float64)
    part = rows * _relative_weights(rows, min_class_rows, strength)
    return np.asarray(part / max(float(part.sum()), 1e-300))


def class_factors(
    counts: npt.NDArray[np.integer[Any]], min_class_rows: int = MIN_CLASS_ROWS, strength: float = 1.0
) -> Float64:
    """Return the weight of a row of each class, shape (C,): their mean over all rows is 1.

    A class without rows has the weight of a class of one row, for rows that come later. Parameters are those
    of ``class_shares``.
    """
    rows = np.asarray(counts, np.float64)
    relative = _relative_weights(rows, min_class_rows, strength)
    return np.asarray(relative * rows.sum() / max(float(relative @ rows), 1e-300))


def counted_classes(counts: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """Return which classes have enough rows to be measured, shape (C,): at least 50.

    If fewer than two classes have 50 rows, all classes that occur count.
    """
    counted = np.asarray(counts) >= MIN_CLASS_ROWS
    return counted if counted.sum() > 1 else np.asarray(counts) > 0


def _relative_weights(rows: Float64, min_class_rows: int, strength: float) -> Float64:
    """Return the relative weight of a row of each class, shape (C,).

    It is n_c^-strength in classes of enough rows, (n / f^2)^strength in one of n < f rows, f being the rows
    for a full share, and in no class less than in the largest.
    """
    mean_class = rows.sum() / max(int((rows > 0).sum()), 1)
    full = max(min(float(min_class_rows), FULL_PART * mean_class), 1.0)
    relative = np.minimum(np.maximum(rows, 1.0) / full, 1.0) / np.maximum(rows, full)
    least = 1.0 / max(float(rows.max(initial=0.0)), full)
    return np.asarray(np.maximum(relative, least) ** strength)
