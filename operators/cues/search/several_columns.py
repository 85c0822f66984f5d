"""Columns that each carry a shortcut, found one after the other under weights that balance the known ones.

A model that no longer leans on one shortcut leans on the next. The columns are looked for again where the
label is independent of those that are known, judged by the others in the same way (``class_column``), and
all are balanced together (``joint_balance``). Of three and more that are about equally strong none explains
much by itself: these are judged by how much models lean on each where the others are balanced. Measured in
tests/paper/REAL.md, eighteenth and twentieth study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.cues.limits import fit_limits
from operators.cues.models.cross_fitting import cross_fit_halves
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import class_balance
from operators.cues.search.class_column import Candidate, ClassColumn, candidates, judge
from operators.cues.search.evidence import Evidence
from operators.cues.search.searched_rows import SearchedRows
from operators.cues.search.slices import find_slices
from operators.cues.search.wrong_labels import SURE_RATIO, have_wrong_labels, own_features
from operators.cues.settings import CueSettings
from operators.cues.sides.joint_balance import balance_jointly, several_factor
from operators.cues.sides.sides import Sides

MOST = 4
"""Columns that are balanced together at most, the first one included."""
JUDGED = 3
"""Strongest columns that are judged in search of each further one."""
PASSES = 0.5
"""Gate from which a column is taken for a shortcut."""
LEAST_TOGETHER = 3
"""Columns from which none has to be strong by itself."""
SEEN_AT_FIRST, SEEN_AT_FIRST_OF_MANY = 0.54, 0.4
"""Least strength of the k-th column before any is balanced, times k, for two classes and for more: a model
hardly leans on a weaker one, and honest columns become stronger when a shortcut is balanced."""


def columns_together(
    first: ClassColumn,
    likely: Sequence[Candidate],
    evidence: Evidence,
    rows: SearchedRows,
    s: CueSettings,
) -> tuple[ClassColumn, ...]:
    """Return the columns that each carry a shortcut, in the order in which they are found.

    It is the first one alone where no other is found. If it is no shortcut by its own strength, three are
    needed at least, each of which has to be strong where the others are balanced.

    Parameters
    ----------
    first
        The strongest column.
    likely
        All columns on which models lean.
    evidence
        Measurements of the search, which say what all columns have in common.
    rows
        Rows of the sample.
    s
        Settings, with the source columns of the features.

    """
    alone = passing_gate(first, evidence) >= PASSES
    if not alone and _gate_but_for_strength(first, evidence) < PASSES:
        return (first,)
    found, gate = [first], passing_gate if alone else _gate_but_for_strength
    least = SEEN_AT_FIRST if rows.n_classes <= 2 else SEEN_AT_FIRST_OF_MANY
    while len(found) < MOST:
        known = {one.sides.columns for one in likely if one.column_strength >= least / (len(found) + 1)}
        others = [one for one in _candidates_beside(found, rows, s) if one.sides.columns in known]
        judged = (judge(one, rows, s) for one in others[:JUDGED])
        following = next((one for one in judged if one and gate(one, evidence) >= PASSES), None)
        if following is None:
            break
        found.append(following)
    if alone:
        return tuple(found)
    if len(found) < LEAST_TOGETHER:
        return (first,)
    strong = tuple(_with_others_balanced(one, found, rows, s) for one in found)
    return strong if min(passing_gate(one, evidence) for one in strong) >= PASSES else (first,)


def _candidates_beside(found: Sequence[ClassColumn], rows: SearchedRows, s: CueSettings) -> list[Candidate]:
    """Return the other columns on which models lean where these are balanced, the strongest first."""
    Z, y, ids, _ = rows
    weight = _balanced_weight(found, rows, s)
    moved = cross_fit_halves(Z, y, halves(ids, s.seed, Split.FIRST), weight, rows.n_classes, l2=s.l2)
    left_out = own_features([one.sides for one in found], Z, s)
    return candidates(find_slices(Z, y, moved, s.legitimate), rows._replace(p=moved), s, left_out)


def _with_others_balanced(
    one: ClassColumn, found: Sequence[ClassColumn], rows: SearchedRows, s: CueSettings
) -> ClassColumn:
    """Return a column with its strength where all others that are found are balanced."""
    others = [other for other in found if other is not one]
    again = {other.sides.columns: other.column_strength for other in _candidates_beside(others, rows, s)}
    return replace(one, column_strength=again.get(one.sides.columns, 0.0))


def _balanced_weight(found: Sequence[ClassColumn], rows: SearchedRows, s: CueSettings) -> Float64:
    """Return row weights, shape (n,), under which classes are balanced and the label is independent of the
    columns, as far as the limits allow."""
    Z, y, ids, _ = rows
    C = rows.n_classes
    sides = balanced(found, Z, y, C)
    factor = several_factor(sides, have_wrong_labels(sides, Z, y, ids, s), Z, y)
    limits = fit_limits(factor, y, C, cap=s.cap, min_effective=s.min_effective)
    return np.asarray(class_balance(y, C) * limits.apply(factor, y))


def passing_gate(column: ClassColumn, evidence: Evidence) -> float:
    """Return how far a column is taken for a shortcut, in [0, 1], by what is measured of it."""
    own = replace(evidence, **column.measurements())
    return own.column_of_two_gate() if evidence.classes <= 2 else own.column_gate()


def _gate_but_for_strength(column: ClassColumn, evidence: Evidence) -> float:
    """Return how far a column is taken for a shortcut by all but how much models lean on it, in [0, 1]."""
    return passing_gate(replace(column, column_strength=1.0), evidence)


def joint_part(columns: Sequence[ClassColumn], evidence: Evidence, opened: bool) -> float:
    """Return how far the balance of several columns is followed, in [0, 1].

    Of two classes that is 0 where the search finds nothing (``opened``) and the rows that contradict one of
    the columns may be wrong labels.
    """
    sure = evidence.classes > 2 or opened or min(one.judged.ratio for one in columns) >= SURE_RATIO
    return min(passing_gate(one, evidence) * one.part() for one in columns) if sure else 0.0


def balanced(columns: Sequence[ClassColumn], Z: Floats, y: Integers, n_classes: int) -> tuple[Sides, ...]:
    """Return the sides of the columns with the factors that balance all of them together."""
    return balance_jointly([one.sides for one in columns], Z, y, n_classes)
