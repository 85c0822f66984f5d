"""A column that tells one of several classes from all others: a shortcut of that class alone.

Its values stand for the class or for the rest, and no value stands for each of the other classes, so that
``class_column`` reads half of these as rows that break it. Here the label is read as that class against
the rest: the column is judged as one of two classes is, and the label of all classes is made independent of
what its values stand for. Measured in tests/paper/REAL.md, nineteenth study.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from operators.arrays import Floats, Integers
from operators.cues.models.class_accuracy import balanced_error
from operators.cues.models.cross_fitting import cross_fit_halves
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import class_balance
from operators.cues.search.class_column import (
    MEASURED,
    ClassColumn,
    column_features,
    explained_by,
    judge,
    levels_of,
    read_column,
)
from operators.cues.search.evidence import Evidence
from operators.cues.search.ramps import LEAST_PART
from operators.cues.search.searched_rows import SearchedRows
from operators.cues.search.slices import Slices
from operators.cues.settings import CueSettings
from operators.cues.sides.class_sides import independent_factors
from operators.cues.sides.sides import Sides

JUDGED = 3
"""Pairs of column and class that are judged, those first whose probability the column explains best."""


class OneClass(NamedTuple):
    """A column that tells one class, and how far it is taken for a shortcut, in [0, 1]."""

    column: ClassColumn
    gate: float


def one_class_column(
    slices: Slices, evidence: Evidence, rows: SearchedRows, s: CueSettings
) -> OneClass | None:
    """Return the column that is most clearly a shortcut of one class; None where none is one.

    Parameters
    ----------
    slices
        Slices of the rows: the columns of the strongest ones are looked at.
    evidence
        Measurements of the search, of which ``share_support`` counts here, too.
    rows
        Rows of the sample.
    s
        Settings, with the source columns of the features.

    """
    pairs = _likely_pairs(slices, rows, s)
    judged = (_judge_pair(features, target, evidence, rows, s) for features, target in pairs)
    found = [one for one in judged if one and one.gate >= LEAST_PART]
    return max(found, key=lambda one: (one.gate, one.column.column_strength), default=None)


def _likely_pairs(slices: Slices, rows: SearchedRows, s: CueSettings) -> list[tuple[tuple[int, ...], int]]:
    """Return features of columns, and the class whose probability each explains best, best pairs first."""
    pairs = []
    for features in column_features(slices, rows.Z, s):
        level, _, _ = levels_of(features, rows.Z)
        explained = [explained_by(level, rows.p[:, [c]]) for c in range(rows.n_classes)]
        pairs.append((max(explained), features, int(np.argmax(explained))))
    pairs.sort(key=lambda pair: (-pair[0], pair[1]))
    return [(features, target) for _, features, target in pairs[:JUDGED]]


def _judge_pair(
    features: tuple[int, ...], target: int, evidence: Evidence, rows: SearchedRows, s: CueSettings
) -> OneClass | None:
    """Judge a column as a shortcut of the class ``target``; None where too few rows can say anything."""
    Z, y, ids, _ = rows
    belongs = (y == target).astype(np.intp)
    p = cross_fit_halves(Z, belongs, halves(ids, s.seed, Split.FIRST), class_balance(belongs, 2), 2, l2=s.l2)
    of_two = SearchedRows(Z, belongs, ids, p)
    candidate = read_column(features, of_two)
    found = judge(candidate, of_two, s) if candidate.column_strength >= MEASURED else None
    if found is None or found.partial:
        return None
    own = replace(evidence, classes=2, error=balanced_error(p, belongs), **found.measurements())
    sides = _of_all_classes(found.sides, target, Z, y, rows.n_classes)
    return OneClass(replace(found, sides=sides), own.column_of_two_gate())


def _of_all_classes(sides: Sides, target: int, Z: Floats, y: Integers, C: int) -> Sides:
    """Return sides of two classes as sides of all: another class stands for the rest."""
    rest = 0 if target else 1
    level_side = np.array([rest, target, C])[sides.level_side]
    place = replace(sides, level_side=level_side).of_rows(Z)
    factor = independent_factors(place, y, C)
    return replace(sides, level_side=level_side, factor=factor, one_class=target)
