"""Gain of robust weights on held-out rows: the estimates that the report prints and the gate needs.

Two kinds of gain. A shortcut in a feature shows as a slice whose worst class and side gets better. One that
is spread over many features shows in no slice, but confident mistakes are put right: those of wrong labels
and of honest ambiguity are not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers

MIN_CELL_ROWS = 20
"""Rows from which a class on one side of a slice counts as a cell."""
MIN_MISTAKE_VARIANCE = 0.05
"""Least variance of one mistake's being put right: a handful that all stay wrong are not certain."""
NO_GAIN = -1.0
"""Gain where no slice has two cells to compare."""


def slice_gain(
    sides: npt.NDArray[np.bool_],
    y: Integers,
    before: Sequence[Floats],
    plain: Sequence[Floats],
    after: Sequence[Floats],
) -> float:
    """Return the largest gain of a slice: the rise of its worst cell's accuracy, less one standard error.

    The rise is that over the better of class balance and no weights.

    Parameters
    ----------
    sides
        Whether each row is above the cut of each slice, shape (slices, n). Cells are class x side with at
        least 20 rows.
    y
        Labels, shape (n,).
    before, plain, after
        Per split the held-out probabilities of class-balanced models, of models without weights and of models
        trained with the weights, shape (n, C).

    Returns
    -------
    A value in [-1, 1], the mean over the splits; -1 without slices.

    """
    found = [NO_GAIN]
    then = [p.argmax(axis=1) == y for p in after]
    for side in sides:
        cell = 2 * y + side
        parts = []
        for old in (before, plain):
            rises = [rise(cell, p.argmax(axis=1) == y, new) for p, new in zip(old, then, strict=True)]
            parts.append(float(np.mean([gain - error for gain, error in rises])))
        found.append(min(parts))
    return max(found)


def righted(y: Integers, before: Sequence[Floats], after: Sequence[Floats]) -> float:
    """Return which part of the mistakes the weights put right, less two standard errors, at most 1.

    A mistake counts as much as it is confident, ((C p_max - 1) / (C - 1))^2, so that rows near the border
    between the classes hardly count. Mean over the classes and splits; -1 without mistakes. Parameters are
    those of ``slice_gain``.
    """
    parts, variances = [], []
    for p, q in zip(before, after, strict=True):
        C = p.shape[1]
        wrong, right = p.argmax(axis=1) != y, q.argmax(axis=1) == y
        sure = ((C * p.max(axis=1) - 1) / max(C - 1, 1)) ** 2
        found = [_part(right[rows], sure[rows]) for c in np.unique(y) if (rows := wrong & (y == c)).any()]
        if not found:
            return NO_GAIN
        parts.append(np.mean([part for part, _ in found]))
        variances.append(np.mean([variance for _, variance in found]) / len(found))
    return float(np.mean(parts) - 2.0 * np.sqrt(np.mean(variances)))


def rise(
    cell: Integers,
    old: npt.NDArray[np.bool_],
    new: npt.NDArray[np.bool_],
    least: int = MIN_CELL_ROWS,
) -> tuple[float, float]:
    """Return the rise of the worst cell's accuracy and its standard error, of cells with ``least`` rows.

    With less than two such cells the rise is -1. The error is that of the paired change in the cell that was
    worst, and of the level of the cell that is, where that is another one.
    """
    count = np.bincount(cell)
    large = count >= least
    if large.sum() < 2:
        return NO_GAIN, 0.0
    size = np.maximum(count, 1)
    first, then = (np.where(large, np.bincount(cell, right) / size, np.inf) for right in (old, new))
    worst, worst_then = int(first.argmin()), int(then.argmin())
    rows = cell == worst
    variance = (new[rows].astype(float) - old[rows]).var() / size[worst]
    if worst_then != worst:
        variance += then[worst_then] * (1 - then[worst_then]) / size[worst_then]
    return float(then[worst_then] - first[worst]), float(np.sqrt(variance))


def exchange(y: Integers, before: Sequence[Floats], after: Sequence[Floats]) -> float:
    """Return how many rows the weights put right for each row that they make wrong, mean over the splits.

    Where a model relies on a shortcut, many of the rows that contradict it are put right. Where it does not,
    the weights lift wrong labels, which stay wrong, and hardly any row is put right. Parameters are those of
    ``slice_gain``.
    """
    found = [
        exchanged(p.argmax(axis=1) == y, q.argmax(axis=1) == y) for p, q in zip(before, after, strict=True)
    ]
    return float(np.mean(found))


def exchanged(was: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_]) -> float:
    """Return how many rows become right for each one that becomes wrong; both vectors have shape (n,)."""
    return float((now & ~was).sum()) / max(int((was & ~now).sum()), 1)


def _part(right: npt.NDArray[np.bool_], sure: Floats) -> tuple[float, float]:
    """Return the weighted share of mistakes that are right now, and its variance."""
    total = max(float(sure.sum()), 1e-9)
    part = float(sure @ right) / total
    spread = np.maximum((right - part) ** 2, MIN_MISTAKE_VARIANCE)
    return part, float(sure**2 @ spread) / total**2
