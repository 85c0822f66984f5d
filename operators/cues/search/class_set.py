"""A column that tells sets of classes from each other: a shortcut that says less than the class.

Its values stand for sets, such as one class of three against the rest, two of four, or three sets of eight
classes, and no value stands for each class, so that ``class_column`` reads most rows of the other classes as
rows that break it. Here the set is the label by which the column is judged, and the label of all classes is
made independent of what its values stand for. Measured in tests/paper/REAL.md, nineteenth and
twenty-seventh study.
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
from operators.cues.sides.class_sides import count_levels, independent_factors
from operators.cues.sides.sides import Sides

JUDGED = 3
"""Columns that are judged, each with its sets of classes: those that explain these sets' probability best."""


class ClassSet(NamedTuple):
    """A column that tells sets of classes, and how far it is taken for a shortcut, in [0, 1]."""

    column: ClassColumn
    gate: float


class _Pair(NamedTuple):
    """Features of a column, the set of each class, shape (C,), that it may tell from the others, and how much
    of the probabilities of the sets it explains."""

    features: tuple[int, ...]
    set_of: Integers
    explained: float


def class_set_column(
    slices: Slices, evidence: Evidence, rows: SearchedRows, s: CueSettings
) -> ClassSet | None:
    """Return the column that is most clearly a shortcut of sets of classes; None where none is one.

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
    """Return columns, each with the sets of classes whose probability it explains best, best pairs first."""
    pairs = []
    for features in column_features(slices, rows.Z, s):
        level, n_levels, _ = levels_of(features, rows.Z)
        sets: list[Integers] = [*np.eye(rows.n_classes, dtype=np.intp)]
        alike = class_sets(level, n_levels, rows.y, rows.n_classes)
        if alike is not None:
            sets.append(alike)
        explained = [explained_by(level, _of_sets(rows.p, set_of)) for set_of in sets]
        best = int(np.argmax(explained))
        pairs.append(_Pair(features, sets[best], explained[best]))
    pairs.sort(key=lambda pair: (-pair.explained, pair.features))
    return pairs[:JUDGED]


def class_sets(level: Integers, n_levels: int, y: Integers, n_classes: int) -> Integers | None:
    """Return the set of each class, shape (C,): those that are alike in the levels of a column are one.

    Classes are joined by the mean difference of their shares of the levels, those that differ least first;
    the largest step from one difference to the next ends it. None where no classes are joined by then, or all
    but one.

    Parameters
    ----------
    level, y
        Level 0 .. n_levels - 1 and label 0 .. n_classes - 1 of each row, shape (n,).
    n_levels, n_classes
        L and C.

    """
    # Not at the top: `validate` and `plan` load this module, and the import takes a third of a second.
    from scipy.cluster.hierarchy import fcluster, linkage

    count = count_levels(level, n_levels, y, n_classes)
    share = count / np.maximum(count.sum(axis=1, keepdims=True), 1)
    joined = linkage(share, method="average", metric="cityblock")
    steps = np.diff(joined[:, 2], prepend=0.0)
    last = int(steps.argmax())
    number = fcluster(joined, n_classes - last, criterion="maxclust")
    _, first, set_of, sizes = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
    if last == 0 or sizes.max() >= n_classes - 1:
        return None
    return np.asarray(np.argsort(np.argsort(first))[set_of])  # in the order of their first classes


def _of_sets(p: Floats, set_of: Integers) -> Floats:
    """Return the probability of each set of classes, shape (n, sets); of two sets that of one says all."""
    sets = np.column_stack([p[:, set_of == one].sum(axis=1) for one in range(int(set_of.max()) + 1)])
    return sets if sets.shape[1] > 2 else sets[:, 1:]


def _judge_pair(pair: _Pair, evidence: Evidence, rows: SearchedRows, s: CueSettings) -> ClassSet | None:
    """Judge a column as a shortcut of sets of classes; None where too few rows can say anything."""
    Z, y, ids, _ = rows
    y_sets, n_sets = pair.set_of[y], int(pair.set_of.max()) + 1
    balance = class_balance(y_sets, n_sets)
    p = cross_fit_halves(Z, y_sets, halves(ids, s.seed, Split.FIRST), balance, n_sets, l2=s.l2)
    of_sets = SearchedRows(Z, y_sets, ids, p)
    candidate = read_column(pair.features, of_sets)
    found = judge(candidate, of_sets, s) if candidate.column_strength >= MEASURED else None
    if found is None or found.partial:
        return None
    own = replace(evidence, classes=n_sets, error=balanced_error(p, y_sets), **found.measurements())
    gate = own.column_of_two_gate() if n_sets == 2 else own.column_gate()
    return ClassSet(replace(found, sides=_of_all_classes(found.sides, pair.set_of, rows)), gate)


def _of_all_classes(sides: Sides, set_of: Integers, rows: SearchedRows) -> Sides:
    """Return sides of sets as sides of all classes: the first class of a set stands for it."""
    C, n_sets = rows.n_classes, int(set_of.max()) + 1
    first = [int(np.flatnonzero(set_of == one)[0]) for one in range(n_sets)]
    level_side = np.array([*first, C])[sides.level_side]
    place = replace(sides, level_side=level_side).of_rows(rows.Z)
    factor = independent_factors(place, rows.y, C)
    sets = tuple(tuple(np.flatnonzero(set_of == one).tolist()) for one in range(n_sets))
    return replace(sides, level_side=level_side, factor=factor, class_sets=sets)
