"""Balance of a column in classes that are too small for the search, but large enough to be counted.

Shortcuts are searched for among the larger classes (``learnt_classes``). A smaller class may go with a value
of the same column, and a model that is to tell it from the others follows that value, too. Where one column
is balanced, its sides have the same shares in such a class as they have on average over the larger ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from operators.arrays import Floats, Integers, Mask
from operators.class_shares import counted_classes
from operators.cues.decision.sample_decision import Sample, with_limits_of_classes
from operators.cues.learnt_classes import learnt_classes, weighed_classes
from operators.cues.limits import MAX_FACTOR
from operators.cues.models.linear import Scaler
from operators.cues.search.fit_right_labels import fit_right_labels
from operators.cues.settings import CueSettings
from operators.cues.sides.right_labels import RightLabels
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState, Search

MIN_SIDE_ROWS = 10
"""Rows on a side below which it has no factor of its own: a handful of rows would carry the class."""


def balance_in_other_classes(found: Search, sample: Sample) -> Search:
    """Return the findings, whose single columns are balanced in the counted classes that are not learnt too.

    Several columns that are balanced together stay as they are: their factors depend on each other.
    """
    learnt, Z = learnt_classes(sample.counts), found.state.scaler.apply(sample.X)

    def balanced(state: CueState) -> CueState:
        if state.class_column is None or state.further:
            return state
        return replace(state, class_column=with_other_classes(state.class_column, Z, sample.y, learnt))

    return Search(
        balanced(found.state),
        found.column and with_other_classes(found.column, Z, sample.y, learnt),
        found.together,
        found.class_set and balanced(found.class_set),
    )


def name_in_other_classes(named: CueState, sample: Sample, s: CueSettings) -> CueState:
    """Return the state of one named column, which is balanced in the counted classes that are not learnt too.

    The state is returned as it is where several are named, or twins and slices count beside the name, and
    where the user limits what a name may cost: that is measured on the learnt classes alone.
    """
    if named.named is None or len(named.named) != 1 or named.searched_part > 0 or s.max_named_cost < 1:
        return named
    learnt, Z = learnt_classes(sample.counts), named.scaler.apply(sample.X)
    sides = with_other_classes(named.named[0], Z, sample.y, learnt)
    if not (weighed_classes((sides,), learnt) & ~learnt).any():
        return named
    labels = right_labels_of((sides,), named.scaler, sample, s)
    state = replace(named, named=(sides,), judged_labels=() if labels is None else (labels,))
    return with_limits_of_classes(state, sample, s)


def with_other_classes(sides: Sides, Z: Floats, y: Integers, learnt: Mask) -> Sides:
    """Return the sides with factors for the counted classes that are not learnt.

    A side that the learnt classes show far less than such a class is its own: it keeps its share of the
    class, as no model confuses the class by it.

    Parameters
    ----------
    sides
        Sides of one column, whose factors are those of learnt classes.
    Z, y
        Standardised rows (n, d) and labels (n,) of all classes.
    learnt
        Whether shortcuts are searched for in each class, shape (C,).

    """
    C, S = sides.factor.shape
    count = np.bincount(y * S + sides.of_rows(Z), minlength=C * S).reshape(C, S).astype(np.float64)
    seen = learnt & (count.sum(axis=1) > 0)
    weighed = count[seen] * sides.factor[seen]
    target = (weighed / weighed.sum(axis=1, keepdims=True)).mean(axis=0)
    factor = sides.factor.copy()
    for c in np.flatnonzero(counted_classes(count.sum(axis=1).astype(np.int64)) & ~learnt):
        share = count[c] / count[c].sum()
        own = target < share / (seen.sum() + 1)
        shared = (count[c] >= MIN_SIDE_ROWS) & ~own
        if shared.sum() > 1:
            wanted = target[shared] / target[shared].sum() * share[shared].sum()
            factor[c, shared] = np.minimum(wanted / share[shared], MAX_FACTOR)
    return replace(sides, factor=factor)


def right_labels_of(
    columns: tuple[Sides, ...], scaler: Scaler, sample: Sample, s: CueSettings
) -> RightLabels | None:
    """Return how probable right labels are among the rows that break columns, after ``fit_right_labels``.

    Rows of all classes count in which the columns are balanced; those of the learnt ones alone where nothing
    can be said with the others.
    """
    learnt, C = learnt_classes(sample.counts), len(sample.counts)
    weighed = weighed_classes(columns, learnt)
    for classes in [weighed, learnt] if weighed.sum() > learnt.sum() else [learnt]:
        X, y, ids = sample.rows_of(classes)
        found = fit_right_labels(columns, scaler.apply(X), y, ids, s, C)
        if found is not None:
            return found
    return None
