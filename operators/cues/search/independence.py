"""Measures whether the side of a slice is independent of the other columns, given the label.

Which side of a shortcut a row lies on does not depend on the other columns, given the label. So models that
do not see the column judge the rows that break the shortcut as well, and as surely, as the others, but for
wrong labels; and within a class no other column tells the side. A column that decides the label honestly is
mostly one of several that go together: the others tell its side, and rows on the rare side of their class are
hard for them as well, or lie near the border between the classes. Or they are easy, where the column and the
others add up to the label. A column that says nearly the same as the side, as where an attribute is recorded
twice, carries the same shortcut or none, and does not judge (``with_mirrors``). Measured in
tests/paper/REAL.md, ninth, tenth and twenty-sixth study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.cues.models.cross_fitting import cross_fit_halves
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import class_balance
from operators.cues.search.gain import MIN_CELL_ROWS
from operators.cues.search.ramps import SINGLE_RAMPS, Measurement, ramp
from operators.cues.settings import SourceColumn

CERTAINTY = (0.3, 0.7)
"""Quantiles of the probability of the label at which evenness compares the rows."""
MIN_ACCURACY = 0.02
"""Accuracy above chance below which the other columns do not tell the label, so that no ratio is formed."""
RIGHT_LABEL = 0.4
"""Quantile of the probability of the label from which a row's label is taken to be right."""
MIN_RIGHT_ROWS = 10
"""Such rows of each side below which nothing is said of the dependence in a class."""
SIDE_L2 = 1e-2
"""Ridge penalty of the models of the side, whose rarer part may have few rows."""
MIRROR = 0.5
"""Multiple correlation with the side, within the classes, from which a column says the same and does not
judge."""
MAX_MIRRORS = 4
"""Such columns above which all of them judge: a shortcut that many repeat, as pixels do, shows itself so."""
CORRELATED = 64
"""Features whose correlations with the side are computed at a time."""
TINY = 1e-9
"""Least divisor, against division by 0."""
STANDARD_ERRORS = 2.0
"""Standard errors by which the other columns have to contradict a shortcut to shut a gate."""


@dataclass(frozen=True)
class Independence:
    """Accuracy and certainty of models without a column on the rows that break its slice and on the others.

    ``label_accuracy`` is a mean over all classes, the other figures over those that have 20 rows on both
    sides; these are 0 without such a class.

    Attributes
    ----------
    rows
        Rows that break the shortcut, in these classes.
    minority
        Their share.
    label_accuracy
        Accuracy of the other rows above chance, (a - 1 / C) / (1 - 1 / C): 0 where the other columns do not
        tell the label.
    ratio
        Accuracy above chance of the rows that break it, divided by that of the others. It is 1 - 2 f for
        a shortcut of two classes if a part f of these rows has wrong labels. 0 where ``label_accuracy`` is
        below .02.
    ratio_error
        Standard error of the numerator, divided by the denominator.
    evenness
        Part of the rows that break it with a higher probability of their label than 70 % of the other
        rows of the class, over the same part of these, divided by that for 30 %; rows of equal probability
        count by half. It is near 1 for a shortcut whatever f is, as the models are sure of both the right
        and the wrong labels.
    dependence
        Area under the ROC curve of held-out models of the side within the class, over the rows whose label
        is probably right: .5 if no other column tells the side. 1 if too few rows can say.

    """

    rows: int = 0
    minority: float = 0.0
    label_accuracy: float = 0.0
    ratio: float = 0.0
    ratio_error: float = 0.0
    evenness: float = 0.0
    dependence: float = 0.0


class _Cell(NamedTuple):
    """Figures of one class: rows on its rarer side and their share, accuracies of both sides, and the parts
    of certain rows on the rarer side over those on the other one."""

    rows: int
    minority: float
    rare: float
    common: float
    low: float
    high: float


def independence(
    broken: npt.NDArray[np.bool_],
    Z: Floats,
    y: Integers,
    ids: Integers,
    features: Sequence[int],
    *,
    seed: int,
    l2: float,
    with_dependence: bool = True,
) -> Independence:
    """Judge rows by models that see none of some features and have not seen the row.

    Parameters
    ----------
    broken
        Whether each row breaks the shortcut that is judged, shape (n,): of a slice those on the rarer side of
        their class (``rarer_side``).
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    features
        Positions of the features that the models do not see: those of the slice's column.
    seed, l2
        Halves of the rows, and ridge penalty.
    with_dependence
        Whether the side is modelled as well.

    """
    others, half = np.delete(Z, list(features), axis=1), halves(ids, seed, Split.FIRST)
    classes, label = np.unique(y, return_inverse=True)
    C = len(classes)
    p = cross_fit_halves(others, label, half, class_balance(label, C), C, l2=l2)
    right, sure = p.argmax(axis=1) == label, p[np.arange(len(y)), label]
    cells, areas, common = list[_Cell](), list[float](), list[float]()
    for c in range(C):
        rows = np.flatnonzero(label == c)
        rare = broken[rows]
        common.append(float(right[rows][~rare if not rare.all() else rare].mean()))
        if min(rare.sum(), (~rare).sum()) < MIN_CELL_ROWS:
            continue
        cells.append(_judged(rare, right[rows], sure[rows]))
        if with_dependence:
            areas += _dependence(rare, others[rows], half[rows], sure[rows])
    return _mean_over_classes(cells, areas, common)


def with_mirrors(
    features: Sequence[int],
    broken: npt.NDArray[np.bool_],
    Z: Floats,
    y: Integers,
    columns: Sequence[SourceColumn] = (),
) -> list[int]:
    """Return features with those of the columns that say nearly the same as the side of a slice, in order.

    They do so within the classes: by the multiple correlation of the side with the features of the column,
    corrected for their number, mean over the classes with 20 rows on both sides. Nothing is added where more
    than 4 columns do, or where no feature would be left.

    Parameters
    ----------
    features
        Positions of the features of the slice's column.
    broken
        Whether each row is on the rarer side, shape (n,).
    Z, y
        Standardised rows (n, d), labels (n,).
    columns
        Source columns; a feature of none of them is a column of its own.

    """
    own = sorted(features)
    together = [column.features for column in columns if not set(column.features) & set(own)]
    alone = sorted(set(range(Z.shape[1])) - set(own) - {place for column in together for place in column})
    cells = [(Z[y == c], broken[y == c]) for c in np.unique(y)]
    cells = [(rows, mark) for rows, mark in cells if min(mark.sum(), (~mark).sum()) >= MIN_CELL_ROWS]
    if not cells:
        return own
    same = [
        column
        for column in together
        if np.mean([_multiple_correlation(rows[:, list(column)], mark) for rows, mark in cells]) > MIRROR
    ]
    single = np.mean([_correlations(rows, mark, alone) for rows, mark in cells], axis=0)
    same += [(place,) for place, found in zip(alone, single, strict=True) if found > MIRROR]
    both = sorted({*own, *(place for column in same for place in column)})
    return both if len(same) <= MAX_MIRRORS and len(both) < Z.shape[1] else own


def _correlations(rows: Floats, mark: npt.NDArray[np.bool_], places: Sequence[int]) -> Floats:
    """Return the absolute correlations of a mark (n,) with features of rows (n, d), shape (len(places),)."""
    target, found = mark - mark.mean(), np.zeros(len(places))
    size = float((target**2).sum())
    for start in range(0, len(places), CORRELATED):
        part = slice(start, start + CORRELATED)
        X = rows[:, places[part]]
        X = X - X.mean(axis=0, dtype=np.float64)
        spread = np.sqrt((X**2).sum(axis=0) * size)
        found[part] = np.where(spread > TINY, abs(target @ X) / np.maximum(spread, TINY), 0.0)
    return found


def _multiple_correlation(rows: Floats, mark: npt.NDArray[np.bool_]) -> float:
    """Return the correlation of a mark (n,) with its best linear prediction from features (n, k)."""
    if rows.shape[1] == 1:
        return float(_correlations(rows, mark, [0])[0])
    X = rows - rows.mean(axis=0, dtype=np.float64)
    target = mark - mark.mean()
    predicted = X @ np.linalg.lstsq(X.T @ X, X.T @ target, rcond=1e-9)[0]
    n, k = X.shape
    unexplained = float(((target - predicted) ** 2).sum() / (target**2).sum())
    explained = 1.0 - unexplained * (n - 1) / max(n - 1 - k, 1)
    return float(np.sqrt(max(explained, 0.0)))


def rarer_side(side: npt.NDArray[np.bool_], y: Integers) -> npt.NDArray[np.bool_]:
    """Return whether each row is on the side on which fewer rows of its class are, shape (n,)."""
    label = np.unique(y, return_inverse=True)[1]
    share = np.bincount(label, side) / np.bincount(label)
    return np.asarray(side == (share < 0.5)[label])


def _judged(rare: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_], sure: Floats) -> _Cell:
    parts = []
    for limit in np.quantile(sure[~rare], CERTAINTY):
        above = (sure > limit) + 0.5 * (sure == limit)
        parts.append(float(above[rare].mean() / max(above[~rare].mean(), TINY)))
    return _Cell(
        int(rare.sum()), float(rare.mean()), float(right[rare].mean()), float(right[~rare].mean()), *parts
    )


def _dependence(rare: npt.NDArray[np.bool_], Z: Floats, half: Integers, sure: Floats) -> list[float]:
    """Return how well held-out models tell the side of a class's rows, or nothing where too few can say."""
    rarer = rare.astype(np.int64)
    kept = sure >= np.quantile(sure, RIGHT_LABEL)
    in_half = min(np.bincount(rarer[half == h], minlength=2).min() for h in (0, 1))
    if not in_half or np.bincount(rarer[kept], minlength=2).min() < MIN_RIGHT_ROWS:
        return []
    # Not at the top: most tables do not come here, and the import takes more than a second.
    from sklearn.metrics import roc_auc_score

    p = cross_fit_halves(Z, rarer, half, class_balance(rarer, 2), 2, l2=SIDE_L2)[:, 1]
    return [float(roc_auc_score(rarer[kept], p[kept]))]


def _mean_over_classes(
    cells: Sequence[_Cell], areas: Sequence[float], common: Sequence[float]
) -> Independence:
    """Return the figures from those of the classes and the areas under the curve."""
    chance = 1.0 / len(common)
    accuracy = (np.mean(common) - chance) / (1.0 - chance)
    if not cells:
        return Independence(label_accuracy=float(accuracy))
    rows, minority, rare, along, low, high = np.array(cells).T
    broken, followed = rare.mean() - chance, along.mean() - chance
    error = np.sqrt((rare * (1.0 - rare) / rows).sum()) / len(cells)
    known = accuracy >= MIN_ACCURACY and followed > 0
    return Independence(
        rows=int(rows.sum()),
        minority=float(minority.mean()),
        label_accuracy=float(accuracy),
        ratio=float(broken / followed) if known else 0.0,
        ratio_error=float(error / followed) if known else 0.0,
        evenness=float(high.mean() / max(low.mean(), TINY)),
        dependence=float(np.mean(areas)) if areas else 1.0,
    )


def support_of(judged: Independence) -> float:
    """Return how far a judgement is compatible with a shortcut, in [0, 1], with two standard errors each."""
    rows = max(judged.rows, 1)
    area_error = np.sqrt(1.0 / (12.0 * rows))
    part_error = np.sqrt((0.7 / 0.3 + 0.3 / 0.7) / rows)  # of the two parts of which evenness is the ratio
    least: dict[Measurement, float] = {
        "slice_dependence": judged.dependence - STANDARD_ERRORS * area_error,
        "slice_ratio": judged.ratio + STANDARD_ERRORS * judged.ratio_error,
        "slice_unevenness": unevenness(judged) / (1.0 + STANDARD_ERRORS * part_error),
    }
    return float(np.prod([ramp(value, *SINGLE_RAMPS[name]) for name, value in least.items()]))


def unevenness(judged: Independence) -> float:
    """Return the larger one of evenness and its inverse."""
    even = max(judged.evenness, TINY)
    return max(even, 1.0 / even)
