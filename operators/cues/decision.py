"""Decides the strength of the published weights on rows that the models have not seen, against one baseline.

The baseline is the better of no weights and class balance (``strength.baseline``). Robust weights whose
evidence suffices are published only if the worst group is better under them than under both. Without robust
weights the classes are balanced, unless the worst class is better with less of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.class_shares import counted_classes
from operators.cues.gain import rise
from operators.cues.strength import (
    CLASS_BALANCE,
    STRENGTHS,
    Point,
    Trials,
    WeightPath,
    baseline,
    point_at,
    try_strengths,
)
from operators.metrics.group_scores import MIN_ROWS

CLASS_STRENGTHS = (0.0, 0.5)
"""Strengths of class balance that are tried beside 1."""
SURE = 1.645
"""Standard errors by which another strength has to be better: a one-sided error rate of 5 %."""
MIN_CLASS_GAIN = 0.0075
"""Least rise of the worst class for which classes are balanced less: nearly equal classes hardly differ."""


@dataclass(frozen=True)
class Sample:
    """Rows on which the decision is made.

    Attributes
    ----------
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    factor
        Robust factor in full, ahead of the limits, shape (n,).
    broken
        Whether a row breaks the suspected or named shortcut, shape (n,).

    """

    Z: Floats
    y: Integers
    ids: Integers
    factor: Floats
    broken: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Decision:
    """Strength of the published weights, and the figures that led to it.

    Attributes
    ----------
    class_strength
        How far classes are balanced, from 0 to 1.
    blend
        Part of the robust factor, from 0 to 1.
    points
        Trade-off over the strength, with the published one; empty where rows are too few.

    """

    class_strength: float
    blend: float
    points: tuple[Point, ...]


def decide(sample: Sample, path: WeightPath, gate: float, *, named: bool, l2: float, seed: int) -> Decision:
    """Return how far classes are balanced and the robust factor is followed.

    Parameters
    ----------
    sample, path
        Rows, and the weights of each strength.
    gate
        Part of the robust factor that the evidence allows, from 0 to 1.
    named
        Whether the user has named the shortcut: the part is then taken whatever the groups say.
    l2, seed
        As for ``strength.try_strengths``.

    """
    published = CLASS_BALANCE + gate
    strengths = sorted({*STRENGTHS, published})
    Z, y, ids = sample.Z, sample.y, sample.ids
    try:
        trials = try_strengths(Z, y, ids, path, sample.factor, strengths=strengths, l2=l2, seed=seed)
    except ValueError:
        return Decision(CLASS_BALANCE, gate, ())
    if gate > 0:
        points = trials.points(shortcut_groups(y, sample.broken, len(path.counts)))
        reached = point_at(points, published)
        if named or (reached is not None and reached.worst > baseline(points).worst):
            return Decision(CLASS_BALANCE, gate, points)
    # Where the gate is shut, its strength is not on the curve.
    kept = [k for k, strength in enumerate(trials.strengths) if strength in STRENGTHS]
    trials = Trials(
        tuple(trials.strengths[k] for k in kept),
        trials.right[kept],
        trials.mass,
        tuple(trials.effective_share[k] for k in kept),
    )
    return Decision(class_strength(trials, y), 0.0, trials.points(y))


def shortcut_groups(y: Integers, broken: npt.NDArray[np.bool_], n_classes: int) -> npt.NDArray[np.intp]:
    """Return the number of each row's group, shape (n,): 2 y where it follows the shortcut, else 2 y + 1.

    Classes with too few rows to be measured are not divided. Where those rows of a class that break the
    shortcut are too few, they form one group, ``2 * n_classes``, with those of the classes that have the
    fewest: what the weights are for has to be among the groups that are compared.
    """
    divided = broken & counted_classes(np.bincount(y))[y]
    groups = np.asarray(2 * y + divided, np.intp)
    rows = np.bincount(y[divided], minlength=n_classes)
    pooled = list[int]()
    for c in np.argsort(rows, kind="stable").tolist():
        if rows[c] and (rows[c] < MIN_ROWS or 0 < rows[pooled].sum() < MIN_ROWS):
            pooled.append(c)
    if rows[pooled].sum() >= MIN_ROWS:
        groups[divided & np.isin(y, pooled)] = 2 * n_classes
    return groups


def class_strength(trials: Trials, y: Integers) -> float:
    """Return how far classes should be balanced, from 0 to 1: in full, unless the worst class is better with
    less.

    Accuracy of the worst label x attribute group is at most that of the worst class, which held-out rows show
    without group labels. Less balance is chosen where it raises the latter by more than chance: by more than
    1.645 standard errors of the paired change, and by .0075 at least.
    """
    counted = counted_classes(np.bincount(y))[y]
    full = trials.at(CLASS_BALANCE)[counted]
    best, found = MIN_CLASS_GAIN, CLASS_BALANCE
    for strength in CLASS_STRENGTHS:
        gain, error = rise(y[counted], full, trials.at(strength)[counted])
        if gain > max(SURE * error, best):
            best, found = gain, strength
    return found
