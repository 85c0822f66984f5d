"""What the other columns say of the one column that models lean on most.

A shortcut in one column can be told from an honest column by their independence, given the label
(``independence``), also where the other columns tell little of the label. Measured in tests/paper/REAL.md,
tenth study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Floats, Integers
from operators.cues.independence import LEAST, independence
from operators.cues.slices import Slices, SourceColumn, strongest
from operators.cues.state import CueSettings

MIN_STRENGTH = 0.4
"""Strength of a slice below which no column leads, so that nothing is measured."""
SAME_COLUMN = 0.95
"""Correlation from which another feature is the same column once more: the negation, or another unit."""


@dataclass(frozen=True)
class Leading:
    """The strongest slice, as models judge it that see nothing of its column.

    Attributes
    ----------
    strength
        Of the slice; 0 where no column leads or too few rows lie on its rarer side.
    minority, told, ratio, dependence
        As in ``independence.Independence``.
    unevenness
        The larger one of evenness and its inverse: 1 for a shortcut.

    """

    strength: float = 0.0
    minority: float = 0.0
    told: float = 0.0
    ratio: float = 0.0
    dependence: float = 0.0
    unevenness: float = 0.0


def leading_column(slices: Slices, Z: Floats, y: Integers, ids: Integers, s: CueSettings, C: int) -> Leading:
    """Measure the strongest slice.

    Parameters
    ----------
    slices
        Slices of the rows.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    s
        Settings, with the source columns of the features.
    C
        Number of classes.

    """
    order, strength = strongest(slices)[:1], slices.strength()
    if not len(order) or strength[order[0]] < MIN_STRENGTH:
        return Leading()
    own = features_of(int(slices.feature[order[0]]), Z, s.columns)
    side = slices.sides(order, Z)[0]
    judged = independence(side, Z, y, ids, own, seed=s.seed, l2=s.l2, n_classes=C)
    if not judged.minority:
        return Leading()
    even = max(judged.evenness, LEAST)
    return Leading(
        strength=float(strength[order[0]]),
        minority=judged.minority,
        told=judged.told,
        ratio=judged.ratio,
        dependence=judged.dependence,
        unevenness=max(even, 1.0 / even),
    )


def features_of(feature: int, Z: Floats, columns: Sequence[SourceColumn]) -> tuple[int, ...]:
    """Return the positions of the features that say the same as one: those of its column, and repetitions.

    Parameters
    ----------
    feature
        Position of the feature.
    Z
        Standardised rows, shape (n, d).
    columns
        Source columns; a feature of none of them is a column of its own.

    """
    own = {place for column in columns if feature in column.features for place in column.features}
    correlation = np.abs(Z.T @ Z[:, feature]) / len(Z)
    return tuple(sorted({feature, *own, *np.flatnonzero(correlation > SAME_COLUMN).tolist()}))
