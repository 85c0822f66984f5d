"""Features that say the same as another one, and whether all of them are principal components."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from operators.arrays import Floats
from operators.cues.search.independence import TINY
from operators.cues.settings import SourceColumn

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
