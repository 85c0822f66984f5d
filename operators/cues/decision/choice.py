"""Choice among what the search has found: which state is followed, and how far.

In this order: several columns together, if there are any; the column that tells some of the classes, if
nothing else opens the gate, or if held-out rows favour it, for every class where its values stand for each;
the column that stands for the classes; twins and slices. Each is decided on by held-out rows
(``sample_decision``); where none is better than the baseline, the classes are balanced. What may be followed
although the gate is shut is in ``full_weights``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from operators.arrays import Integers
from operators.cues.decision.decision import Decision, worst_rise
from operators.cues.decision.groups import shortcut_groups
from operators.cues.decision.sample_decision import Sample, decide_on
from operators.cues.learnt_classes import learnt_classes
from operators.cues.models.curve_points import point_at
from operators.cues.models.weight_path import CLASS_BALANCE
from operators.cues.row_weights import breaks, broken_column
from operators.cues.search.ramps import LEAST_PART, SOME_EVIDENCE, SURE_COLUMN
from operators.cues.settings import CueSettings
from operators.cues.state import CueState, Search
from operators.metrics.group_scores import MIN_ROWS as MIN_GROUP_ROWS

SURE_RISE = 0.15
"""Least rise of the worst group by a column of two classes where twins and slices gain nothing."""
CLEAR_RISE = 0.05
"""Least rise of the worst group by which a column that tells some of the classes is balanced in place of
what opens the gate."""


def choose_state(found: Search, sample: Sample, s: CueSettings) -> tuple[CueState, Decision]:
    """Return the state that is followed, and the decision on it.

    Several columns are balanced together or not at all: one of them alone leaves the others, of which models
    then make more. A column that tells some of several classes takes the place of what opens the gate where
    held-out rows favour it, unless the same column stands for every class there.
    """
    if found.together:
        return found.together, decide_on(found.together, sample, s)
    class_set = found.class_set
    if class_set and found.state.blend < LEAST_PART:
        return _all_classes_or_set(found, class_set, sample, s)
    search, decision = _choose_factor(found.state, sample, s)
    if class_set is None or _balances_all_classes(search, class_set):
        return search, decision
    other = decide_on(class_set, sample, s)
    if other.blend > 0 and _is_better(other, decision, class_set, search, sample):
        return _all_classes_or_set(found, class_set, sample, s)
    return search, decision


def _all_classes_or_set(
    found: Search, class_set: CueState, sample: Sample, s: CueSettings
) -> tuple[CueState, Decision]:
    """Return the state that balances a set's column for every class, where held-out rows favour that.

    The values of one column may stand for every class, though the evidence suffices for one set of them
    alone: balanced for the set, the column still tells the other classes from each other.
    """
    decision = decide_on(class_set, sample, s)
    every = replace(class_set, class_column=found.column)
    if decision.blend <= 0 or not _balances_all_classes(every, class_set):
        return class_set, decision
    other = decide_on(every, sample, s)
    if other.blend > 0 and _is_better(other, decision, every, class_set, sample):
        return every, other
    return class_set, decision


def _balances_all_classes(search: CueState, class_set: CueState) -> bool:
    """Return whether the search balances the same column by values that stand for every class."""
    column, own = search.class_column, class_set.class_column
    if column is None or own is None or not set(column.columns) & set(own.columns):
        return False
    C = len(column.factor)
    return len(set(column.level_side.tolist()) - {C}) == search.n_learnt


def _is_better(
    other: Decision, decision: Decision, class_set: CueState, search: CueState, sample: Sample
) -> bool:
    """Return whether it is better for one shortcut, and no worse for the other, to balance a set's column.

    Where the other one lies in a column too, rows are compared by which of both they break: the classes that
    that column does not tell apart have rows of their own that break that column.
    """
    X, y, ids = sample.X, sample.y, sample.ids
    own, others = broken_column(class_set, X, y, ids), broken_column(search, X, y, ids)
    if search.class_columns:
        others = own + 2 * others
    changes = [
        worst_of_decision(other, broken, sample) - worst_of_decision(decision, broken, sample)
        for broken in (own, others)
    ]
    return changes[0] >= CLEAR_RISE and changes[1] >= 0.0


def worst_of_decision(decision: Decision, broken: Integers, sample: Sample) -> float:
    """Return the accuracy of the worst group under a decision, on held-out rows.

    It is 0 where rows are too few to measure. ``broken`` is 0 for a row that follows the shortcuts and else
    the number of a kind, shape (n,).
    """
    strength = CLASS_BALANCE + decision.blend if decision.blend > 0 else decision.class_strength
    if decision.trials is None:
        return 0.0
    groups = shortcut_groups(sample.y, broken, len(sample.counts), max(int(broken.max()), 1))
    all_alike = replace(
        decision.trials, right_label=None
    )  # what is known of labels differs between decisions
    reached = point_at(all_alike.points(groups), strength)
    return 0.0 if reached is None else reached.worst


def _choose_factor(search: CueState, sample: Sample, s: CueSettings) -> tuple[CueState, Decision]:
    """Return the state whose robust factor is followed, and the decision on it.

    Of two classes a column that carries a shortcut is balanced only where the weights of twins and slices are
    better than the baseline as well, or held-out rows clearly favour it (``_clearly_better``): an honest
    column can look so. One that opens a gate by itself comes first, and twins and slices are tried if it is
    no better than the baseline.
    """
    if search.class_column is None or search.evidence is None or search.n_learnt > 2:
        return search, decide_on(search, sample, s)
    without = replace(search, class_column=None, blend=search.evidence.searched_gate())
    if search.evidence.own_column_gate() > 0:
        balanced = decide_on(search, sample, s)
        if balanced.blend > 0 or without.blend <= 0:
            return search, balanced
        return without, decide_on(without, sample, s)
    plain, balanced = (decide_on(state, sample, s) for state in (without, search))
    gained = plain.blend > 0 and without.blend > SOME_EVIDENCE[0]
    if balanced.blend > 0 and (gained or _clearly_better(balanced, search, sample)):
        return search, balanced
    return without, plain


def _clearly_better(balanced: Decision, search: CueState, sample: Sample) -> bool:
    """Return whether a column of two classes is balanced although twins and slices gain nothing by it.

    Held-out rows have to show a large rise of the worst group, and both classes enough rows that
    contradict the column: with few, rows of both classes are one group, which an honest column can raise.
    """
    if balanced.blend <= 0 or search.evidence is None or search.evidence.column_of_two_gate() < SURE_COLUMN:
        return False
    broken = breaks(search, sample.X, sample.y, sample.ids)
    contradicting = np.bincount(sample.y[broken], minlength=len(sample.counts))
    return bool(contradicting[learnt_classes(sample.counts)].min() >= MIN_GROUP_ROWS) and (
        worst_rise(balanced.points, CLASS_BALANCE + balanced.blend) >= SURE_RISE
    )
