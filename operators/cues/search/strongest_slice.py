"""Judgement of the column that models lean on most, by the other columns.

A shortcut in one column can be told from an honest column by their independence, given the label
(``independence``), also where the other columns tell little of the label. An honest column that none of the
others is related to looks like a shortcut. Measured in tests/paper/REAL.md, tenth study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from operators.cues.search.independence import (
    independence,
    rarer_side,
    support_of,
    unevenness,
    with_mirrors,
)
from operators.cues.search.ramps import SLICE_VETO, ramp
from operators.cues.search.related_features import are_components, features_of
from operators.cues.search.searched_rows import SearchedRows
from operators.cues.search.slices import Slices, strongest
from operators.cues.settings import CueSettings

CANDIDATES = 24
"""Strongest slices among which the rival is looked for."""
MEASURED = 0.4
"""Strength of the strongest slice below which nothing is measured."""
SPREAD_VETO = (0.5, 0.6)
"""The limits for the gate of a shortcut that is spread over many features, of which none is strong."""


@dataclass(frozen=True)
class StrongestSlice:
    """The strongest slice, as models judge it that see nothing of its column.

    Attributes
    ----------
    strength
        Of the slice; 0 where it is below .4, or too few rows lie on its rarer side.
    minority, label_accuracy, ratio, dependence
        As in ``independence.Independence``.
    unevenness
        The larger one of evenness and its inverse: 1 for a shortcut.
    support
        1, or less where the slice is strong and the other columns speak against a shortcut. Principal
        components do not speak against it: a shortcut lies in several of them.
    spread_support
        The same for a shortcut that is spread over many features: less already where the slice is strong in
        part.
    rival
        Strength of the strongest slice of another column, divided by ``strength``.

    """

    strength: float = 0.0
    minority: float = 0.0
    label_accuracy: float = 0.0
    ratio: float = 0.0
    dependence: float = 0.0
    unevenness: float = 0.0
    support: float = 1.0
    spread_support: float = 1.0
    rival: float = 0.0

    def measurements(self) -> dict[str, Any]:
        """Return the figures under the names that ``evidence.Evidence`` has for them."""
        return {f"slice_{name}": value for name, value in vars(self).items()}


def judge_strongest_slice(slices: Slices, rows: SearchedRows, s: CueSettings) -> StrongestSlice:
    """Measure the strongest slice.

    Parameters
    ----------
    slices, rows
        Slices of the rows, and the rows.
    s
        Settings, with the source columns of the features.

    """
    Z, y, ids, _ = rows
    order, strength = strongest(slices, CANDIDATES), slices.slice_strength()
    if not len(order) or strength[order[0]] < MEASURED:
        return StrongestSlice()
    own = features_of(int(slices.feature[order[0]]), Z, s.columns)
    side = slices.sides(order[:1], Z)[0]
    broken = rarer_side(side, y)
    unseen = with_mirrors(own, broken, Z, y, s.columns)
    judged = independence(broken, Z, y, ids, unseen, seed=s.seed, l2=s.l2)
    if not judged.rows:
        return StrongestSlice()
    found = float(strength[order[0]])
    others = support_of(judged)
    if others < 1.0 and are_components(Z):
        others = 1.0
    return StrongestSlice(
        strength=found,
        minority=judged.minority,
        label_accuracy=judged.label_accuracy,
        ratio=judged.ratio,
        dependence=judged.dependence,
        unevenness=unevenness(judged),
        support=max(1.0 - ramp(found, *SLICE_VETO), others),
        spread_support=max(1.0 - ramp(found, *SPREAD_VETO), others),
        rival=float(strength[order[~np.isin(slices.feature[order], own)]].max(initial=0.0)) / found,
    )
