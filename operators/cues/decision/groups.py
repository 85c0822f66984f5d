"""Groups of rows that the decision compares: a class, divided by how its rows break the shortcut."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.class_shares import counted_classes
from operators.cues.sides.sides import Sides
from operators.metrics.group_scores import MIN_ROWS


def shortcut_groups(
    y: Integers, broken: Integers | npt.NDArray[np.bool_], n_classes: int, parts: int = 1
) -> npt.NDArray[np.intp]:
    """Return the number of each row's group, shape (n,): its class, divided by how it breaks the shortcut.

    Of K kinds that is (K + 1) y where it follows the shortcut, else (K + 1) y + k for kind k, such as that of
    the rows that break column k. Classes with too few rows to be measured are not divided. Where a class has
    too few rows of a kind, they form one group, (K + 1) C + k - 1, with those of the classes that have the
    fewest: what the weights are for has to be among the groups that are compared.

    Parameters
    ----------
    y
        Labels, shape (n,).
    broken
        Whether a row breaks the shortcut, shape (n,), or the number of its kind, from 1, else 0.
    n_classes
        C.
    parts
        K.

    """
    part = np.where(counted_classes(np.bincount(y))[y], broken, 0).astype(np.intp)
    groups = np.asarray((parts + 1) * y + part, np.intp)
    for number in range(1, parts + 1):
        divided = part == number
        rows = np.bincount(y[divided], minlength=n_classes)
        pooled = list[int]()
        for c in np.argsort(rows, kind="stable").tolist():
            if rows[c] and (rows[c] < MIN_ROWS or 0 < rows[pooled].sum() < MIN_ROWS):
                pooled.append(c)
        if rows[pooled].sum() >= MIN_ROWS:
            groups[divided & np.isin(y, pooled)] = (parts + 1) * n_classes + number - 1
    return groups


def leaning_groups(column: Sides, Z: Floats, y: Integers) -> Integers:
    """Return the group of each row, shape (n,): its class, divided by whether it breaks the column."""
    return shortcut_groups(y, column.breaks(Z, y), len(column.factor))
