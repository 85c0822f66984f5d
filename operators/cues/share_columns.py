"""Whether the other columns support that class shares carry a shortcut.

A class share is made from labels: ``encode`` gives the rows of a category the share of a class among its
other rows. Models lean on it and are wrong where a row contradicts its category, whether the category is a
shortcut or an entity that has much to do with the label, such as a country or a player. The other columns
tell the two apart. Which side of a shortcut a row lies on does not depend on them, given the label, so
models without the column are as good, and as sure, on the rows that contradict the shares as on the others,
but for wrong labels. The rows that contradict an entity are hard for the other columns as well, which tell
the same of it, or lie near the border between the classes; or they are easy, where column and other columns
add up to the label. Measured in tests/paper/REAL.md, ninth study.
"""

from __future__ import annotations

from dataclasses import dataclass

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
RATIO = (0.1, 0.25)
"""Ratios of accuracy between which support rises from 0 to 1."""
ADDITIVE = (1.3, 1.1)
"""Ratios between which it falls from 1 to 0 again: the label is the sum of the column and others."""
EVENNESS = (0.68, 0.78)
"""Evenness between which support rises from 0 to 1: .57 to .65 for institutions whose label is a threshold,
.79 to 1.1 for shortcuts."""
SURER = (0.3, 0.7)
"""Quantiles of the probability of the label at which evenness compares the rows."""
MIN_TOLD = 0.02
"""Accuracy above chance below which the other columns tell nothing of the label, and so nothing of it."""


@dataclass(frozen=True)
class Independence:
    """How models without a column judge the rows that contradict it, against the other rows.

    Attributes
    ----------
    ratio
        Ratio of their accuracies, each the mean over the classes of (a - 1 / C) / (1 - 1 / C), that of the
        contradicting rows less one standard error. It is 1 - 2 f for a shortcut of two classes if a part f of
        the contradicting rows has wrong labels. 0 where no class has 20 rows on both sides, or where the
        other columns tell nothing of the label.
    evenness
        Part of the contradicting rows with a higher probability of their label than 70 % of the other rows of
        the class, over .3, divided by the same for 30 % and .7. It is near 1 for a shortcut whatever f is, as
        the models are sure of both the right and the wrong labels.

    """

    ratio: float
    evenness: float

    def support(self) -> float:
        """Return how far this supports a shortcut, in [0, 1]."""
        return ramp(self.ratio, *RATIO) * ramp(self.ratio, *ADDITIVE) * ramp(self.evenness, *EVENNESS)


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
            judged = independence(side, Z, y, ids, column, seed=s.seed, l2=s.l2, n_classes=C)
            found.append(judged.support())
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
) -> Independence:
    """Judge rows by class-balanced models that see no feature of a column and have not seen the row.

    Parameters
    ----------
    side
        Whether each row is above the cut of a class share of the column, shape (n,). In each class the rows
        on the rarer side contradict it.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    column
        The column.
    seed, l2
        Halves of the rows, and ridge penalty.
    n_classes
        C.

    """
    without = Z.copy()
    without[:, list(column.features)] = 0.0
    half, w = halves(ids, seed, 0), class_balance(y, n_classes)
    p = cross_fit_halves(without, y, half, w, n_classes, l2=l2)
    right, sure, cells = p.argmax(axis=1) == y, p[np.arange(len(y)), y], []
    for c in np.unique(y):
        above, hits, q = side[y == c], right[y == c], sure[y == c]
        rare = above if above.mean() < 0.5 else ~above
        if min(rare.sum(), (~rare).sum()) >= MIN_CELL_ROWS:
            a = hits[rare].mean()
            surer = [(q[rare] > limit).mean() for limit in np.quantile(q[~rare], SURER)]
            cells.append((a, hits[~rare].mean(), a * (1.0 - a) / rare.sum(), *surer))
    if not cells:
        return Independence(0.0, 0.0)
    a, b, variance, low, high = np.array(cells).T
    error = np.sqrt(variance.sum()) / len(cells)
    scale, chance = 1.0 - 1.0 / n_classes, 1.0 / n_classes
    against, along = (a.mean() - error - chance) / scale, (b.mean() - chance) / scale
    low_part, high_part = low.mean() / (1 - SURER[0]), high.mean() / (1 - SURER[1])
    ratio = float(against / along) if along >= MIN_TOLD else 0.0
    return Independence(ratio, float(high_part / max(low_part, 1e-9)))
