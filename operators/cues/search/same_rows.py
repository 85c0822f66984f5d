"""Columns that say the same of the rows: suspects of which one is listed, and one answer is enough.

Columns of features say the same where they divide the rows alike whatever the cut, such as the two columns
of a category with two values that was encoded before. Words say the same where they occur in nearly the same
texts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from operators.arrays import Floats

TOLERANCE = 1e-4
"""Difference of standardised values that rounding explains."""
FIRST_ROWS = 256
"""Rows by which most pairs of columns are found to differ."""
SAME_TEXTS = 0.95
"""Share of the texts with one of two words that have both, from which the words are one suspect."""

SaySame = Callable[[Floats, Floats], bool]


def equal_but_for_sign(one: Floats, other: Floats) -> bool:
    """Return whether two standardised columns, shape (n,), are equal in all rows, or opposite in all."""
    for rows in (slice(FIRST_ROWS), slice(None)):
        x, z = one[rows], other[rows]
        if not any(np.allclose(x, sign * z, rtol=TOLERANCE, atol=TOLERANCE) for sign in (1.0, -1.0)):
            return False
    return True


def occur_together(one: Floats, other: Floats) -> bool:
    """Return whether two words, columns of 0 and 1 of shape (n,), occur in nearly the same texts."""
    x, z = one > 0, other > 0
    return bool(np.count_nonzero(x & z) >= SAME_TEXTS * np.count_nonzero(x | z))


def grouped(
    features: Sequence[int], Z: Floats, same: SaySame, *, top: int, always: Collection[int]
) -> list[tuple[int, ...]]:
    """Return the features that are listed, each with those that say the same.

    Parameters
    ----------
    features
        Columns of ``Z``, the strongest first.
    Z
        Standardised rows, shape (n, d).
    same
        Whether two columns say the same.
    top
        How many of the strongest groups are listed.
    always
        Features that are listed whatever their strength. They come first in their group.

    """
    groups: list[list[int]] = []
    limit = top + len(set(always).intersection(features))
    for feature in sorted(features, key=lambda one: one not in always):
        group = next((one for one in groups if same(Z[:, one[0]], Z[:, feature])), None)
        if group is not None:
            group.append(feature)
        elif len(groups) < limit:
            groups.append([feature])
    rank = {feature: place for place, feature in enumerate(features)}
    groups.sort(key=lambda group: min(rank[feature] for feature in group))
    return [tuple(group) for place, group in enumerate(groups) if place < top or group[0] in always]


def with_same(positions: Collection[int], Z: Floats, others: Collection[int] = ()) -> frozenset[int]:
    """Return some columns of the standardised rows ``Z``, with those that say the same but for ``others``."""
    known = [position for position in positions if position < Z.shape[1]]
    found = {
        column
        for column in range(Z.shape[1])
        if column not in others and any(equal_but_for_sign(Z[:, one], Z[:, column]) for one in known)
    }
    return frozenset(positions) | found
