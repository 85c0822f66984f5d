"""States that balance columns which the search has found: several together, or one that tells one class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from operators.cues.carrying_column import Candidate, CarryingColumn, SearchedRows
from operators.cues.decision import RAISED_GATE
from operators.cues.evidence import Evidence
from operators.cues.further_columns import LEAST_TOGETHER, balanced, columns_together, joint_gate
from operators.cues.one_class import one_class_column
from operators.cues.ramps import ramp
from operators.cues.several_columns import are_wrong_labels, judge_several
from operators.cues.state import CueSettings, CueState

LABEL_ACCURACY = (0.15, 0.2)
"""Limits between which three and more columns come to be balanced, of the accuracy above chance of models
that see none of them. Each is judged by models that see the others, whatever the rest tells."""


def join_columns(
    state: CueState,
    first: CarryingColumn,
    likely: Sequence[Candidate],
    evidence: Evidence,
    rows: SearchedRows,
    s: CueSettings,
) -> CueState | None:
    """Return the state that balances several columns together; None where there are none to balance.

    Three and more are balanced only if models that see none of them tell the label. Where they are not, the
    state's ``blend`` is 0 and nothing is followed: one or two of them alone would leave the others.

    Parameters
    ----------
    state
        State of the search; its ``blend`` is what the evidence allows without them.
    first, likely, evidence, rows, s
        As for ``columns_together``.

    """
    columns = columns_together(first, likely, evidence, rows, s)
    if len(columns) < 2:
        return None
    gate = joint_gate(columns, evidence, state.blend > RAISED_GATE[0])
    sides = balanced(columns, rows.Z, rows.y, rows.p.shape[1])
    judged = judge_several(sides, rows.Z, rows.y, rows.ids, s)
    if len(columns) >= LEAST_TOGETHER:
        gate *= ramp(judged.label_accuracy, *LABEL_ACCURACY)
    elif gate <= 0:
        return None
    return replace(
        state, blend=gate, carrier=sides[0], further=sides[1:], spares_several=are_wrong_labels(judged)
    )


def follow_one_class(
    state: CueState, evidence: Evidence, rows: SearchedRows, s: CueSettings
) -> CueState | None:
    """Return the state that balances a column which tells one class; None where none is a shortcut."""
    found = one_class_column(state.slices, evidence, rows, s)
    if found is None:
        return None
    return replace(state, blend=found.gate * found.column.part(), carrier=found.column.sides)
