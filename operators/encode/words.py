"""Conditions in words for cuts of features, and the cut that belongs to a condition in words.

A cut divides the rows by ``feature > cut``. The feature may be scaled, a part of a date or a class share;
people read ``age > 35``, ``hired in Nov-Feb`` or ``tags contains red``. Every condition holds for exactly the
rows above the cut, including rows without a value where their feature is above it.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from operators.encode.calendar_words import PERIODS, WAVES, Wave, cuts, part_text, selected
from operators.encode.categories import CategoryEncoding
from operators.encode.datetimes import DatetimeEncoding
from operators.encode.numeric import NumberEncoding, Scale
from operators.encode.tags import TagsEncoding
from operators.encode.vectors import TextEncoding, VectorEncoding
from operators.encoded_features import Output
from operators.readable import (
    SECONDS_PER_DAY,
    readable_between,
    readable_time_between,
    snapped,
    time_text,
)

Encoding: TypeAlias = (
    NumberEncoding | CategoryEncoding | TagsEncoding | DatetimeEncoding | VectorEncoding | TextEncoding
)
FLOAT32_ERROR = 2.0**-22
"""Relative error of a number that went through float32 and a scaling."""
OR_MISSING = " or is missing"
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
COMPARISON = re.compile(rf"(?P<sign>>=|<=|>|<) *(?P<cut>{NUMBER})")
MOMENT = r"\d{4,}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?"
TIME_COMPARISON = re.compile(rf"(?P<sign>on or after|before|>=|<) *(?P<cut>{MOMENT})")


@dataclass(frozen=True)
class Gap:
    """Two neighbouring values of a feature: ``low`` is at most the cut, ``high`` is above it."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """A cut between both in float32: ``low`` is at most the cut and ``high`` is above it."""
        middle = float(np.float32(self.low + (self.high - self.low) / 2))
        return middle if self.low <= middle < self.high else self.low


class CutWords(ABC):
    """Conditions in words for the cuts of one feature.

    A threshold is a cut in the unit that people read. By default the feature has no other unit.
    """

    def threshold(self, gap: Gap) -> float:
        """Return the threshold between two values of the feature."""
        return gap.middle

    def cut(self, threshold: float) -> float:
        """Return the cut of the feature that belongs to a threshold."""
        return threshold

    @abstractmethod
    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut, with the name of the column."""

    @abstractmethod
    def parse(self, condition: str) -> float | None:
        """Return the cut for a condition without the column's name; None for any other text."""


@dataclass(frozen=True)
class NumberWords(CutWords):
    """A number: ``age > 35``. Where the column has missing values, they have the feature ``fill``."""

    source: str
    scale: Scale = field(default_factory=Scale)
    fill: float = math.nan

    def threshold(self, gap: Gap) -> float:
        """Return a number of few digits in the column's unit, at least ``gap.low`` and below ``gap.high``."""
        low, high = (self._exact(end) for end in (gap.low, gap.high))
        return 0.0 - readable_between(-high, -low) if high > low else low

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        return _or_missing(f"{self.source} > {self.threshold(gap):.15g}", self.fill, gap)

    def cut(self, threshold: float) -> float:
        """Return the cut of the feature that belongs to a threshold in the column's unit."""
        return self.scale.cut(threshold)

    def parse(self, condition: str) -> float | None:
        """Return the cut of the feature for a condition without the column's name."""
        found = COMPARISON.fullmatch(condition)
        if found is None:
            return None
        number = float(found["cut"])
        # `>=` and `<` divide the rows just below the number.
        return self.cut(number if found["sign"] in (">", "<=") else _just_below(number))

    def _exact(self, value: float) -> float:
        found = float(self.scale.backward(value))
        error = FLOAT32_ERROR * max(abs(found), abs(found - self.scale.centre))
        return snapped(found, error)


@dataclass(frozen=True)
class ElapsedWords(CutWords):
    """A point in time: ``hired on or after 2013-07-04``. The feature is in days since ``centre``.

    Attributes
    ----------
    zone : ``UTC`` where the column's times have a zone, else empty.
    missing : whether the column has missing values, whose feature is 0.
    """

    source: str
    centre: float
    zone: str = ""
    missing: bool = False

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        moment = f"{time_text(self._seconds(gap))} {self.zone}".rstrip()
        return _or_missing(f"{self.source} on or after {moment}", 0.0 if self.missing else math.nan, gap)

    def parse(self, condition: str) -> float | None:
        """Return the cut of the feature for a condition without the column's name."""
        found = TIME_COMPARISON.fullmatch(condition.removesuffix(" UTC"))
        if found is None:
            return None
        seconds = float(np.datetime64(found["cut"].replace(" ", "T"), "s").astype(np.int64))
        return _just_below((seconds - self.centre) / SECONDS_PER_DAY)

    def _seconds(self, gap: Gap) -> float:
        low, high = (self._exact(end) for end in (gap.low, gap.high))
        return readable_time_between(low, high) if high > low else high

    def _exact(self, days: float) -> float:
        """Return seconds since 1970: a full minute or second if there is one within the error of float32."""
        seconds = self.centre + days * SECONDS_PER_DAY
        error = FLOAT32_ERROR * max(abs(days) * SECONDS_PER_DAY, 1.0)
        for unit in (SECONDS_PER_DAY, 60.0, 1.0):
            near = round(seconds / unit) * unit
            if abs(near - seconds) <= error:
                return near
        return seconds


@dataclass(frozen=True)
class PartWords(CutWords):
    """Sine or cosine of a cyclic part of a date: ``hired in Nov-Feb``. A missing date has the feature 0."""

    source: str
    part: str
    wave: Wave
    missing: bool = False

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        found = f"{self.source} {part_text(self.part, selected(self.part, self.wave, gap.middle))}"
        return _or_missing(found, 0.0 if self.missing else math.nan, gap)

    def parse(self, condition: str) -> float | None:
        """Return the cut of the feature for a condition without the column's name."""
        for cut in cuts(self.part, self.wave):
            if part_text(self.part, selected(self.part, self.wave, cut)) == condition:
                return cut
        return None


@dataclass(frozen=True)
class YearWords(CutWords):
    """The year of a date: ``hired in 2014 or later``. A missing date has the feature 0."""

    source: str
    missing: bool = False

    def threshold(self, gap: Gap) -> float:
        """Return the last whole year that is below the condition's year."""
        return math.ceil(gap.high) - 1.0

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        found = f"{self.source} in {math.ceil(gap.high)} or later"
        return _or_missing(found, 0.0 if self.missing else math.nan, gap)

    def parse(self, condition: str) -> float | None:
        """Return the cut of the feature for a condition without the column's name."""
        found = re.fullmatch(r"in (\d+) or later", condition)
        return float(found[1]) - 0.5 if found else None


@dataclass(frozen=True)
class LevelWords(CutWords):
    """A feature that is 1 where a condition holds and else 0: ``education = HS-grad``.

    Attributes
    ----------
    words : the condition.
    fill : feature of a missing value, where the column has missing values and ``words`` does not mention
        them.
    """

    source: str
    words: str
    fill: float = math.nan

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        return _or_missing(self.words, self.fill, gap)

    def parse(self, condition: str) -> float | None:
        """Return the cut of the feature for a condition without the column's name."""
        return 0.5 if f"{self.source} {condition}" == self.words else None


@dataclass(frozen=True)
class HashWords(CutWords):
    """One column of the signed hashes, -1, 0 or 1, of rare values."""

    source: str
    column: int

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        return f"{self.source} {self._hash_condition(gap.middle)}"

    def parse(self, condition: str) -> float | None:
        """Return the cut of the feature for a condition without the column's name."""
        return next((cut for cut in (0.5, -0.5) if self._hash_condition(cut) == condition), None)

    def _hash_condition(self, cut: float) -> str:
        bucket = f"rare values of hash bucket {self.column}"
        return f"among the {bucket}, sign +" if cut >= 0 else f"not among the {bucket}, sign -"


@dataclass(frozen=True)
class ShareWords(CutWords):
    """The smoothed share of a class among the rows with the same value: ``zip: share of 'yes' > 0.3``."""

    source: str
    class_name: str

    def threshold(self, gap: Gap) -> float:
        """Return a share of few digits between the two values."""
        return NumberWords(self.source).threshold(gap)

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        return f"{self.source} {self._prefix}{self.threshold(gap):.15g}"

    def parse(self, condition: str) -> float | None:
        """Return the cut of the feature for a condition without the column's name."""
        number = condition.removeprefix(self._prefix)
        return float(number) if number != condition and re.fullmatch(NUMBER, number) else None

    @property
    def _prefix(self) -> str:
        return f"among values with a share of class {self.class_name} above "


Words: TypeAlias = NumberWords | ElapsedWords | PartWords | YearWords | LevelWords | HashWords | ShareWords


def words_of(encoding: Encoding, *, has_missing: bool) -> list[Words | None]:
    """Return the words for cuts of every feature of a column; None for an entry of a vector.

    Parameters
    ----------
    encoding : the fitted column.
    has_missing : whether the column has missing values, which then have a feature too.
    """
    if isinstance(encoding, NumberEncoding):
        return _number_words(encoding, encoding.fill if has_missing else math.nan)
    if isinstance(encoding, DatetimeEncoding):
        return _date_words(encoding, has_missing)
    return [_level_words(encoding, output) for output in encoding.outputs]


def _number_words(encoding: NumberEncoding, fill: float) -> list[Words | None]:
    source = encoding.source
    value: Words = NumberWords(source, encoding.scale, fill)
    if encoding.kind == "boolean":
        value = LevelWords(source, f"{source} = true", fill)
    gap = LevelWords(source, f"{source} is missing")
    return [value, gap] if encoding.indicator else [value]


def _date_words(encoding: DatetimeEncoding, has_missing: bool) -> list[Words | None]:
    source = encoding.source
    found: list[Words | None] = []
    for part in encoding.parts:
        if part == "elapsed":
            found.append(ElapsedWords(source, encoding.centre, "UTC" if encoding.zone else "", has_missing))
        elif part in PERIODS:
            found += [PartWords(source, part, wave, has_missing) for wave in WAVES]
        else:
            found.append(YearWords(source, has_missing))
    return [*found, LevelWords(source, f"{source} is missing")] if encoding.indicator else found


def _level_words(encoding: Encoding, output: Output) -> Words | None:
    source, rest = output.source, output.label.removeprefix(output.source)
    if output.role == "entry":
        return None
    if output.role == "hash":
        return HashWords(source, int(rest.rpartition(" ")[2]))
    if output.role == "target":
        return ShareWords(source, rest.removeprefix(": share of "))
    if isinstance(encoding, TagsEncoding) and output.role != "missing":
        entry = "a rare entry" if output.role == "infrequent" else rest.removeprefix(": ")
        return LevelWords(source, f"{source} contains {entry}")
    return LevelWords(source, f"{source} among rare values" if output.role == "infrequent" else output.label)


def condition_of(text: str, source: str) -> str | None:
    """Return a text without the column's name and missing values; None if it names another column."""
    rest = text.removesuffix(OR_MISSING).removeprefix(source)
    return rest.lstrip() if rest != text.removesuffix(OR_MISSING) and rest.startswith(" ") else None


def _or_missing(text: str, fill: float, gap: Gap) -> str:
    """Append ``or is missing`` where missing values, whose feature is ``fill``, are above the cut.

    Without missing values ``fill`` is NaN.
    """
    return text + OR_MISSING if fill > gap.middle else text


def _just_below(number: float) -> float:
    return float(np.nextafter(np.float32(number), np.float32(-np.inf)))
