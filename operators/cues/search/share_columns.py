"""Decides by the other columns whether class shares carry a shortcut.

A class share is made from labels: ``encode`` gives the rows of a category the share of a class among its
other rows. Models lean on it and are wrong where a row contradicts its category, whether the category is a
shortcut or an entity that has much to do with the label, such as a country or a player. The other columns
tell the two apart (``independence``). Measured in tests/paper/REAL.md, ninth study.
"""

from __future__ import annotations

import numpy as np

from operators.arrays import Integers
from operators.cues.search.independence import Independence, independence, rarer_side
from operators.cues.search.ramps import ramp
from operators.cues.search.searched_rows import SearchedRows
from operators.cues.search.slices import Slices, strongest
from operators.cues.settings import CueSettings, SourceColumn

LEADING = 0.5
"""Part of the strongest slice's strength from which a slice of class shares counts: models follow it."""
RATIO = (0.1, 0.25)
"""Ratios of accuracy, less one standard error, between which support rises from 0 to 1."""
ADDITIVE = (1.3, 1.1)
"""Ratios between which it falls from 1 to 0 again: the label is the sum of the column and others."""
EVENNESS = (0.68, 0.78)
"""Evenness between which support rises from 0 to 1: .57 to .65 for institutions whose label is a threshold,
.79 to 1.1 for shortcuts."""


def share_support(slices: Slices, rows: SearchedRows, s: CueSettings) -> float:
    """Return the least support of the class shares that models lean on, in [0, 1]; 1 if they lean on none.

    Parameters
    ----------
    slices, rows
        Slices of the rows, and the rows.
    s
        Settings, with the columns that have class shares.

    """
    Z, y, ids, _ = rows
    found = [1.0]
    for column, slice_number in _leading(slices, s):
        side = slices.sides(slice_number, Z)[0]
        judged = independence(
            rarer_side(side, y), Z, y, ids, column.features, seed=s.seed, l2=s.l2, with_dependence=False
        )
        found.append(support(judged))
    return min(found)


def class_shares_lead(slices: Slices, s: CueSettings) -> bool:
    """Return whether models lean on class shares about as much as on the strongest slice."""
    return bool(_leading(slices, s))


def _leading(slices: Slices, s: CueSettings) -> list[tuple[SourceColumn, Integers]]:
    """Return the columns whose class shares models lean on, each with the number of its strongest slice."""
    order, strength, found = strongest(slices), slices.slice_strength(), []
    for column in s.columns:
        own = order[np.isin(slices.feature[order], column.shares)]
        if len(own) and strength[own[0]] >= LEADING * strength[order[0]]:
            found.append((column, own[:1]))
    return found


def support(judged: Independence) -> float:
    """Return how far the judgement of the other columns supports a shortcut in class shares, in [0, 1]."""
    ratio = judged.ratio - judged.ratio_error
    return ramp(ratio, *RATIO) * ramp(ratio, *ADDITIVE) * ramp(judged.evenness, *EVENNESS)
