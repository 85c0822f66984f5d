"""Columns that carry a shortcut beside the strongest one, found under weights that balance that one.

A model that no longer leans on one shortcut leans on the next. The columns are looked for again where the
label is independent of those that are known, judged by the others in the same way (``carrying_column``), and
all are balanced together (``joint_balance``). Measured in tests/paper/REAL.md, eighteenth study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from operators.arrays import Floats, Integers
from operators.cues.carrying_column import CarryingColumn, candidates, judge
from operators.cues.cross_fitting import cross_fit_halves
from operators.cues.draws import halves
from operators.cues.evidence import Evidence
from operators.cues.joint_balance import balance_jointly, joint_factor
from operators.cues.leading_column import features_of
from operators.cues.linear import class_balance
from operators.cues.named import Sides
from operators.cues.slices import Slices, find_slices
from operators.cues.state import CueSettings

MOST = 4
"""Columns that are balanced together at most, the first one included."""
JUDGED = 3
"""Strongest columns that are judged in search of each further one."""
PASSES = 0.5
"""Gate from which a column is taken for a shortcut."""
SURE_RATIO = 0.15
"""Ratio of a column of two classes from which the rows that contradict it are not mostly wrong labels."""
SEEN_AT_FIRST, SEEN_AT_FIRST_OF_MANY = 0.27, 0.2
"""Least strength of a further column before the first is balanced, for two classes and for more: a model
hardly leans on a weaker one, and honest columns become stronger when a shortcut is balanced."""


def further_columns(
    first: CarryingColumn,
    evidence: Evidence,
    slices: Slices,
    Z: Floats,
    y: Integers,
    ids: Integers,
    p: Floats,
    s: CueSettings,
) -> tuple[CarryingColumn, ...]:
    """Return the columns that carry a shortcut beside the first, the strongest one first.

    None are returned where the first one is not taken for a shortcut itself.

    Parameters
    ----------
    first
        The strongest column.
    evidence
        Measurements of the search, which say what all columns have in common.
    slices
        Slices of the rows.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    p
        Held-out probabilities of class-balanced models, shape (n, C).
    s
        Settings, with the source columns of the features.

    """
    if first.partial or passing_gate(first, evidence) < PASSES:
        return ()
    least = SEEN_AT_FIRST if p.shape[1] <= 2 else SEEN_AT_FIRST_OF_MANY
    seen = {one.sides.columns: one.strength for one in candidates(slices, Z, y, p, s)}
    found = [first]
    while len(found) < MOST:
        apart = frozenset(
            same
            for known in found
            for feature in known.sides.columns
            for same in features_of(feature, Z, s.columns)
        )
        factor = joint_factor(balanced(found, Z, y, p.shape[1]), Z, y)
        weight = class_balance(y, p.shape[1]) * factor
        moved = cross_fit_halves(Z, y, halves(ids, s.seed, 0), weight, p.shape[1], l2=s.l2)
        again = find_slices(Z, y, moved, s.legitimate)
        fresh = [
            one
            for one in candidates(again, Z, y, moved, s, apart)
            if seen.get(one.sides.columns, 0.0) >= least
        ]
        judged = (judge(one, Z, y, ids, s) for one in fresh[:JUDGED])
        following = next((one for one in judged if one and passing_gate(one, evidence) >= PASSES), None)
        if following is None or following.partial:
            break
        found.append(following)
    return tuple(found[1:])


def passing_gate(column: CarryingColumn, evidence: Evidence) -> float:
    """Return how far a column is taken for a shortcut, in [0, 1], by what is measured of it."""
    own = replace(evidence, **column.measurements())
    return own.carrier_of_two_gate() if evidence.classes <= 2 else own.carrier_gate()


def joint_gate(columns: Sequence[CarryingColumn], evidence: Evidence, opened: bool) -> float:
    """Return how far the balance of several columns is followed, in [0, 1].

    Of two classes that is 0 where the search finds nothing (``opened``) and the rows that contradict one of
    the columns may be wrong labels.
    """
    sure = evidence.classes > 2 or opened or min(one.judged.ratio for one in columns) >= SURE_RATIO
    return min(passing_gate(one, evidence) * one.part() for one in columns) if sure else 0.0


def balanced(columns: Sequence[CarryingColumn], Z: Floats, y: Integers, n_classes: int) -> tuple[Sides, ...]:
    """Return the sides of the columns with the factors that balance all of them together."""
    return balance_jointly([one.sides for one in columns], Z, y, n_classes)
