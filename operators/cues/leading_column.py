"""Judgement of the column that models lean on most, by the other columns.

A shortcut in one column can be told from an honest column by their independence, given the label
(``independence``), also where the other columns tell little of the label. An honest column that none of the
others is related to looks like a shortcut. Measured in tests/paper/REAL.md, tenth study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Floats, Integers
from operators.cues.independence import TINY, Independence, independence
from operators.cues.ramps import LEAD_VETO, SINGLE_RAMPS, ramp
from operators.cues.slices import Slices, SourceColumn, strongest
from operators.cues.state import CueSettings

CANDIDATES = 24
"""Strongest slices among which the rival is looked for."""
MEASURED = 0.4
"""Strength of the strongest slice below which nothing is measured."""
SPREAD_VETO = (0.5, 0.6)
"""The limits for the gate of a shortcut that is spread over many features, of which none is strong."""
SAME_COLUMN = 0.95
"""Correlation from which another feature is the same column once more: the negation, or another unit."""
EXPECTED_TOGETHER = 20.0
"""Rows in which two unrelated features of zeros and ones would both be one: if there are none, they are
values of one column."""
MIN_COMPONENTS = 8
"""Features below which correlations are too few to tell principal components from columns."""
UNCORRELATED = 2.0
"""Root mean square of the correlations of features, in standard errors of a correlation of unrelated ones,
below which they are a basis, such as principal components: up to 1 for these, 2.9 and more on public tables
of eight features and more (tests/paper/REAL.md, twelfth study)."""
STANDARD_ERRORS = 2.0
"""Standard errors by which the other columns have to contradict a shortcut to shut a gate."""


@dataclass(frozen=True)
class Leading:
    """The strongest slice, as models judge it that see nothing of its column.

    Attributes
    ----------
    strength
        Of the slice; 0 where it is below .4, or too few rows lie on its rarer side.
    minority, label_accuracy, ratio, dependence
        As in ``independence.Independence``.
    unevenness
        The larger one of evenness and its inverse: 1 for a shortcut.
    support
        1, or less where the slice is strong and the other columns speak against a shortcut. Principal
        components do not speak against it: a shortcut lies in several of them.
    spread_support
        The same for a shortcut that is spread over many features: less already where the slice is strong in
        part.
    rival
        Strength of the strongest slice of another column, divided by ``strength``.

    """

    strength: float = 0.0
    minority: float = 0.0
    label_accuracy: float = 0.0
    ratio: float = 0.0
    dependence: float = 0.0
    unevenness: float = 0.0
    support: float = 1.0
    spread_support: float = 1.0
    rival: float = 0.0


def leading_column(slices: Slices, Z: Floats, y: Integers, ids: Integers, s: CueSettings) -> Leading:
    """Measure the strongest slice.

    Parameters
    ----------
    slices
        Slices of the rows.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    s
        Settings, with the source columns of the features.

    """
    order, strength = strongest(slices, CANDIDATES), slices.strength()
    if not len(order) or strength[order[0]] < MEASURED:
        return Leading()
    own = features_of(int(slices.feature[order[0]]), Z, s.columns)
    side = slices.sides(order[:1], Z)[0]
    judged = independence(side, Z, y, ids, own, seed=s.seed, l2=s.l2)
    if not judged.rows:
        return Leading()
    found = float(strength[order[0]])
    others = support_of(judged)
    if others < 1.0 and are_components(Z):
        others = 1.0
    return Leading(
        strength=found,
        minority=judged.minority,
        label_accuracy=judged.label_accuracy,
        ratio=judged.ratio,
        dependence=judged.dependence,
        unevenness=unevenness(judged),
        support=max(1.0 - ramp(found, *LEAD_VETO), others),
        spread_support=max(1.0 - ramp(found, *SPREAD_VETO), others),
        rival=float(strength[order[~np.isin(slices.feature[order], own)]].max(initial=0.0)) / found,
    )


def support_of(judged: Independence) -> float:
    """Return how far a judgement is compatible with a shortcut, in [0, 1], with two standard errors each."""
    rows = max(judged.rows, 1)
    area_error = np.sqrt(1.0 / (12.0 * rows))
    part_error = np.sqrt((0.7 / 0.3 + 0.3 / 0.7) / rows)  # of the two parts of which evenness is the ratio
    least = {
        "dependence": judged.dependence - STANDARD_ERRORS * area_error,
        "ratio": judged.ratio + STANDARD_ERRORS * judged.ratio_error,
        "unevenness": unevenness(judged) / (1.0 + STANDARD_ERRORS * part_error),
    }
    return float(np.prod([ramp(value, *SINGLE_RAMPS[f"lead_{name}"]) for name, value in least.items()]))


def are_components(Z: Floats) -> bool:
    """Return whether features (n, d), standardised, are as uncorrelated as principal components.

    Constant features do not count.
    """
    spread = Z.std(axis=0)
    kept = (Z[:, spread > TINY] - Z[:, spread > TINY].mean(axis=0)) / spread[spread > TINY]
    n, d = kept.shape
    if d < MIN_COMPONENTS:
        return False
    correlation = kept.T @ kept / n
    apart = correlation[~np.eye(d, dtype=bool)]
    return bool(np.sqrt(n * (apart.astype(np.float64) ** 2).mean()) < UNCORRELATED)


def unevenness(judged: Independence) -> float:
    """Return the larger one of evenness and its inverse."""
    even = max(judged.evenness, TINY)
    return max(even, 1.0 / even)


def features_of(feature: int, Z: Floats, columns: Sequence[SourceColumn]) -> tuple[int, ...]:
    """Return the positions of the features that say the same as one: those of its column, and repetitions.

    Features of zeros and ones that are never one together are taken for values of one column.

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
    spread = np.maximum(Z.std(axis=0), TINY)
    shift = Z[:, feature] - Z[:, feature].mean()
    correlation = np.abs(Z.T @ shift) / (len(Z) * spread * spread[feature])
    same = np.flatnonzero(correlation > SAME_COLUMN).tolist()
    return tuple(sorted({feature, *own, *same, *_exclusive(feature, Z)}))


def _exclusive(feature: int, Z: Floats) -> list[int]:
    """Return the positions of the features of two values whose upper one never occurs with that of one."""
    high, low = Z.max(axis=0), Z.min(axis=0)
    upper = high == Z
    binary = (upper | (low == Z)).all(axis=0) & (high > low)
    if not binary[feature]:
        return []
    expected = upper.mean(axis=0) * upper[:, feature].sum()
    together = (upper & upper[:, [feature]]).any(axis=0)
    return np.flatnonzero(binary & ~together & (expected >= EXPECTED_TOGETHER)).tolist()
