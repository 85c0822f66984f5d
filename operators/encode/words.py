"""Conditions in words for cuts of features, and the cut that belongs to a condition in words.

A cut divides the rows by ``feature > cut``. The feature may be scaled, a part of a date or a class share;
people read ``age > 35``, ``hired in Nov-Feb`` or ``tags contains red``. Every condition holds for exactly the
rows above the cut, including rows without a value where their feature is above it.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
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
    snapped,
    time_text,
)

Encoding: TypeAlias = (
    NumberEncoding | CategoryEncoding | TagsEncoding | DatetimeEncoding | VectorEncoding | TextEncoding
)
CLOCK_ERROR = 1e-6
"""Seconds by which float64 rounds a point in time."""
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

    def holds(self, cut: float) -> bool:
        """Return whether a cut, in float32, divides the rows as this gap does."""
        return self.low <= float(np.float32(cut)) < self.high


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
        """Return a number of few digits in the column's unit whose cut divides the rows as the gap does.

        Where numbers of few digits divide them otherwise, it has all of its digits.
        """
        found = self._thresholds(gap)
        readable = next(found)
        return next((number for number in (readable, *found) if gap.holds(self.cut(number))), readable)

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        return _or_missing(f"{self.source} > {_number_text(self.threshold(gap))}", self.fill, gap)

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

    def _thresholds(self, gap: Gap) -> Iterator[float]:
        """Yield thresholds, the most readable one first."""
        low, high = (self._exact(end) for end in (gap.low, gap.high))
        yield 0.0 - readable_between(-high, -low) if high > low else low
        whole = float(self.scale.backward(gap.middle))
        yield float(f"{whole:.15g}")
        yield whole

    def _exact(self, value: float) -> float:
        """Return the number of few digits that float32 may have rounded to this feature."""
        found, error = float(self.scale.backward(value)), _half_ulp(value)
        ends = self.scale.backward([value - error, value + error])
        return snapped(found, float(np.abs(ends - found).max()))


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
        try:
            moment = np.datetime64(found["cut"].replace(" ", "T"), "s")
        except ValueError:  # a day or an hour that does not exist
            return None
        return self._cut(float(moment.astype(np.int64)))

    def _seconds(self, gap: Gap) -> float:
        """Return seconds since 1970 that divide the rows as the gap does: a full day, minute or second.

        A full unit at the upper end is preferred where both ends are full units within the error of float32.
        Otherwise it lies between the errors of both ends, so that the column's own times are divided alike.
        """
        ends = [(self.centre + end * SECONDS_PER_DAY, self._error(end)) for end in (gap.low, gap.high)]
        (low, low_error), (high, high_error) = ends
        for unit in (SECONDS_PER_DAY, 60.0, 1.0):
            if all(_is_full(seconds, unit, error) for seconds, error in ends):
                found = round(high / unit) * unit
            else:
                found = math.floor((high - high_error) / unit) * unit
                if found <= low + low_error:
                    continue
            if gap.holds(self._cut(found)):
                return found
        near = (math.floor(high), math.ceil(high))
        return next((second for second in near if gap.holds(self._cut(second))), high)

    def _cut(self, seconds: float) -> float:
        """Return the cut of the feature below a point in time."""
        return _just_below((seconds - self.centre) / SECONDS_PER_DAY)

    def _error(self, days: float) -> float:
        return _half_ulp(days) * SECONDS_PER_DAY + CLOCK_ERROR


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
    """The year of a date: ``hired in 2014 or later``. Missing dates have the year ``fill``."""

    source: str
    fill: float = math.nan

    def threshold(self, gap: Gap) -> float:
        """Return the last whole year that is below the condition's year."""
        return math.ceil(gap.high) - 1.0

    def condition(self, gap: Gap) -> str:
        """Return the condition that a row is above the cut."""
        found = f"{self.source} in {math.ceil(gap.high)} or later"
        return _or_missing(found, self.fill, gap)

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
        return f"{self.source} {self._prefix}{_number_text(self.threshold(gap))}"

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
            found.append(YearWords(source, encoding.centre_year if has_missing else math.nan))
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


def _half_ulp(feature: float) -> float:
    """Return the largest error of a feature that was rounded to float32."""
    return float(np.spacing(np.float32(abs(feature)))) / 2


def _is_full(seconds: float, unit: float, error: float) -> bool:
    """Return whether only one multiple of a unit, and one at all, is within the error of a time."""
    return abs(round(seconds / unit) * unit - seconds) <= error < unit / 2


def _number_text(number: float) -> str:
    """Return the shortest text that is read as the number again; 15 digits are enough for most."""
    text = f"{number:.15g}"
    return text if float(text) == number else repr(number)
