"""The trade-off over the strength of weighting on the sample of ``cues``, with names of groups for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from operators.arrays import Integers
from operators.class_shares import counted_classes
from operators.cues.decision.groups import leaning_groups, shortcut_groups
from operators.cues.gather import SampledRows
from operators.cues.models.trade_off import rows_by_group
from operators.cues.output.curve_report import curve_record
from operators.cues.output.notes import listed
from operators.cues.row_weights import broken_column, right_label
from operators.cues.state import CueState
from operators.metrics.group_scores import not_compared


def measured_curve(
    state: CueState, sample: SampledRows, classes: Sequence[str], shortcuts: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the record of the curve that decided on the weights; None where rows were too few to measure.

    Groups are the rows of each class that follow the suspected or named shortcut and those that break it,
    where the weights trust it at all, or where it decided how far classes are balanced; else the classes. A
    class of which no row breaks the shortcut, or that has too few rows to be divided, is named so.
    ``classes_left_out`` has the rows of each class that is in no figure of the curve.

    Parameters
    ----------
    state
        Fitted weights.
    sample
        Rows of the sample on which they were fitted.
    classes
        Name of each class in the whole table.
    shortcuts
        Names from ``listing.shortcut_names``; needed where columns are told apart.

    """
    if not state.points:
        return None
    grouping, groups = curve_groups(state, sample, len(classes))
    rows = rows_by_group(groups, right_label(state, sample.X, sample.y))
    columns = [f"`{one}`" for one in shortcuts]
    if len(state.compared) <= 1 and state.leaning_column is None:
        columns = ["the shortcut"]
    broken = [*columns, "several of them"] if state.several_apart else columns
    counted = counted_classes(np.bincount(sample.y, minlength=len(classes)))
    in_part = (groups % (len(broken) + 1) > 0) | (groups >= len(classes) * (len(broken) + 1))
    divided = np.unique(sample.y[in_part])

    def name(group: int) -> str:
        if grouping == "classes":
            return f"class {classes[group]}"
        k, part = divmod(group, len(broken) + 1)
        if k == len(classes):
            return f"rows that break {broken[part]}"
        if not counted[k]:
            return f"class {classes[k]}, too small to divide"
        if part == 0 and k not in divided:
            return f"class {classes[k]}, no row of which breaks {listed(columns, 'or')}"
        if part == 0:
            return f"class {classes[k]}, follows {listed(columns)}"
        return f"class {classes[k]}, breaks {broken[part - 1]}"

    record = curve_record(
        state.points,
        rows,
        name,
        grouping=grouping,
        rows=len(sample.y),
        published=state.published_strength,
    )
    return record | {"classes_left_out": _classes_left_out(sample.y, groups, rows, classes)}


def _classes_left_out(
    y: Integers, groups: Integers, group_rows: Mapping[int, int], classes: Sequence[str]
) -> dict[str, int]:
    """Return the rows of each class of which no row is in a compared group."""
    left_out = np.isin(groups, not_compared(group_rows))
    names, rows = np.unique(y[left_out], return_counts=True)
    whole = rows == np.bincount(y, minlength=len(classes))[names]
    return {classes[c]: int(n) for c, n in zip(names[whole], rows[whole], strict=True)}


def curve_groups(state: CueState, sample: SampledRows, n_classes: int) -> tuple[str, Integers]:
    """Return what the compared groups are, "shortcut" or "classes", and the group of each row, shape (n,)."""
    y = sample.y
    if state.blend <= 0 and state.leaning_column is not None:
        return "shortcut", leaning_groups(state.leaning_column, state.scaler.apply(sample.X), y)
    if state.blend <= 0:
        return "classes", y
    which = broken_column(state, sample.X, y, sample.ids)
    return "shortcut", shortcut_groups(y, which, n_classes, state.broken_parts)
