"""Balance of a column that too few rows of a rare class break for its group to be compared.

Groups are compared from 50 rows on, and the rows of a rare class that break a column of two classes are often
fewer. They are then one group with those of the large class, which are many and decide it alone: that class
is best without weights, and the rare one has no voice. Where the column looks like a shortcut, each class is
a group of its own here, from 5 rows on. Neither no weights nor class balance serves both: one gives up the
rows of the rare class that break the column, the other those of the large class. The column is balanced if
the worse of both gains much, and by more than chance. Where both classes have 50 such rows this is no rule: a
moderate honest feature that is independent of the others looks the same. Measured in tests/paper/REAL.md,
twenty-eighth study.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from operators.cues.decision.decision import Decision, worst_rise
from operators.cues.decision.sample_decision import Sample, decide_on
from operators.cues.learnt_classes import learnt_classes
from operators.cues.models.curve_points import baseline, point_at
from operators.cues.models.trade_off import Fits, TradeOffPoint
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


def follow_rare_class(
    search: CueState,
    column: Sides | None,
    decision: Decision,
    sample: Sample,
    s: CueSettings,
    fits: Fits | None = None,
) -> tuple[CueState, Decision]:
    """Return the state that balances the column of two classes and its decision, else those given.

    The points of the decision compare the groups of 5 rows and more.

    Parameters
    ----------
    search, column
        From ``fit_searched``.
    decision
        What the evidence leads to. Nothing else is tried where something is followed.
    sample, s, fits
        As for ``decide_on``.

    """
    if decision.blend > 0 or search.further or column is None or search.n_learnt > 2:
        return search, decision
    if search.evidence is None or search.evidence.column_gate() < SURE_COLUMN:
        return search, decision
    state = replace(search, class_column=column, blend=1.0)
    X, y, ids, counts = sample
    broken, learnt = breaks(state, X, y, ids), learnt_classes(counts)[y]
    rows = np.unique(y[learnt & broken], return_counts=True)[1]
    if len(rows) < 2 or not LEAST_ROWS <= rows.min() < MIN_ROWS:
        return search, decision
    trials = decide_on(state, sample, s, fits=fits).trials
    if trials is None or FULL not in trials.strengths:
        return search, decision
    points = trials.only_rows(learnt).points((2 * y + broken)[learnt], min_rows=LEAST_ROWS)
    if not is_surely_better(points):
        return search, decision
    return state, Decision(CLASS_BALANCE, 1.0, points, trials)


def is_surely_better(points: tuple[TradeOffPoint, ...]) -> bool:
    """Return whether the worst group in full is much better than at the baseline, by a standard error too."""
    full = point_at(points, FULL)
    if full is None or worst_rise(points, FULL) < LEAST_RISE:
        return False
    error = np.sqrt(max(full.worst * (1.0 - full.worst), LEAST_VARIANCE) / full.rows)
    return bool(full.worst - error > baseline(points).worst)
