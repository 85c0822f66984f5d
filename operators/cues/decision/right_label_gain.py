"""Balance of a column whose gain is hidden by wrong labels, which break it like rows that contradict it.

With wrong labels most of the rows that break a shortcut may be wrong themselves. Models with robust weights
then put few of these right, and the gate stays shut, as it does for an honest column. Where it is known how
probable a right label is (``search.fit_right_labels``), the rows of the sample count by that, and the column
is balanced if the worst group gains much by it while all rows together lose next to nothing: an honest column
that is balanced costs accuracy. Measured in tests/paper/REAL.md, twenty-fifth study.
"""

from __future__ import annotations

from dataclasses import replace

from operators.cues.decision.decision import Decision, cost, worst_rise
from operators.cues.decision.sample_decision import Sample, decide_on
from operators.cues.models.weight_path import FULL
from operators.cues.search.evidence import Evidence
from operators.cues.search.ramps import COLUMN_OF_TWO_RAMPS, SURE_COLUMN, Measurement
from operators.cues.settings import CueSettings
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState

LEAST_RISE = 0.15
"""Rise of the worst group's accuracy from which a column is balanced."""
MOST_COST = 0.03
"""Accuracy of all rows that this may cost. On public tables with wrong labels and an honest column most rises
of that size cost .05 and more."""
NEEDED: tuple[Measurement, ...] = (
    "column_strength",
    "column_minority",
    "column_label_accuracy",
    "column_unevenness",
)
"""Measurements whose ramps have to be open by half. Wrong labels lower ``column_ratio`` and raise
``column_dependence``, which ``search.fit_right_labels`` limits by itself."""


def follow_right_labels(
    search: CueState,
    column: Sides | None,
    decision: Decision,
    sample: Sample,
    s: CueSettings,
) -> tuple[CueState, Decision]:
    """Return the state that balances the column of two classes and its decision, else those given.

    Parameters
    ----------
    search, column
        From ``fit_searched``, with what is known of labels.
    decision
        What the evidence leads to. Nothing else is tried where something is followed.
    sample, s
        As for ``decide_on``.

    """
    if decision.blend > 0 or search.further or column is None or search.evidence is None:
        return search, decision
    state = replace(search, class_column=column, blend=1.0)
    if search.n_learnt > 2 or state.right_labels is None or not looks_like_shortcut(search.evidence):
        return search, decision
    tried = decide_on(state, sample, s)
    gained, lost = worst_rise(tried.points, FULL), cost(tried.points, FULL)
    if tried.blend < 1.0 or gained < LEAST_RISE or lost > MOST_COST:
        return search, decision
    return state, tried


def looks_like_shortcut(evidence: Evidence) -> bool:
    """Return whether the other columns judge the rows that break the column like rows of a shortcut."""
    ramps = evidence.ramps({name: COLUMN_OF_TWO_RAMPS[name] for name in NEEDED})
    return min(ramps.values()) >= SURE_COLUMN
