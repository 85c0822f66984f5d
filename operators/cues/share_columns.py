"""Whether the other columns support that class shares carry a shortcut.

A class share is made from labels: ``encode`` gives the rows of a category the share of a class among its
other rows. Models lean on it and are wrong where a row contradicts its category, whether the category is a
shortcut or an entity that has much to do with the label, such as a country or a player. The other columns tell
the two apart. Which side of a shortcut a row lies on does not depend on them, given the label, so models
without the column are as good on the rows that contradict the shares as on the others, but for wrong labels.
The rows that contradict an entity are hard for the other columns as well, which tell the same of it; or they
are easy, where column and other columns add up to the label. Measured in tests/paper/REAL.md, ninth study.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.cues.cross_fitting import cross_fit_halves
from operators.cues.draws import halves
from operators.cues.evidence import ramp
from operators.cues.gain import MIN_CELL_ROWS
from operators.cues.linear import class_balance
from operators.cues.slices import ShareColumn, Slices, strongest
from operators.cues.state import CueSettings

LEADING = 0.5
"""Part of the strongest slice's strength from which a slice of class shares counts: models follow it."""
SUPPORTED = (0.25, 0.4)
"""Ratios between which support rises from 0 to 1. Ten entities of public tables whose gate had been open have
-3.3 to .16, generated random effects .22 to .31, shortcuts with up to 2 % wrong labels .46 and more."""
ADDITIVE = (1.3, 1.1)
"""Ratios between which it falls from 1 to 0 again: the label is the sum of the column and others."""
MIN_TOLD = 0.02
"""Accuracy above chance below which the other columns tell nothing of the label, and so nothing of it."""


def share_support(slices: Slices, Z: Floats, y: Integers, ids: Integers, s: CueSettings, C: int) -> float:
    """Return the least support of the class shares that models lean on, in [0, 1]; 1 if they lean on none.

    Parameters
    ----------
    slices
        Slices of the rows.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    s
        Settings, with the columns that have class shares.
    C
        Number of classes.

    """
    order, strength, found = strongest(slices), slices.strength(), [1.0]
    for column in s.share_columns:
        own = order[np.isin(slices.feature[order], column.shares)]
        if len(own) and strength[own[0]] >= LEADING * strength[order[0]]:
            side = slices.sides(own[:1], Z)[0]
            ratio = independence(side, Z, y, ids, column, seed=s.seed, l2=s.l2, n_classes=C)
            found.append(ramp(ratio, *SUPPORTED) * ramp(ratio, *ADDITIVE))
    return min(found)


def independence(
    side: npt.NDArray[np.bool_],
    Z: Floats,
    y: Integers,
    ids: Integers,
    column: ShareColumn,
    *,
    seed: int,
    l2: float,
    n_classes: int,
) -> float:
    """Return how well models without a column judge the rows that contradict it, against the other rows.

    Parameters
    ----------
    side
        Whether each row is above the cut of a class share of the column, shape (n,). In each class the rows
        on the rarer side contradict it.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    column
        The column; the class-balanced models see none of its features.
    seed, l2
        Halves of the rows, and ridge penalty.
    n_classes
        C.

    Returns
    -------
    Ratio of two accuracies on held-out rows, each the mean over the classes of (a - 1 / C) / (1 - 1 / C), that
    of the contradicting rows less one standard error. It is 1 - 2 f for a shortcut of two classes if a part f
    of the contradicting rows has wrong labels. 0 where no class has 20 rows on both sides, or where the other
    columns tell nothing of the label.

    """
    without = Z.copy()
    without[:, list(column.features)] = 0.0
    half, w = halves(ids, seed, 0), class_balance(y, n_classes)
    p = cross_fit_halves(without, y, half, w, n_classes, l2=l2)
    right, cells = p.argmax(axis=1) == y, []
    for c in np.unique(y):
        above, hits = side[y == c], right[y == c]
        rare = above if above.mean() < 0.5 else ~above
        if min(rare.sum(), (~rare).sum()) >= MIN_CELL_ROWS:
            a = hits[rare].mean()
            cells.append((a, hits[~rare].mean(), a * (1.0 - a) / rare.sum()))
    if not cells:
        return 0.0
    a, b, variance = np.array(cells).T
    error = np.sqrt(variance.sum()) / len(cells)
    scale, chance = 1.0 - 1.0 / n_classes, 1.0 / n_classes
    against, along = (a.mean() - error - chance) / scale, (b.mean() - chance) / scale
    return float(against / along) if along >= MIN_TOLD else 0.0
