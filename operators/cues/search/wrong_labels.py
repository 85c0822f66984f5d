"""Whether the rows that break several columns have wrong labels, as models judge that see none of them.

A wrong label breaks all columns that stand for the classes, and of the rows that break several at once most
may have one. Joint balance would give these the largest factors of all, so that a model learns wrong labels
alone. Where they are judged wrong, they keep at most the weight of their class.
Measured in tests/paper/REAL.md, nineteenth study.
"""

from __future__ import annotations

from collections.abc import Sequence

from operators.arrays import Floats, Integers
from operators.cues.search.independence import Independence, independence, with_mirrors
from operators.cues.search.related_features import features_of
from operators.cues.settings import CueSettings
from operators.cues.sides.joint_balance import breaks_several
from operators.cues.sides.sides import Sides

SURE_RATIO = 0.15
"""Ratio, after ``independence``, from which rows that break columns are not mostly wrong labels."""


def own_features(columns: Sequence[Sides], Z: Floats, s: CueSettings) -> frozenset[int]:
    """Return the features of the columns, and all others of the same source columns."""
    features = [feature for one in columns for feature in one.columns]
    return frozenset(same for feature in features for same in features_of(feature, Z, s.columns))


def unseen_features(columns: Sequence[Sides], Z: Floats, y: Integers, s: CueSettings) -> list[int]:
    """Return the features to hide from models that judge the rows which break columns, in order.

    These are the features of the columns, and those of others that mirror one of them (``with_mirrors``).
    """
    found = set[int]()
    for one in columns:
        own = sorted(own_features([one], Z, s))
        found.update(with_mirrors(own, one.breaks(Z, y), Z, y, s.columns))
    return sorted(found) if len(found) < Z.shape[1] else sorted(own_features(columns, Z, s))


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
    unseen, several = unseen_features(columns, Z, y, s), breaks_several(columns, Z, y)
    return independence(several, Z, y, ids, unseen, seed=s.seed, l2=s.l2, with_dependence=False)


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
