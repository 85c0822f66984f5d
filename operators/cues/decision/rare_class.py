"""Balance of a column that too few rows of a rare class break for its group to be compared.

Groups are compared from 50 rows on, and the rows of a rare class that break a column of two classes are often
fewer. They are then one group with those of the large class, which are many and decide it alone: that class
is best without weights, and the rare one has no voice. Where the column looks like a shortcut, each class is
a group of its own here, from 5 rows on. Neither no weights nor class balance serves both: one gives up the
rows of the rare class that break the column, the other those of the large class. The column is balanced if
the worse of both gains much, by more than chance, and by more than three times what all rows lose: an honest
column that is independent of the others looks the same but for its price. Where both classes have 50 such
rows, neither has, or the class is not rare, this is no rule: few rows are no evidence then. Measured in
tests/paper/REAL.md, twenty-eighth and twenty-ninth study.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from operators.arrays import Integers, Mask
from operators.cues.decision.decision import Decision, cost, worst_rise
from operators.cues.decision.sample_decision import Sample, decide_on
from operators.cues.learnt_classes import learnt_classes
from operators.cues.models.curve_points import baseline, point_at
from operators.cues.models.trade_off import TradeOffPoint
from operators.cues.models.weight_path import CLASS_BALANCE, FULL
from operators.cues.row_weights import breaks
from operators.cues.search.ramps import SURE_COLUMN
from operators.cues.settings import CueSettings
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState
from operators.metrics.group_scores import MIN_ROWS

LEAST_ROWS = 5
"""Rows of a class that break the column, below which they say nothing."""
LEAST_VARIANCE = 0.05
"""Least variance of whether a row is right: of a handful of rows all may be, by chance."""
LEAST_RISE = 0.15
"""Rise of the worst group's accuracy from which the column is balanced."""
MOST_COST = 1.0 / 3.0
"""Accuracy of all rows that this may cost, as a part of that rise."""
RARE = 0.15
"""Share of the rows up to which a class is rare."""


def follow_rare_class(
    search: CueState,
    column: Sides | None,
    decision: Decision,
    sample: Sample,
    s: CueSettings,
) -> tuple[CueState, Decision]:
    """Return the state that balances the column of two classes and its decision, else those given.

    The points of the decision compare the groups of 5 rows and more.

    Parameters
    ----------
    search, column
        From ``fit_searched``.
    decision
        What the evidence leads to. Nothing else is tried where something is followed.
    sample, s
        As for ``decide_on``.

    """
    if decision.blend > 0 or search.further or column is None or search.n_learnt > 2:
        return search, decision
    if search.evidence is None or search.evidence.column_gate() < SURE_COLUMN:
        return search, decision
    state = replace(search, class_column=column, blend=1.0)
    X, y, ids, counts = sample.X, sample.y, sample.ids, sample.counts
    broken, learnt = breaks(state, X, y, ids), learnt_classes(counts)[y]
    if not has_few_of_rare_class(y[learnt], broken[learnt], counts):
        return search, decision
    trials = decide_on(state, sample, s).trials
    if trials is None or FULL not in trials.strengths:
        return search, decision
    points = trials.only_rows(learnt).points((2 * y + broken)[learnt], min_rows=LEAST_ROWS)
    if not is_surely_better(points):
        return search, decision
    return state, Decision(CLASS_BALANCE, 1.0, points, trials)


def has_few_of_rare_class(y: Integers, broken: Mask, counts: Integers) -> bool:
    """Return whether 5 to 49 rows of a rare class break the column, and 50 and more of the other.

    Parameters
    ----------
    y, broken
        Labels and whether a row breaks the column, shape (n,).
    counts
        Rows of each class in the whole table, shape (C,).

    """
    classes, rows = np.unique(y[broken], return_counts=True)
    if len(rows) != 2 or not LEAST_ROWS <= rows.min() < MIN_ROWS <= rows.max():
        return False
    rare = classes[rows.argmin()]
    return bool(counts[rare] <= RARE * counts.sum())


def is_surely_better(points: tuple[TradeOffPoint, ...]) -> bool:
    """Return whether the worst group in full is much better than at the baseline, for what all rows lose.

    It has to be better by a standard error as well.
    """
    full, rise = point_at(points, FULL), worst_rise(points, FULL)
    if full is None or rise < LEAST_RISE or cost(points, FULL) > MOST_COST * rise:
        return False
    error = np.sqrt(_variance(full) + _variance(baseline(points)))
    return bool(rise > error)


def _variance(point: TradeOffPoint) -> float:
    """Return the variance of the worst group's accuracy at a strength."""
    return float(max(point.worst * (1.0 - point.worst), LEAST_VARIANCE) / point.rows)
