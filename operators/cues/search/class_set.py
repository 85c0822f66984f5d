"""A column that tells some of several classes from all others: a shortcut of these classes alone.

Its values stand for a set of classes, such as one of three or two of four, or for the rest, and no value
stands for each class, so that ``class_column`` reads most rows of the other classes as rows that break it.
Here the label is read as that set against the rest: the column is judged as one of two classes is, and the
label of all classes is made independent of what its values stand for. Measured in tests/paper/REAL.md,
nineteenth and twenty-seventh study.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from operators.arrays import Integers, Mask
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
"""Columns that are judged, each with one set of classes: those that explain the set's probability best."""


class ClassSet(NamedTuple):
    """A column that tells a set of classes, and how far it is taken for a shortcut, in [0, 1]."""

    column: ClassColumn
    gate: float


class _Pair(NamedTuple):
    """Features of a column, the classes that it may tell, shape (C,), and how much of their probability it
    explains."""

    features: tuple[int, ...]
    told: Mask
    explained: float


def class_set_column(
    slices: Slices, evidence: Evidence, rows: SearchedRows, s: CueSettings
) -> ClassSet | None:
    """Return the column that is most clearly a shortcut of a set of classes; None where none is one.

    Of two columns that say nearly the same both are, and models lean on one of them more.

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
    judged = (_judge_pair(pair, evidence, rows, s) for pair in pairs)
    found = [one for one in judged if one and one.gate >= LEAST_PART]
    return max(found, key=lambda one: one.gate * one.column.column_strength, default=None)


def _likely_pairs(slices: Slices, rows: SearchedRows, s: CueSettings) -> list[_Pair]:
    """Return columns, each with the set of classes whose probability it explains best, best pairs first."""
    pairs = []
    for features in column_features(slices, rows.Z, s):
        level, n_levels, _ = levels_of(features, rows.Z)
        sets = [*np.eye(rows.n_classes, dtype=bool), *_sets_of_levels(level, n_levels, rows)]
        explained = [explained_by(level, rows.p[:, told].sum(axis=1, keepdims=True)) for told in sets]
        best = int(np.argmax(explained))
        pairs.append(_Pair(features, sets[best], explained[best]))
    pairs.sort(key=lambda pair: (-pair.explained, pair.features))
    return pairs[:JUDGED]


def _sets_of_levels(level: Integers, n_levels: int, rows: SearchedRows) -> list[Mask]:
    """Return the set of classes that are most alike in their levels, if it and the rest have two and more.

    The classes lie on one axis by their shares of the levels, and are parted at the largest step.
    """
    C = rows.n_classes
    count = np.bincount(rows.y * n_levels + level, minlength=C * n_levels).reshape(C, n_levels)
    share = count / np.maximum(count.sum(axis=1, keepdims=True), 1)
    place = np.linalg.svd(share - share.mean(axis=0), full_matrices=False)[0][:, 0]
    order = np.argsort(place, kind="stable")
    step = int(np.diff(place[order]).argmax()) + 1
    told = np.isin(np.arange(C), order[step:] if step >= C - step else order[:step])
    return [told] if 2 <= told.sum() <= C - 2 else []


def _judge_pair(pair: _Pair, evidence: Evidence, rows: SearchedRows, s: CueSettings) -> ClassSet | None:
    """Judge a column as a shortcut of a set of classes; None where too few rows can say anything."""
    Z, y, ids, _ = rows
    belongs = pair.told[y].astype(np.intp)
    p = cross_fit_halves(Z, belongs, halves(ids, s.seed, Split.FIRST), class_balance(belongs, 2), 2, l2=s.l2)
    of_two = SearchedRows(Z, belongs, ids, p)
    candidate = read_column(pair.features, of_two)
    found = judge(candidate, of_two, s) if candidate.column_strength >= MEASURED else None
    if found is None or found.partial:
        return None
    own = replace(evidence, classes=2, error=balanced_error(p, belongs), **found.measurements())
    sides = _of_all_classes(found.sides, pair.told, rows)
    return ClassSet(replace(found, sides=sides), own.column_of_two_gate())


def _of_all_classes(sides: Sides, told: Mask, rows: SearchedRows) -> Sides:
    """Return sides of two classes as sides of all: the first class of the set, or the rest, stands for it."""
    C, first = rows.n_classes, int(told.argmax())
    level_side = np.array([int(told.argmin()), first, C])[sides.level_side]
    place = replace(sides, level_side=level_side).of_rows(rows.Z)
    factor = independent_factors(place, rows.y, C)
    return replace(sides, level_side=level_side, factor=factor, told=tuple(np.flatnonzero(told).tolist()))
