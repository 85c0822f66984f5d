"""Part of the total weight that each class has under class balance, where a class of few rows has less.

``weights``, ``cues`` and the models that they fit share this rule, so that all mean the same by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

MIN_CLASS_ROWS = 30
"""Rows from which a class has the full share: six rows with a third of all weight decide a model."""


def class_shares(
    counts: npt.NDArray[np.integer[Any]], min_class_rows: int = MIN_CLASS_ROWS, strength: float = 1.0
) -> npt.NDArray[np.float64]:
    """Return the part of the total weight per class, shape (C,); the sum is 1, a class without rows has 0.

    Parameters
    ----------
    counts
        Rows of each class, shape (C,).
    min_class_rows
        A class with at least so many rows, or with at least as many as the mean class, has the full share.
        One with fewer has a share in proportion to its rows: none of its rows weighs more than a row of a
        class of that size.
    strength
        From 0 (every row has the same weight) to 1 (every class has the same total).

    Examples
    --------
    >>> import numpy as np
    >>> class_shares(np.array([900, 100])).tolist()
    [0.5, 0.5]
    >>> class_shares(np.array([997, 3])).round(3).tolist()
    [0.909, 0.091]
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
) -> npt.NDArray[np.float64]:
    """Return the weight of a row of each class, shape (C,): their mean over all rows is 1.

    A class without rows has the weight of a class with few, for rows that come later. Parameters are those of
    ``class_shares``.
    """
    rows = np.asarray(counts, np.float64)
    relative = _relative_weights(rows, min_class_rows, strength)
    return np.asarray(relative * rows.sum() / max(float(relative @ rows), 1e-300))


def counted_classes(counts: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """Return which classes have enough rows to be measured, shape (C,): at least 30.

    Where fewer than two classes have 30 rows, all that occur.
    """
    counted = np.asarray(counts) >= MIN_CLASS_ROWS
    return counted if counted.sum() > 1 else np.asarray(counts) > 0


def _relative_weights(
    rows: npt.NDArray[np.float64], min_class_rows: int, strength: float
) -> npt.NDArray[np.float64]:
    """Return n_c^-strength, where classes with few rows count as larger, shape (C,)."""
    full = max(min(float(min_class_rows), rows.sum() / max(int((rows > 0).sum()), 1)), 1.0)
    return np.asarray(np.maximum(rows, full) ** -strength)
