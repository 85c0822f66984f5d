"""Balance of several columns at once, by raking (iterative proportional fitting); rows that break them.

In a mean of factors, each of which balances one shortcut alone, every further name would take away from the
balance of the first. Raking finds one factor per row, the product of a table for each shortcut, under which
every shortcut is independent of the label: in each class its sides have the shares that they have on average
over the classes. All shortcuts can have these shares together, while equal totals may be out of reach: of
three words that exclude each other, each can be in a third of the rows, not in half.

Source: Deming and Stephan, "On a least squares adjustment of a sampled frequency table when the expected
marginal totals are known" (1940).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Floats, Integers
from operators.cues.limits import MAX_FACTOR
from operators.cues.sides.class_sides import independent_shares
from operators.cues.sides.sides import Sides

SWEEPS = 50
TOLERANCE = 1e-3
"""Largest change of a table, relative, at which raking ends."""
LARGEST = 1e3
"""Bound of the entries of a table and of their inverses: shares may agree only in the limit."""


def balance_jointly(sides: Sequence[Sides], Z: Floats, y: Integers, n_classes: int) -> tuple[Sides, ...]:
    """Return the shortcuts with factors whose product balances all of them; a single one as it is.

    Parameters
    ----------
    sides
        Named shortcuts, each balanced by itself.
    Z, y
        Standardised rows (n, d) and labels (n,) of the sample.
    n_classes
        C.

    """
    if len(sides) < 2:
        return tuple(sides)
    place = [one.of_rows(Z) for one in sides]
    cells = [y * one.factor.shape[1] + at for one, at in zip(sides, place, strict=True)]
    targets = [_shares(cell, None, n_classes, one) for cell, one in zip(cells, sides, strict=True)]
    targets = [independent_shares(share) for share in targets]
    tables = _rake(cells, targets, sides, n_classes)
    present = np.bincount(y, minlength=n_classes)[:, None] > 0
    return tuple(
        replace(one, factor=table, rare=one.is_rare() & present)
        for one, table in zip(sides, tables, strict=True)
    )


def joint_factor(sides: Sequence[Sides], Z: Floats, y: Integers) -> Float64:
    """Return the factor of each row within its class, shape (n,), at most 20: the product over the shortcuts.

    It is 1 where there is no shortcut.
    """
    factor = np.ones(len(y))
    for one in sides:
        factor *= one.apply(Z, y)
    return np.minimum(factor, MAX_FACTOR)


def _rake(
    cells: Sequence[Integers], targets: Sequence[Float64], sides: Sequence[Sides], n_classes: int
) -> list[Float64]:
    """Return a table (C, S) for each shortcut; ``cells`` holds class and side of each row as one number."""
    tables: list[Float64] = [np.ones(one.factor.shape) for one in sides]
    w = np.ones(len(cells[0]))
    for _ in range(SWEEPS):
        moved = 0.0
        for k, (cell, target, one) in enumerate(zip(cells, targets, sides, strict=True)):
            share = _shares(cell, w, n_classes, one)
            step = np.where(share > 0, target / np.maximum(share, 1e-12), 1.0)
            bounded = np.clip(tables[k] * step, 1 / LARGEST, LARGEST)
            step = bounded / tables[k]
            tables[k], w = bounded, w * step.ravel()[cell]
            moved = max(moved, float(np.abs(step - 1.0).max()))
        if moved < TOLERANCE:
            break
    return tables


def _shares(cell: Integers, w: Floats | None, n_classes: int, one: Sides) -> Float64:
    """Return the share of each side in the weight of its class, shape (C, S); 0 in classes without rows."""
    S = one.factor.shape[1]
    total = np.bincount(cell, w, minlength=n_classes * S).reshape(n_classes, S).astype(np.float64)
    return np.asarray(total / np.maximum(total.sum(axis=1, keepdims=True), 1e-12))


def first_broken(columns: Sequence[Sides], Z: Floats, y: Integers) -> Integers:
    """Return the number of the first column that each row breaks, from 1, else 0, shape (n,)."""
    which = np.zeros(len(y), np.intp)
    for number, one in reversed(list(enumerate(columns, 1))):
        which[one.breaks(Z, y)] = number
    return which


def breaks_several(columns: Sequence[Sides], Z: Floats, y: Integers) -> npt.NDArray[np.bool_]:
    """Return whether each row breaks more than one of the columns, shape (n,)."""
    broken = np.zeros(len(y), np.intp)
    for one in columns:
        broken += one.breaks(Z, y)
    return np.asarray(broken > 1)


def several_factor(columns: Sequence[Sides], capped: bool, Z: Floats, y: Integers) -> Float64:
    """Return the factor of each row within its class, shape (n,), as ``joint_factor`` does.

    With ``capped`` it is at most 1 for a row that breaks more than one of the columns.
    """
    factor = joint_factor(columns, Z, y)
    if capped:
        factor = np.where(breaks_several(columns, Z, y), np.minimum(factor, 1.0), factor)
    return np.asarray(factor)
