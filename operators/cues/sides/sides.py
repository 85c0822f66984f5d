"""Sides of a column: what its values stand for, with the weight factor of each side in each class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Floats, Integers, Mask

ROUNDING = 1e-9
"""Excess of a factor over 1 that is rounding."""


@dataclass(frozen=True)
class Sides:
    """Sides of one column that is balanced, with the weight factor of each.

    Attributes
    ----------
    columns
        Columns of the shortcut.
    cuts
        Increasing cuts on the standardised value of one column; none for a category.
    level_side
        Side of each level: of a category, where entry 0 is "no column active", shape (len(columns) + 1,), or
        of the intervals of one column, shape (len(cuts) + 1,). Side C stands for no class.
    factor
        Weight factor per class and side, shape (C, S).
    rare
        Whether a side is rare in a class, shape (C, S), where the factor does not say so: of several
        shortcuts that are balanced together it depends on the others.
    class_sets
        Sets of classes that the column tells from each other, where its values stand for sets: in
        ``level_side`` the first class of a set stands for it. Empty where values stand for classes.

    """

    columns: tuple[int, ...]
    cuts: Floats
    level_side: Integers
    factor: Floats
    rare: Mask | None = None
    class_sets: tuple[tuple[int, ...], ...] = ()

    def is_rare(self) -> Mask:
        """Return whether each side is rarer in a class than its balance has it, shape (C, S)."""
        return np.asarray(self.factor > 1.0 + ROUNDING) if self.rare is None else self.rare

    def breaks(self, Z: Floats, y: Integers) -> Mask:
        """Return whether each row is on a side that stands for a class and is rare in its own, shape (n,)."""
        side = self.of_rows(Z)
        return np.asarray((side < len(self.factor)) & self.is_rare()[y, side])

    def apply(self, Z: Floats, y: Integers) -> Float64:
        """Return the factor within the class of each row, shape (n,)."""
        return np.asarray(self.factor[y, self.of_rows(Z)])

    def has_sides_of(self, other: Sides) -> bool:
        """Return whether every row is on the same side by the other."""
        return (
            self.columns == other.columns
            and np.array_equal(self.cuts, other.cuts)
            and np.array_equal(self.level_side, other.level_side)
        )

    def of_rows(self, Z: Floats) -> Integers:
        """Return the side of each standardised row, shape (n,)."""
        return np.asarray(self.level_side[level_of(Z, self.columns, self.cuts)], np.intp)


def level_of(Z: Floats, columns: tuple[int, ...], cuts: Floats) -> Integers:
    """Return the level of each standardised row, shape (n,).

    Of one column it is the number of cuts below the value; of a category the active column, 1 .. L, or 0
    where none is active.
    """
    if len(columns) == 1:
        return np.asarray(np.searchsorted(cuts, Z[:, columns[0]], side="left"))
    block = Z[:, list(columns)]
    return np.asarray(np.where(block.max(axis=1) > 0, block.argmax(axis=1) + 1, 0))
