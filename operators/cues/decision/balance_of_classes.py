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
CLEAR_STRENGTH, NOTICED_STRENGTH = 0.4, 0.2
"""Strength of a slice from which its sides may ask for less balance, and from which they may object to it."""
MIN_SIDE_GAIN = 0.2
"""Least rise of the worst class and side for which classes are balanced less, or more than the worst class
asks for: the least of many noisy figures moves, and small groups that no slice shows gain by balance."""
MAX_SIDE_LOSS = 0.15
"""Loss of the worst class and side of one slice from which the gain of the worst class is not worth it."""


class LeaningSlices(NamedTuple):
    """The slices on which models lean.

    Attributes
    ----------
    sides
        Side of each row in each slice, shape (k, n).
    columns
        Each slice as a column of two sides, of which each stands for a class, length k.
    clear
        Slices on which models clearly lean, and against which the other columns do not speak, shape (k,).

    """

    sides: Mask
    columns: tuple[Sides, ...]
    clear: Mask


class ChosenStrength(NamedTuple):
    """How far classes are balanced, from 0 to 1, and the number of the slice that decided it, if one did."""

    strength: float
    decided_by: int | None = None


def leaning_slices(
    slices: Slices, evidence: Evidence | None, Z: Floats, y: Integers, C: int
) -> LeaningSlices | None:
    """Return the slices on which models lean; None where there are none.

    Where the other columns speak against a shortcut in the strongest one, no slice is clear.

    Parameters
    ----------
    slices, evidence
        Of the search; no evidence where shortcuts are named.
    Z, y
        Standardised rows (n, d), labels (n,).
    C
        Number of classes.

    """
    if evidence is None:
        return None
    listed, strength = strongest(slices, TOP), slices.slice_strength()
    found = listed[strength[listed] >= NOTICED_STRENGTH]
    if not len(found):
        return None
    sides, columns = slices.sides(found, Z), list[Sides]()
    for number, side in zip(found, sides, strict=True):
        stands = classes_of_levels(side.astype(np.intp), 2, y, C, least=0.0, errors=0.0)
        factor = independent_factors(stands[side.astype(np.intp)], y, C)
        columns.append(Sides((int(slices.feature[number]),), slices.cut[[number]], stands, factor))
    clear = (strength[found] >= CLEAR_STRENGTH) & (evidence.slice_support >= SUPPORTED)
    return LeaningSlices(sides, tuple(columns), clear)


def choose_class_strength(trials: Trials, y: Integers, slices: LeaningSlices | None = None) -> ChosenStrength:
    """Return how far classes should be balanced: in full, unless held-out rows are better with less.

    Accuracy of the worst label x attribute group is at most that of the worst class, which held-out rows show
    without group labels. Less balance is chosen where it raises the worst class by more than chance: by more
    than 1.645 standard errors of the paired change, and by .0075 at least. Where it does not, the worst class
    and side of the clear slices may ask for less, if it gains .2 and more; where it does, they forbid it if
    that one loses as much. Those with fewer than 50 rows are compared together. Nor are classes balanced less
    where the worst class and side of one slice, clear or not, loses .15 and more.

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
    by_class = _best(_gains(y[counted], right), MIN_CLASS_GAIN)
    if slices is None:
        return ChosenStrength(by_class)
    small = 2 * (int(y.max()) + 1)
    cells = [_cells(y[counted], side[counted], small) for side in slices.sides]
    chosen = _by_clear_slices(cells, np.flatnonzero(slices.clear), right, by_class)
    if chosen.decided_by is None and chosen.strength < CLASS_BALANCE:
        return _unless_a_side_loses(cells, right, chosen)
    return chosen


def _by_clear_slices(
    cells: list[Integers], clear: Integers, right: dict[float, Mask], by_class: float
) -> ChosenStrength:
    """Return the strength that the worst class and side of the clear slices ask for, else ``by_class``.

    Where the worst class asks for less balance by itself, the slices ask for no other strength: where all
    rows with a value are of one class, the others of that class gain without balance what others lose.
    """
    if not len(clear):
        return ChosenStrength(by_class)
    per_slice = 1 + max(int(one.max()) for one in cells)
    cell = np.concatenate([per_slice * n + cells[slice_] for n, slice_ in enumerate(clear)])
    if np.count_nonzero(np.bincount(cell)) < 2:
        return ChosenStrength(by_class)
    stacked = {strength: np.tile(rows, len(clear)) for strength, rows in right.items()}
    by_side = _gains(cell, stacked, least=1)
    best = _best(by_side, MIN_SIDE_GAIN) if by_class == CLASS_BALANCE else CLASS_BALANCE
    if best < CLASS_BALANCE:
        return ChosenStrength(best, int(clear[_worst_cell(cell, stacked[CLASS_BALANCE]) // per_slice]))
    if by_class < CLASS_BALANCE and _loses(by_side[by_class], MIN_SIDE_GAIN):
        worst = _worst_cell(cell, stacked[by_class]) // per_slice
        return ChosenStrength(CLASS_BALANCE, int(clear[worst]))
    return ChosenStrength(by_class)


def _unless_a_side_loses(
    cells: list[Integers], right: dict[float, Mask], chosen: ChosenStrength
) -> ChosenStrength:
    """Return full balance where the worst class and side of one slice would lose much, else ``chosen``.

    The worst of all slices together does not show it: it may be near 0 at every strength.
    """
    full, less = right[CLASS_BALANCE], right[chosen.strength]
    changes = {
        number: rise(cell, full, less, least=1)
        for number, cell in enumerate(cells)
        if np.count_nonzero(np.bincount(cell)) > 1
    }
    losses = {number: change[0] for number, change in changes.items() if _loses(change, MAX_SIDE_LOSS)}
    return ChosenStrength(CLASS_BALANCE, min(losses, key=losses.__getitem__)) if losses else chosen


def _loses(change: tuple[float, float], least: float) -> bool:
    """Return whether a change of the worst cell, with its error, is surely a loss of ``least`` and more."""
    gain, error = change
    return -gain > max(SURE * error, least)


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
