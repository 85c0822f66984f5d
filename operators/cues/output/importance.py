"""Importance of source columns for the label and for the worst group, before anything is trained.

Two class-balanced linear models are fitted, one to each half of a bounded part of the sample, and each is
scored on the half that it has not seen. Groups are those of the trade-off
(:mod:`operators.cues.output.curve`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from operators.bounded_json import read_json

if TYPE_CHECKING:  # readers of the importances need no scikit-learn
    from operators.arrays import Floats, Integers
    from operators.cues.gather import SampledRows
    from operators.cues.named.references import FeatureColumns
    from operators.cues.state import CueState

IMPORTANCE = "importance.json"
PURPOSE = "cues/importance"
MIN_ROWS = 100
LEADS_BY, LEADS_TIMES = 0.1, 3.0
"""Balanced accuracy that rests on the first column at least, and how often that of the second one."""


def measured_importance(
    state: CueState, sample: SampledRows, columns: FeatureColumns, classes: int, seed: int
) -> dict[str, Any] | None:
    """Return the importances of the source columns.

    Parameters
    ----------
    state
        Fitted weights.
    sample
        Rows on which they were fitted. At most 10,000 of them are used, drawn by a hash of their ids.
    columns
        The features with their source columns.
    classes
        C.
    seed
        Decides draws, halves and shuffles.

    Returns
    -------
    As ``PermutationImportance.to_dict``, with ``grouping`` as the trade-off has it. None where all features
    come from one column, the rows are too few to fit to a half and score the other, or there are more than
    100 classes: each would have few of the rows, and the time grows with their number.

    """
    from operators.cues.learnt_classes import MAX_CLASSES
    from operators.cues.models.draws import Split, halves
    from operators.cues.models.linear import Scaler, class_balance, fit_softmax, predict
    from operators.cues.output.curve import curve_groups
    from operators.metrics.importance import drawn_rows, max_scored_rows, permutation_importance

    blocks = {name: columns.meaning(name).positions for name in columns.used()}
    if len(blocks) < 2 or len(np.unique(sample.y)) > MAX_CLASSES:
        return None
    drawn = drawn_rows(sample.ids, max_scored_rows(len(blocks)), seed, PURPOSE)
    X, y, ids = sample.X[drawn], sample.y[drawn], sample.ids[drawn]
    half = halves(ids, seed, Split.IMPORTANCE)
    if len(y) < MIN_ROWS or min(len(np.unique(y[half == h])) for h in (0, 1)) < 2:
        return None
    grouping, groups = curve_groups(state, sample, classes)
    scaler = Scaler.from_rows(X)
    Z = scaler.apply(X)
    coefs = [
        fit_softmax(Z[half == h], y[half == h], class_balance(y[half == h], classes), classes) for h in (0, 1)
    ]

    def predict_held_out(rows: Floats) -> Integers:
        by_model = [predict(coef, rows).argmax(axis=1) for coef in coefs]
        return np.asarray(np.where(half == 0, by_model[1], by_model[0]))

    found = permutation_importance(
        predict_held_out, Z, y, blocks, groups=groups[drawn], random_state=seed % 2**32
    )
    return found.to_dict() | {"grouping": grouping}


def leading_column(record: dict[str, Any] | None) -> str | None:
    """Return the source column on which balanced accuracy rests by far most; None where there is none."""
    if record is None:
        return None
    lost = [one["balanced_accuracy"]["mean"] for one in record["columns"][:2]]
    by_far = lost[0] >= max([LEADS_BY, *(LEADS_TIMES * other for other in lost[1:])])
    return str(record["columns"][0]["column"]) if by_far else None


def write_importance(folder: Path, record: dict[str, Any] | None) -> None:
    """Write the importances into the state folder; no file where there are none."""
    if record is not None:
        (folder / IMPORTANCE).write_text(json.dumps(record, indent=1, ensure_ascii=False), "utf-8")


def read_importance(folder: Path) -> dict[str, Any] | None:
    """Return what :func:`write_importance` wrote; None where there is nothing."""
    file = folder / IMPORTANCE
    if not file.exists():
        return None
    found: dict[str, Any] = read_json(file)
    return found
