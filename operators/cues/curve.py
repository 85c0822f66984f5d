"""The trade-off over the strength of weighting on the sample of ``cues``, with names of groups for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from operators.cues.curve_report import curve_record
from operators.cues.gather import SampledRows
from operators.cues.robust_weights import State, breaks, full_factor
from operators.cues.strength import WeightPath, compared_groups, trade_off


def measured_curve(
    state: State, sample: SampledRows, counts: Sequence[int], classes: Sequence[str], min_effective: float
) -> dict[str, Any] | None:
    """Return the record of the curve; None where the rows are too few to be halved.

    Groups are the rows of each class that follow the suspected or named shortcut and those that break it,
    where the weights trust it at all; else the classes.

    Parameters
    ----------
    state
        Fitted weights.
    sample
        Rows of the sample.
    counts, classes
        Rows and name of each class in the whole table.
    min_effective
        Least effective sample size of each class, as a share of its rows.

    """
    X, y, ids = sample.X, sample.y, sample.ids
    factor = full_factor(state, X, y, ids)
    path = WeightPath.fit(factor, y, np.array(counts), cap=state.limits.cap, min_effective=min_effective)
    split = state.blend > 0
    groups = 2 * y + breaks(state, X, y, ids) if split else y
    try:
        points = trade_off(state.scaler.apply(X), y, ids, path, factor, groups, seed=state.seed)
    except ValueError:
        return None

    def name(group: int) -> str:
        if not split:
            return f"class {classes[group]}"
        return f"class {classes[group // 2]}, {'breaks' if group % 2 else 'follows'} the shortcut"

    found = curve_record(
        points,
        compared_groups(groups),
        name,
        grouping="shortcut" if split else "classes",
        rows=len(y),
    )
    return {**found, "published_strength": published_strength(state)}


def published_strength(state: State) -> float | None:
    """Return the strength of the weights that ``cues`` gives; None where they do not lie on the path."""
    if state.slice_blend > 0 or (state.blend > 0 and state.class_strength < 1):
        return None
    return state.class_strength + state.blend
