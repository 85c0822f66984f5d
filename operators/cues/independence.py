"""How far the side of a slice is independent of the other columns, given the label.

Which side of a shortcut a row lies on does not depend on the other columns, given the label. So models that
do not see the column judge the rows that break the shortcut as well, and as surely, as the others, but for
wrong labels; and within a class no other column tells the side. A column that decides the label honestly is
mostly one of several that go together: the others tell its side, and rows on the rare side of their class are
hard for them as well, or lie near the border between the classes. Or they are easy, where the column and the
others add up to the label. Measured in tests/paper/REAL.md, ninth and tenth study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from operators.arrays import Floats, Integers
from operators.cues.cross_fitting import cross_fit_halves
from operators.cues.draws import halves
from operators.cues.gain import MIN_CELL_ROWS
from operators.cues.linear import class_balance

SURER = (0.3, 0.7)
"""Quantiles of the probability of the label at which evenness compares the rows."""
MIN_TOLD = 0.02
"""Accuracy above chance below which the other columns tell nothing of the label, and so nothing of it."""
SURE_LABEL = 0.4
"""Quantile of the probability of the label from which a row's label is taken to be right."""
MIN_SURE_ROWS = 10
"""Sure rows of each side below which a class says nothing of the dependence."""
SIDE_L2 = 1e-2
"""Ridge penalty of the models of the side, whose rarer class may have few rows."""
UNTOLD = 0.5
"""Area under the ROC curve of a guess."""
LEAST = 1e-9
"""Least divisor."""


@dataclass(frozen=True)
class Independence:
    """How models without a column judge the rows that break its slice, against the other rows.

    Each figure is a mean over the classes that have 20 rows on both sides; all are 0 without such a class.

    Attributes
    ----------
    minority
        Share of the rows on the rarer side of their class.
    told
        Accuracy of the other rows, as (a - 1 / C) / (1 - 1 / C): what the other columns tell of the label.
    ratio
        The same of the rows on the rarer side, divided by ``told``. It is 1 - 2 f for a shortcut of two
        classes if a part f of these rows has wrong labels. 0 where ``told`` is below .02.
    ratio_error
        Standard error of the numerator, divided by ``told``.
    evenness
        Part of the rows on the rarer side with a higher probability of their label than 70 % of the other
        rows of the class, over .3, divided by the same for 30 % and .7. It is near 1 for a shortcut whatever
        f is, as the models are sure of both the right and the wrong labels.
    dependence
        Area under the ROC curve of held-out models of the side within the class, over the rows whose label
        is probably right: .5 if no other column tells the side, or if too few of them can say.

    """

    minority: float = 0.0
    told: float = 0.0
    ratio: float = 0.0
    ratio_error: float = 0.0
    evenness: float = 0.0
    dependence: float = 0.0


def independence(
    side: npt.NDArray[np.bool_],
    Z: Floats,
    y: Integers,
    ids: Integers,
    features: Sequence[int],
    *,
    seed: int,
    l2: float,
    n_classes: int,
) -> Independence:
    """Judge rows by models that see none of some features and have not seen the row.

    Parameters
    ----------
    side
        Whether each row is above the cut of a slice, shape (n,). In each class the rows on the rarer side
        break it.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    features
        Positions of the features that the models do not see: those of the slice's column.
    seed, l2
        Halves of the rows, and ridge penalty.
    n_classes
        C.

    """
    others = np.delete(Z, list(features), axis=1)
    half = halves(ids, seed, 0)
    p = cross_fit_halves(others, y, half, class_balance(y, n_classes), n_classes, l2=l2)
    right, sure = p.argmax(axis=1) == y, p[np.arange(len(y)), y]
    cells, areas = [], []
    for c in np.unique(y):
        rows = np.flatnonzero(y == c)
        above = side[rows]
        rare = above if above.mean() < 0.5 else ~above
        if min(rare.sum(), (~rare).sum()) < MIN_CELL_ROWS:
            continue
        cells.append(_judged(rare, right[rows], sure[rows]))
        areas.append(_dependence(rare, others[rows], half[rows], sure[rows]))
    return _mean_over_classes(np.array(cells), areas, n_classes)


def _judged(
    rare: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_], sure: Floats
) -> tuple[float, float, float, float, float, float]:
    """Return of one class: share of the rare side, accuracies of both, variance, and parts that are surer."""
    accuracy = float(right[rare].mean())
    low, high = ((sure[rare] > limit).mean() for limit in np.quantile(sure[~rare], SURER))
    variance = accuracy * (1.0 - accuracy) / rare.sum()
    return float(rare.mean()), accuracy, float(right[~rare].mean()), variance, float(low), float(high)


def _dependence(rare: npt.NDArray[np.bool_], Z: Floats, half: Integers, sure: Floats) -> float:
    """Return how well held-out models tell the side of a class's rows; .5 where too few rows can say."""
    told = rare.astype(np.int64)
    kept = sure > np.quantile(sure, SURE_LABEL)
    both = min(np.bincount(told[half == h], minlength=2).min() for h in (0, 1))
    if not Z.shape[1] or both == 0 or np.bincount(told[kept], minlength=2).min() < MIN_SURE_ROWS:
        return UNTOLD
    p = cross_fit_halves(Z, told, half, class_balance(told, 2), 2, l2=SIDE_L2)[:, 1]
    return float(roc_auc_score(told[kept], p[kept]))


def _mean_over_classes(cells: Floats, areas: Sequence[float], n_classes: int) -> Independence:
    """Return the figures from those of the classes, shape (classes, 6), and the areas under the curve."""
    if not len(cells):
        return Independence()
    minority, rare, other, variance, low, high = cells.T
    scale, chance = 1.0 - 1.0 / n_classes, 1.0 / n_classes
    told, broken = (other.mean() - chance) / scale, (rare.mean() - chance) / scale
    error = np.sqrt(variance.sum()) / len(cells) / scale
    known = told >= MIN_TOLD
    low_part, high_part = low.mean() / (1 - SURER[0]), high.mean() / (1 - SURER[1])
    return Independence(
        minority=float(minority.mean()),
        told=float(told),
        ratio=float(broken / told) if known else 0.0,
        ratio_error=float(error / told) if known else 0.0,
        evenness=float(high_part / max(low_part, LEAST)),
        dependence=float(np.mean(areas)),
    )
