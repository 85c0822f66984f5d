"""Evidence about one row: the posterior with its threshold, and the score of every source of evidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from operators.base import FEATURES, LABEL
from operators.bounded_json import read_json
from operators.columns import vectors_to_numpy
from operators.explanations import ExplainedRow, Fact
from operators.outliers.assessment import row_evidence
from operators.outliers.evidence import MARGINS, NAMES
from operators.outliers.marking import UNREACHABLE
from operators.outliers.planted import KINDS
from operators.outliers.state import RECORD, load_state


def evidence_facts(folder: Path, row: ExplainedRow) -> list[Fact]:
    """Return what the learnt verdict says of a row that has features and a label.

    Parameters
    ----------
    folder : state folder of ``outliers`` by ``rule: evidence``.
    row : the row.
    """
    state = load_state(folder)
    if state is None:
        reason = read_json(folder / RECORD)["reason"]
        return [Fact("evidence", None, f"no row is assessed: {reason}")]
    y = row.table.column(LABEL).to_numpy().astype(np.int64)
    if y[0] not in state.classes:
        return [Fact("evidence", None, "too few rows of this class were sampled to assess it")]
    X = vectors_to_numpy(row.table.column(FEATURES))
    ids = np.array([row.row_id], np.int64)
    E, by_kind = row_evidence(state, X, y, ids)
    total = float(by_kind.sum())
    bound = (
        "no row of this dataset is marked: damage is too rare, or does not stand out"
        if state.threshold >= UNREACHABLE
        else f"marked from {state.threshold:.3g} on"
    )
    facts = [Fact("posterior", total, f"probability of being corrupt; {bound}")]
    if state.shortcut_free is not None:
        _, without = row_evidence(state.shortcut_free, X, y, ids)
        meaning = "the same without the shortcuts that `cues` balances; a marked row needs both"
        facts.append(Fact("posterior_without_shortcuts", float(without.sum()), meaning))
    flipped = float(np.exp(state.flips.log_ratios(E[None])[0, 0]))
    least = f"a row whose most probable kind is a flip is marked from {state.min_flip_ratio:g} on"
    if not state.checkable[np.searchsorted(state.classes, y[0])]:
        least = "no row of this class is marked as flipped, since its rows look like those of other classes"
    facts.append(Fact("flip_ratio", flipped, f"wrong labels in multiples of right ones; {least}"))
    facts += [
        Fact(f"posterior_{kind}", float(value)) for kind, value in zip(KINDS, by_kind, strict=True) if value
    ]
    for name, value in zip(NAMES, E, strict=True):
        facts.append(Fact(f"evidence_{name}", float(value), _meaning(name)))
    return facts


def _meaning(name: str) -> str:
    if name in MARGINS:
        return "held-out log odds against the label: positive speaks against it"
    return "log rarity of the class" if name == "rarity" else "log distance from other rows"
