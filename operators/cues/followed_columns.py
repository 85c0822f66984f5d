"""States that balance columns which the search has found: several together, or one that tells one class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from operators.cues.carrying_column import Candidate, CarryingColumn, SearchedRows
from operators.cues.decision import RAISED_GATE
from operators.cues.evidence import Evidence
from operators.cues.further_columns import balanced, further_columns, joint_gate
from operators.cues.one_class import one_class_column
from operators.cues.several_columns import have_wrong_labels
from operators.cues.state import CueSettings, CueState


def join_columns(
    state: CueState,
    first: CarryingColumn,
    likely: Sequence[Candidate],
    evidence: Evidence,
    rows: SearchedRows,
    s: CueSettings,
) -> CueState | None:
    """Return the state that balances several columns together; None where there are none to balance.

    Parameters
    ----------
    state
        State of the search; its ``blend`` is what the evidence allows without them.
    first, likely, evidence, rows, s
        As for ``further_columns``.

    """
    others = further_columns(first, likely, evidence, rows, s)
    columns = (first, *others)
    gate = joint_gate(columns, evidence, state.blend > RAISED_GATE[0]) if others else 0.0
    if gate <= 0:
        return None
    sides = balanced(columns, rows.Z, rows.y, rows.p.shape[1])
    spares = have_wrong_labels(sides, rows.Z, rows.y, rows.ids, s)
    return replace(state, blend=gate, carrier=sides[0], further=sides[1:], spares_several=spares)


def follow_one_class(
    state: CueState, evidence: Evidence, rows: SearchedRows, s: CueSettings
) -> CueState | None:
    """Return the state that balances a column which tells one class; None where none is a shortcut."""
    found = one_class_column(state.slices, evidence, rows, s)
    if found is None:
        return None
    return replace(state, blend=found.gate * found.column.part(), carrier=found.column.sides)
