"""Views of source columns: the matrix that a shallow tree is fitted on, and the conditions of its splits.

Numbers and dates are cut at readable thresholds before the tree is fitted, so that a split of the tree is a
condition with a readable number and nothing is rounded afterwards. :mod:`operators.descriptions.table_views`
makes the views of a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.descriptions.conditions import Condition, DatePart, Level, Missing, Range, Term
from operators.encode.calendar_words import VALUES
from operators.readable import Scale


@dataclass(frozen=True)
class NumberView:
    """A numeric or date column: values (n,) float64 with NaN where missing, and increasing cuts."""

    column: str
    values: Float64
    cuts: Float64
    scale: Scale = "number"

    @property
    def width(self) -> int:
        """Number of columns for the tree."""
        return 1

    def matrix(self) -> npt.NDArray[np.float32]:
        """Return (n, 1): the number of cuts that are at most the value, NaN where it is missing."""
        codes = np.searchsorted(self.cuts, self.values, side="right").astype(np.float32)
        codes[np.isnan(self.values)] = np.nan
        return codes[:, None]

    def condition(self, position: int, threshold: float, *, left: bool, missing: bool) -> Condition:
        """Return the condition of one side of a split of the tree."""
        if math.isinf(threshold) or threshold >= len(self.cuts):
            return Range(self.column, scale=self.scale) if left == (threshold > 0) else Missing(self.column)
        cut = float(self.cuts[max(math.floor(threshold), 0)])
        ends = {"high": cut} if left else {"low": cut}
        return Range(self.column, **ends, missing=missing, scale=self.scale)

    def holds(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """Return which rows fulfil a condition on this column, shape (n,)."""
        if not isinstance(condition, Range | Missing):
            raise TypeError(f"{condition.text}: not a condition on a number")
        return condition.holds(self.values)


@dataclass(frozen=True)
class LevelView:
    """A column with few values: codes (n,) int64, -1 where missing, and the frequent values by code."""

    column: str
    codes: npt.NDArray[np.int64]
    levels: tuple[str, ...]
    has_missing: bool

    @property
    def width(self) -> int:
        """Number of columns for the tree: one for each frequent value, and one for missing ones."""
        return len(self.levels) + self.has_missing

    def matrix(self) -> npt.NDArray[np.float32]:
        """Return (n, width) of 0 and 1."""
        places = np.arange(len(self.levels))
        found = (self.codes[:, None] == places).astype(np.float32)
        return np.column_stack([found, self.codes < 0]).astype(np.float32) if self.has_missing else found

    def condition(self, position: int, threshold: float, *, left: bool, missing: bool) -> Condition:
        """Return the condition of one side of a split of the tree."""
        if position == len(self.levels):
            return Level(self.column, -1, "missing", negated=True) if left else Missing(self.column)
        if left and self._two_valued:
            return Level(self.column, 1 - position, self.levels[1 - position])
        return Level(self.column, position, self.levels[position], negated=left)

    @property
    def _two_valued(self) -> bool:
        """Return whether every row has one of two values, so that a row without one value has the other."""
        return len(self.levels) == 2 and bool(np.isin(self.codes, (0, 1)).all())

    def holds(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """Return which rows fulfil a condition on this column, shape (n,)."""
        if not isinstance(condition, Level | Missing):
            raise TypeError(f"{condition.text}: not a condition on a category")
        return condition.holds(self.codes)


@dataclass(frozen=True)
class TextView:
    """A column of texts: which frequent terms each contains, (n, terms) bool."""

    column: str
    occurs: npt.NDArray[np.bool_]
    terms: tuple[str, ...]

    @property
    def width(self) -> int:
        """Number of columns for the tree."""
        return len(self.terms)

    def matrix(self) -> npt.NDArray[np.float32]:
        """Return (n, terms) of 0 and 1."""
        return self.occurs.astype(np.float32)

    def condition(self, position: int, threshold: float, *, left: bool, missing: bool) -> Condition:
        """Return the condition of one side of a split of the tree."""
        return Term(self.column, position, self.terms[position], negated=left)

    def holds(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """Return which rows fulfil a condition on this column, shape (n,)."""
        if not isinstance(condition, Term):
            raise TypeError(f"{condition.text}: not a condition on a text")
        return condition.holds(self.occurs)


@dataclass(frozen=True)
class PartView:
    """A cyclic part of a column of dates: its values (n,) float64, NaN where the date is missing."""

    column: str
    part: str
    values: Float64

    @property
    def width(self) -> int:
        """Number of columns for the tree: the order from the first value, and from the middle one.

        With both, one split can separate values around the turn of the year, week or day from the others.
        """
        return 2

    def matrix(self) -> npt.NDArray[np.float32]:
        """Return (n, 2): the place of the value in both orders, NaN where it is missing."""
        n, first = len(VALUES[self.part]), VALUES[self.part][0]
        places = [(self.values - first + shift) % n for shift in (0, n // 2)]
        return np.column_stack(places).astype(np.float32)

    def condition(self, position: int, threshold: float, *, left: bool, missing: bool) -> Condition:
        """Return the condition of one side of a split of the tree."""
        values = list(VALUES[self.part])
        n, shift = len(values), (len(values) // 2 if position else 0)
        inside = [values[k] for k in range(n) if ((k + shift) % n <= threshold) == left]
        return DatePart(self.column, self.part, frozenset(inside), missing or not inside)

    def holds(self, condition: Condition) -> npt.NDArray[np.bool_]:
        """Return which rows fulfil a condition on this part, shape (n,)."""
        if not isinstance(condition, DatePart):
            raise TypeError(f"{condition.text}: not a condition on a part of a date")
        return condition.holds(self.values)


View: TypeAlias = NumberView | LevelView | TextView | PartView


def stacked(views: Sequence[View]) -> tuple[npt.NDArray[np.float32], list[tuple[int, int]]]:
    """Return the columns of all views side by side, and the view and position of each column."""
    owners = [(index, place) for index, view in enumerate(views) for place in range(view.width)]
    matrix: npt.NDArray[Any] = np.concatenate([view.matrix() for view in views], axis=1)
    return np.asarray(matrix, np.float32), owners
