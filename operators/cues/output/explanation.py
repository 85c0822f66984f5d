"""Facts of ``cues`` about one row."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from operators.base import FEATURES, LABEL
from operators.columns import vectors_to_numpy
from operators.counts import count
from operators.cues.output.listing import read_suspects
from operators.cues.output.shown_suspects import BALANCED, WEAK, answer_text
from operators.cues.row_weights import breaks, right_label
from operators.cues.serialise import load_state
from operators.explanations import ExplainedRow, Fact

MAX_SUSPECTS = 5


def row_facts(folder: Path, row: ExplainedRow) -> list[Fact]:
    """Return class balance, whether the row breaks the shortcut, and on which side of suspects it lies.

    Parameters
    ----------
    folder
        State folder of ``cues``.
    row
        The row; without features and label there are no facts.

    """
    if not row.has(FEATURES, LABEL):
        return []
    state, suspects = load_state(folder), read_suspects(folder)
    X, y = vectors_to_numpy(row.table.column(FEATURES)), row.table.column(LABEL).to_numpy().astype(np.int64)
    left_out = (suspects.get("trade_off") or {}).get("classes_left_out", {})
    name = suspects["classes"][y[0]]
    few = f"; no figure speaks for this class of {count(left_out[name], 'row')}" if name in left_out else ""
    facts = [
        Fact("class_balance", float(state.class_factor[y[0]]), f"the weight without any suspicion{few}"),
        Fact("evidence", state.blend, "share of the robust weight in use; the rest is class balance"),
    ]
    X = state.scaler.extend(X)
    if state.blend > 0:
        broken = bool(breaks(state, X, y, np.array([row.row_id], np.int64))[0])
        facts.append(Fact("breaks_the_shortcut", broken))
        right = right_label(state, X, y)
        if broken and right is not None:
            note = "probability that its label is right, by the other columns: its part of the robust weight"
            facts.append(Fact("right_label", float(right[0]), note))
    told = [
        one for one in suspects["suspects"] if one["position"] < X.shape[1]
    ]  # not words that no text shows
    for suspect in told[:MAX_SUSPECTS]:
        inside = bool(X[0, suspect["position"]] > suspect.get("feature_cut", suspect["cut"]))
        answer = answer_text(suspect, suspects)
        said = {WEAK: f"{WEAK}, no answer is needed", BALANCED: BALANCED}
        answer = said.get(answer, f"answer: {answer}")
        note = f"suspected shortcut, strength {suspect['strength']:.2f}, {answer}"
        facts.append(Fact(suspect["slice"], inside, note))
    return facts
