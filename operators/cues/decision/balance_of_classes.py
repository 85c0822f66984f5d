"""How far classes are balanced where no shortcut is followed, decided on rows that the models have not seen.

Class balance helps most worst groups, and no group labels say where it does not. Two things can be seen. The
worst class may be better with less of it. Or models lean so much on a column that class balance turns the
rows of a large class that contradict it: where the label is rare, a column that tells 95 of 100 labels makes
few such rows wrong without weights, and nearly all of them with balanced classes. That is worth something
only if the rows of the rare class that contradict the column do not pay for it. Measured in
tests/paper/REAL.md, twentieth study.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from operators.arrays import Floats, Integers, Mask
from operators.class_shares import counted_classes
from operators.cues.models.trade_off import Trials
from operators.cues.models.weight_path import CLASS_BALANCE
from operators.cues.search.evidence import Evidence
from operators.cues.search.gain import MIN_CELL_ROWS, rise
from operators.cues.search.slices import TOP, Slices, strongest
from operators.cues.sides.class_sides import classes_of_levels, independent_factors
from operators.cues.sides.sides import Sides
from operators.metrics.group_scores import MIN_ROWS

CLASS_STRENGTHS = (0.0, 0.5)
"""Strengths of class balance that are tried beside 1."""
SURE = 1.645
"""Standard errors by which another strength has to be better: a one-sided error rate of 5 %."""
MIN_CLASS_GAIN = 0.0075
"""Least rise of the worst class for which classes are balanced less: nearly equal classes hardly differ."""
SUPPORTED = 0.5
"""Least support of the strongest column by the others: they tell the side of an honest one."""
LEANT_ON = 0.4
"""Strength of a slice from which its sides are compared."""
MIN_SIDE_GAIN = 0.2
"""Least rise of the worst class and side for which classes are balanced less, or more than the worst class
asks for: the least of many noisy figures moves, and small groups that no slice shows gain by balance."""


class LeaningSlices(NamedTuple):
    """The slices on which models clearly lean.

    Attributes
    ----------
    sides
        Side of each row in each slice, shape (k, n).
    columns
        Each slice as a column of two sides, of which each stands for a class, length k.

    """

    sides: Mask
    columns: tuple[Sides, ...]


class ChosenStrength(NamedTuple):
    """How far classes are balanced, from 0 to 1, and the number of the slice that decided it, if one did."""

    strength: float
    decided_by: int | None = None


def leaning_slices(
    slices: Slices, evidence: Evidence | None, Z: Floats, y: Integers, C: int
) -> LeaningSlices | None:
    """Return the slices on which models clearly lean; None where there are none.

    Nor are there any where the other columns speak against a shortcut in the strongest one.

    Parameters
    ----------
    slices, evidence
        Of the search; no evidence where shortcuts are named.
    Z, y
        Standardised rows (n, d), labels (n,).
    C
        Number of classes.

    """
    if evidence is None or evidence.slice_support < SUPPORTED:
        return None
    listed = strongest(slices, TOP)
    found = listed[slices.slice_strength()[listed] >= LEANT_ON]
    if not len(found):
        return None
    sides, columns = slices.sides(found, Z), list[Sides]()
    for number, side in zip(found, sides, strict=True):
        stands = classes_of_levels(side.astype(np.intp), 2, y, C, least=0.0, errors=0.0)
        factor = independent_factors(stands[side.astype(np.intp)], y, C)
        columns.append(Sides((int(slices.feature[number]),), slices.cut[[number]], stands, factor))
    return LeaningSlices(sides, tuple(columns))


def choose_class_strength(trials: Trials, y: Integers, slices: LeaningSlices | None = None) -> ChosenStrength:
    """Return how far classes should be balanced: in full, unless held-out rows are better with less.

    Accuracy of the worst label x attribute group is at most that of the worst class, which held-out rows show
    without group labels. Less balance is chosen where it raises the worst class by more than chance: by more
    than 1.645 standard errors of the paired change, and by .0075 at least. The worst class and side of any of
    the slices comes first, if it changes by .2 and more; those with fewer than 50 rows are compared together.

    Parameters
    ----------
    trials
        Held-out rows that are right, with the strengths 0, .5 and 1.
    y
        Labels, shape (n,).
    slices
        Slices of the same rows on which models lean.

    """
    counted = counted_classes(np.bincount(y))[y]
    right = {strength: trials.at(strength)[counted] for strength in (*CLASS_STRENGTHS, CLASS_BALANCE)}
    found = _best(_gains(y[counted], right), MIN_CLASS_GAIN)
    if slices is None:
        return ChosenStrength(found)
    per_slice = 2 * (int(y.max()) + 1) + 1
    cells = [_cells(y[counted], side[counted], per_slice - 1) for side in slices.sides]
    cell = np.concatenate([per_slice * n + one for n, one in enumerate(cells)])
    if np.count_nonzero(np.bincount(cell)) < 2:
        return ChosenStrength(found)
    stacked = {strength: np.tile(rows, len(cells)) for strength, rows in right.items()}
    by_side = _gains(cell, stacked, least=1)
    best = _best(by_side, MIN_SIDE_GAIN)
    if best < CLASS_BALANCE:
        return ChosenStrength(best, _worst_cell(cell, stacked[CLASS_BALANCE]) // per_slice)
    if found < CLASS_BALANCE:
        gain, error = by_side[found]
        if -gain > max(SURE * error, MIN_SIDE_GAIN):
            return ChosenStrength(CLASS_BALANCE, _worst_cell(cell, stacked[found]) // per_slice)
    return ChosenStrength(found)


def _cells(y: Integers, side: Mask, small: int) -> Integers:
    """Return the cell of each row by class and side, (n,); those of too few rows are one, ``small``.

    Its rows are mostly those of a rare class that contradict the column, which pay for less class balance.
    """
    cell = 2 * y + side
    rows = np.bincount(cell)
    return np.asarray(np.where(rows[cell] < MIN_ROWS, small, cell), np.intp)


def _worst_cell(cell: Integers, right: Mask) -> int:
    """Return the number of the cell with the lowest accuracy."""
    rows = np.bincount(cell)
    accuracy = np.bincount(cell, right) / np.maximum(rows, 1)
    return int(np.where(rows > 0, accuracy, np.inf).argmin())


def _gains(
    cell: Integers, right: dict[float, Mask], least: int = MIN_CELL_ROWS
) -> dict[float, tuple[float, float]]:
    """Return for each strength by how much the worst cell is better than with full balance, and the error."""
    full = right[CLASS_BALANCE]
    return {strength: rise(cell, full, right[strength], least) for strength in CLASS_STRENGTHS}


def _best(gains: dict[float, tuple[float, float]], least: float) -> float:
    """Return the strength with the largest gain that is sure and exceeds ``least``, else full balance."""
    best, found = least, CLASS_BALANCE
    for strength, (gain, error) in gains.items():
        if gain > max(SURE * error, best):
            best, found = gain, strength
    return found
