"""Conditions on one source column, as people read them: ``age >= 35``, ``city = Oslo``, ``city is missing``.

A condition is evaluated on the values of its column exactly as its text states, so that the figures of a rule
hold for the text and not for the tree that the rule was found by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from connectors.foundation.messages import cut
from operators.arrays import Float64, Mask
from operators.encode.calendar_words import VALUES, part_text
from operators.readable import Scale, time_text

LONGEST_VALUE = 40
"""Characters of a category or term that a text shows."""


@dataclass(frozen=True)
class Range:
    """``low <= column < high``, where either end may be infinite.

    Attributes
    ----------
    missing : whether rows without a value fulfil the condition too. With both ends infinite, ``missing``
        False means that the column has a value.
    """

    column: str
    low: float = -math.inf
    high: float = math.inf
    missing: bool = False
    scale: Scale = "number"

    def holds(self, values: Float64) -> Mask:
        """Return which rows fulfil the condition, shape (n,); NaN is a missing value."""
        absent = np.isnan(values)
        inside = ~absent & (values >= self.low) & (values < self.high)
        return np.asarray(inside | (absent & self.missing))

    @property
    def text(self) -> str:
        """The condition in words."""
        low, high = (self._value(end) for end in (self.low, self.high))
        if math.isinf(self.low) and math.isinf(self.high):
            return f"{self.column} is not missing"
        if math.isinf(self.high):
            found = f"{self.column} >= {low}"
        elif math.isinf(self.low):
            found = f"{self.column} < {high}"
        else:
            found = f"{low} <= {self.column} < {high}"
        return f"({found} or missing)" if self.missing else found

    def _value(self, end: float) -> str:
        if math.isinf(end) or self.scale == "number":
            return f"{end:.15g}"
        return time_text(end, self.scale)


@dataclass(frozen=True)
class Missing:
    """The column has no value."""

    column: str

    def holds(self, values: Float64 | npt.NDArray[np.int64]) -> Mask:
        """Return which rows fulfil the condition, shape (n,): NaN among numbers, -1 among codes."""
        return np.asarray(np.isnan(values) if values.dtype.kind == "f" else values < 0)

    @property
    def text(self) -> str:
        """The condition in words."""
        return f"{self.column} is missing"


@dataclass(frozen=True)
class Level:
    """The column has a certain value, or another one (``negated``).

    ``code`` is the position of the value in the view. A missing value differs from every value, so rows
    without one fulfil a negated condition.
    """

    column: str
    code: int
    value: str
    negated: bool = False

    def holds(self, values: npt.NDArray[np.int64]) -> Mask:
        """Return which rows fulfil the condition, shape (n,), from codes."""
        return np.asarray((values == self.code) != self.negated)

    @property
    def text(self) -> str:
        """The condition in words."""
        return f"{self.column} {'!=' if self.negated else '='} {shown(self.value)}"


@dataclass(frozen=True)
class Term:
    """A text contains a word, or does not (``negated``)."""

    column: str
    position: int
    term: str
    negated: bool = False

    def holds(self, values: npt.NDArray[np.bool_]) -> Mask:
        """Return which rows fulfil the condition, shape (n,), from occurrences of terms (n, terms)."""
        return np.asarray(values[:, self.position] != self.negated)

    @property
    def text(self) -> str:
        """The condition in words."""
        return f'{self.column} {"does not mention" if self.negated else "mentions"} "{shown(self.term)}"'


@dataclass(frozen=True)
class DatePart:
    """A part of a date, such as the hour, has one of some values: ``hired in Nov-Feb``.

    Attributes
    ----------
    missing : whether rows without a value fulfil the condition too. Without ``values`` only they do; with all
        values and ``missing`` False, the column has a value.
    """

    column: str
    part: str
    values: frozenset[int]
    missing: bool = False

    def holds(self, values: Float64) -> Mask:
        """Return which rows fulfil the condition, shape (n,), from values of the part; NaN is missing."""
        return np.asarray(np.isin(values, list(self.values)) | (np.isnan(values) & self.missing))

    @property
    def text(self) -> str:
        """The condition in words."""
        if not self.values and self.missing:
            return f"{self.column} is missing"
        if len(self.values) == len(VALUES[self.part]) and not self.missing:
            return f"{self.column} is not missing"
        found = f"{self.column} {part_text(self.part, self.values)}"
        return f"({found} or missing)" if self.missing else found


Condition: TypeAlias = Range | Missing | Level | Term | DatePart


def view_key(of: Any) -> tuple[str, str]:
    """Return the column and the part of a date, which identify a view, of a view or a condition."""
    return of.column, getattr(of, "part", "")


def shown(value: str) -> str:
    """Return a value for display: shortened if it is long, quoted if it is empty or ends in white space."""
    text = cut(value, LONGEST_VALUE)
    return f'"{text}"' if text != text.strip() or not text else text


def merge(conditions: list[Condition]) -> list[Condition]:
    """Return conditions that hold together, with one condition for each column where that is possible.

    Ranges of one column are intersected, and what a stricter condition on the column implies is left out.
    The order is that of the first condition on each column.
    """
    merged: list[Condition] = []
    for key in dict.fromkeys(view_key(condition) for condition in conditions):
        own = [condition for condition in conditions if view_key(condition) == key]
        merged += _merge_column(own)
    return merged


def _merge_column(own: list[Condition]) -> list[Condition]:
    parts = [condition for condition in own if isinstance(condition, DatePart)]
    if parts:
        values = frozenset.intersection(*(one.values for one in parts))
        return [DatePart(parts[0].column, parts[0].part, values, all(one.missing for one in parts))]
    ranges = [condition for condition in own if isinstance(condition, Range)]
    certain = [c for c in own if isinstance(c, Missing) or (isinstance(c, Level) and not c.negated)]
    if certain and not any(isinstance(condition, Term) for condition in own):
        return [certain[0]]  # one value, or none, implies every other condition of the path
    if not ranges:
        return list(dict.fromkeys(own))
    first = ranges[0]
    low, high = max(one.low for one in ranges), min(one.high for one in ranges)
    whole = Range(first.column, low, high, all(one.missing for one in ranges), first.scale)
    return [whole, *(one for one in dict.fromkeys(own) if not isinstance(one, Range))]
