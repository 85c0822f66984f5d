"""Robust weights where the gate is not open: the ways to them, and whether one is followed.

Of two classes there are two ways, in full: twins and slices are followed, or the column that stands for the
classes is made independent of the label. Of more classes the column is the only one, by the part that is best
on held-out rows: twins and slices bring little there. Each is tried on held-out rows, and all measurements
together decide (``expected_gain``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from operators.cues.decision.decision import Decision
from operators.cues.decision.expected_gain import expected_gain, least_gain
from operators.cues.decision.sample_decision import Sample, decide_on
from operators.cues.learnt_classes import learnt_classes
from operators.cues.row_weights import breaks
from operators.cues.search.evidence import LEAST_AGREEMENT
from operators.cues.settings import CueSettings
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState

NEARLY_FULL = 0.85
"""Gate from which nothing else is tried: full weights bring little more, and of more than two classes the
part that is missing is kept back for wrong labels."""


def follow_in_full(
    search: CueState,
    column: Sides | None,
    decision: Decision,
    sample: Sample,
    s: CueSettings,
) -> tuple[CueState, Decision]:
    """Return the state and decision of a way whose expected gain is large, else those given.

    Parameters
    ----------
    search, column
        From ``fit_searched``.
    decision
        What the gate leads to. Nothing else is tried where that is open, or where several columns carry a
        shortcut: one of them alone would leave the others.
    sample, s
        As for ``decide_on``.

    """
    if search.further or is_open(search, decision):
        return search, decision
    best, least = None, least_gain(s.setting, search.n_learnt)
    # All labels count alike: the trees know measurements of such trials alone.
    for state, tried in tried_in_full(replace(search, judged_labels=()), column, sample, s):
        gain = gain_to_expect(state, tried, sample)
        if tried.blend > 0 and gain is not None and gain > least:
            best, least = (replace(state, expected_gain=gain), tried), gain
    if best is None:
        return search, decision
    judged, found = replace(best[0], judged_labels=search.judged_labels), best[1]
    if judged.right_labels is not None:
        found = decide_on(judged, sample, s)
    return (judged, found) if found.blend > 0 else (search, decision)


def is_open(search: CueState, decision: Decision) -> bool:
    """Return whether the gate is open and held-out rows do not contradict it."""
    if search.evidence is None or decision.blend <= 0 or search.n_learnt == 2:
        return decision.blend >= NEARLY_FULL
    return max(decision.blend, search.evidence.gate()) >= NEARLY_FULL


def tried_in_full(
    search: CueState, column: Sides | None, sample: Sample, s: CueSettings
) -> list[tuple[CueState, Decision]]:
    """Return the states that follow one way, and the decisions on them.

    None are returned where nothing was searched for, and where mistakes look like wrong labels: no table of
    ``expected_gain`` has these without a shortcut. Of more than two classes the decision is on the part of
    the column's balance that is best for the worst group. Parameters are those of ``follow_in_full``.
    """
    evidence = search.evidence
    if evidence is None or evidence.looks_like_wrong_labels():
        return []
    honest = evidence.slice_support <= 0.0 and evidence.agreement < LEAST_AGREEMENT
    ways: list[Sides | None] = [None] if search.n_learnt == 2 and not honest else []
    if column is not None:
        ways.append(column)
    states = [replace(search, class_column=sides, blend=1.0) for sides in ways]
    return [(state, decide_on(state, sample, s)) for state in states]


def gain_to_expect(state: CueState, tried: Decision, sample: Sample) -> float | None:
    """Return the expected gain of a way by what was tried; None where that says nothing.

    Rows of classes that have too few of them are left out.
    """
    if state.evidence is None or tried.trials is None:
        return None
    rows = learnt_classes(sample.counts)[sample.y]
    broken = breaks(state, sample.X, sample.y, sample.ids)[rows]
    trials = replace(tried.trials.only_rows(rows), right_label=None)
    label = np.unique(sample.y[rows], return_inverse=True)[1]
    return expected_gain(state.evidence, trials, label, broken, of_column=state.class_column is not None)
