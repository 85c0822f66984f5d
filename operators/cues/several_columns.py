"""Rows that break one or several columns, and the factor of columns that are balanced together.

A wrong label breaks all columns that stand for the classes, and of the rows that break several at once most
may have one. Joint balance would give these the largest factors of all, so that a model learns wrong labels
alone. Where models without the columns judge them wrong, they keep at most the weight of their class.
Measured in tests/paper/REAL.md, nineteenth study.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Floats, Integers
from operators.cues.independence import Independence, independence
from operators.cues.joint_balance import joint_factor
from operators.cues.leading_column import features_of
from operators.cues.named import Sides
from operators.cues.state import CueSettings

SURE_RATIO = 0.15
"""Ratio, after ``independence``, from which rows that break columns are not mostly wrong labels."""


def own_features(columns: Sequence[Sides], Z: Floats, s: CueSettings) -> frozenset[int]:
    """Return the features of the columns, and all others of the same source columns."""
    features = [feature for one in columns for feature in one.columns]
    return frozenset(same for feature in features for same in features_of(feature, Z, s.columns))


def first_broken(columns: Sequence[Sides], Z: Floats, y: Integers) -> Integers:
    """Return the number of the first column that each row breaks, from 1, else 0, shape (n,)."""
    which = np.zeros(len(y), np.intp)
    for number, one in reversed(list(enumerate(columns, 1))):
        which[one.breaks(Z, y)] = number
    return which


def breaks_several(columns: Sequence[Sides], Z: Floats, y: Integers) -> npt.NDArray[np.bool_]:
    """Return whether each row breaks more than one of the columns, shape (n,)."""
    broken = np.zeros(len(y), np.intp)
    for one in columns:
        broken += one.breaks(Z, y)
    return np.asarray(broken > 1)


def several_factor(columns: Sequence[Sides], spares: bool, Z: Floats, y: Integers) -> Float64:
    """Return the factor of each row within its class, shape (n,), as ``joint_balance.joint_factor`` does.

    With ``spares`` it is at most 1 for a row that breaks more than one of the columns.
    """
    factor = joint_factor(columns, Z, y)
    if spares:
        factor = np.where(breaks_several(columns, Z, y), np.minimum(factor, 1.0), factor)
    return np.asarray(factor)


def judge_several(
    columns: Sequence[Sides], Z: Floats, y: Integers, ids: Integers, s: CueSettings
) -> Independence:
    """Return how models that see none of the columns judge the rows that break more than one.

    Parameters
    ----------
    columns
        Columns that are balanced together.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    s
        Settings, with the source columns of the features.

    """
    own, several = sorted(own_features(columns, Z, s)), breaks_several(columns, Z, y)
    return independence(several, Z, y, ids, own, seed=s.seed, l2=s.l2, with_dependence=False)


def are_wrong_labels(judged: Independence) -> bool:
    """Return whether the judged rows mostly have wrong labels."""
    return judged.rows > 0 and judged.ratio < SURE_RATIO


def have_wrong_labels(
    columns: Sequence[Sides], Z: Floats, y: Integers, ids: Integers, s: CueSettings
) -> bool:
    """Return whether the rows that break more than one column mostly have wrong labels, as the others judge.

    Parameters are those of ``judge_several``; a single column has no such rows.
    """
    return len(columns) > 1 and are_wrong_labels(judge_several(columns, Z, y, ids, s))
