"""Amounts: numbers in texts with a currency, a unit, a percent sign, brackets or thousands marks.

A column of the kind ``amount`` is read by one rule, which is decided from all of its values and kept in the
state of ``encode``: the decimal mark and the unit. A value is read if it is written with this mark and with
this unit or none; any other value counts as missing. So is each new row. ``1,234.50 kg`` is the number
1234.5, ``12%`` is 12, and ``(48)`` is -48, as accountants write it.

All functions take distinct values and do not loop over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float64

Decimal = Literal[".", ","]
MAX_UNREAD_SHARE = 0.05
"""Share of the values up to which those that the rule does not read are missing. More are an error."""
MAX_UNITS = 64
"""Distinct units of a column that are counted; a column with more of them holds no amounts."""
CURRENCIES = (
    "AED|ARS|AUD|BDT|BGN|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|ISK|JPY|KES|KRW|KZT|"
    "LKR|MAD|MXN|MYR|NGN|NOK|NZD|PEN|PHP|PKR|PLN|RMB|RON|RSD|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|UYU|VND|ZAR"
)
"""Codes of currencies that may stand in front of a number; behind it, any word is a unit."""
IN_FRONT = rf"(?:[A-Za-z]{{0,3}}\.?\p{{Sc}}|{CURRENCIES}|Rs\.?|Fr\.|kr\.?|zł|Kč)"
BEHIND = r"(?:[\p{L}%‰°\p{Sc}][^\s()]{0,15}(?: \p{L}{1,12})?)"
WRITTEN = (
    r"^(?P<o1>\()? ?(?P<s1>[+-])? ?(?P<front>" + IN_FRONT + r")? ?(?P<o2>\()? ?(?P<s2>[+-])? ?"
    r"(?P<body>(?:\d[\d.,' ]*|\.\d+))(?P<exponent>[eE][+-]?\d{1,3})? ?(?P<c1>\))? ?(?P<behind>"
    + BEHIND
    + r")? ?(?P<c2>\))?$"
)
WHOLE = r"(?:0|[1-9]\d*|[1-9]\d{0,2}(?:(?:MARK\d{3})+|(?:'\d{3})+|(?: \d{3})+)INDIAN)"
BODIES: Mapping[Decimal, str] = {
    ".": "^(?:"
    + WHOLE.replace("MARK", ",").replace("INDIAN", r"|[1-9]\d?(?:,\d{2})+,\d{3}")
    + r"(?:\.\d*)?|\.\d+)$",
    ",": "^(?:" + WHOLE.replace("MARK", r"\.").replace("INDIAN", "") + r"(?:,\d*)?)$",
}
"""Digits with thousands marks, by the decimal mark. As for plain numbers, leading zeros mean a code."""
PLURAL = r"(\p{L}\p{L})s$"
"""End of a unit of three letters or more in the plural: ``1 unit`` and ``3 units`` have the same one."""
OTHER_SIGNS = (("[−–]", "-"), ("[’ʼ´`]", "'"), (r"[\s\x{a0}\x{2009}\x{202f}]+", " "))
"""Characters that stand for a minus, an apostrophe and a blank."""

SAME, EITHER, NONE = "same", "either", "none"
"""Which decimal marks read a value: both with one result, both with two, or none. Else it is the mark."""


@dataclass(frozen=True)
class AmountRule:
    """How the amounts of a column are read.

    Attributes
    ----------
    decimal : the mark in front of decimals. The other one of ``.`` and ``,`` stands between thousands.
    unit : the unit or the currency of a value that has one; empty if none has.
    """

    decimal: Decimal
    unit: str

    def read(self, texts: pa.Array) -> Float64:
        """Return the numbers of tidied texts (n,); NaN for those that are not written so."""
        written = _Written.of(texts)
        known = np.isin(written.units, ["", self.unit])
        return np.where(known, written.numbers(self.decimal), np.nan)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as JSON-able values."""
        return {"decimal": self.decimal, "unit": self.unit}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` returned. Raises ValueError for another decimal mark."""
        if found["decimal"] not in (".", ","):
            raise ValueError(f"the decimal mark {found['decimal']!r}")
        return cls(found["decimal"], str(found["unit"]))


@dataclass(frozen=True)
class _Written:
    """Texts taken apart: sign (n,), NaN for texts that are no amounts; units (n,); digits and exponents."""

    signs: Float64
    units: npt.NDArray[np.str_]
    bodies: pa.Array
    exponents: pa.Array

    @classmethod
    def of(cls, texts: pa.Array) -> Self:
        for pattern, sign in OTHER_SIGNS:
            texts = pc.replace_substring_regex(texts, pattern, sign)
        parts = pc.extract_regex(texts.cast(pa.string()), WRITTEN)
        part = {name: pc.fill_null(pc.struct_field(parts, name), "") for name in parts.type.names}
        minus, plus = (_n_equal([part["s1"], part["s2"]], sign) for sign in "-+")
        opened, closed = _n_equal([part["o1"], part["o2"]], "("), _n_equal([part["c1"], part["c2"]], ")")
        fits = ~np.asarray(pc.is_null(parts).to_numpy(zero_copy_only=False), bool)
        fits &= (opened == closed) & (minus + plus + opened <= 1)
        units = pc.utf8_trim_whitespace(pc.binary_join_element_wise(part["front"], part["behind"], " "))
        units = pc.replace_substring_regex(units, PLURAL, r"\1")
        return cls(
            np.where(fits, np.where(minus + opened > 0, -1.0, 1.0), np.nan),
            np.array(units.to_pylist(), str),
            pc.utf8_trim_whitespace(part["body"]),
            part["exponent"],
        )

    def numbers(self, decimal: Decimal) -> Float64:
        """Return the numbers (n,) by a decimal mark; NaN for texts that are not written with it."""
        fits = pc.match_substring_regex(self.bodies, BODIES[decimal])
        digits = pc.replace_substring_regex(self.bodies, "[' ,]" if decimal == "." else "[' .]", "")
        digits = pc.replace_substring(digits, ",", ".")
        whole = pc.binary_join_element_wise(digits, self.exponents, "")
        found = pc.if_else(fits, whole, pa.scalar(None, whole.type)).cast(pa.float64())
        return self.signs * np.asarray(found.to_numpy(zero_copy_only=False), np.float64) + 0.0


@dataclass(frozen=True)
class Seen:
    """Values of one unit that the same decimal marks read: their rows, and the first row with its text."""

    rows: int
    first: int
    text: str

    def merge(self, other: Seen) -> Seen:
        """Return both; the rows of the other one come later."""
        return Seen(self.rows + other.rows, self.first, self.text)

    def later(self, offset: int) -> Seen:
        """Return the same values, ``offset`` rows later."""
        return Seen(self.rows, self.first + offset, self.text)


@dataclass(frozen=True)
class AmountForms:
    """How the values of a column are written; mergeable, and small whatever the number of values.

    Attributes
    ----------
    seen : values by their unit and by what reads them: ``.`` or ``,`` alone, ``SAME``, ``EITHER``, ``NONE``.
        Empty with more than ``MAX_UNITS`` units.
    rows : rows with a value.
    """

    seen: Mapping[tuple[str, str], Seen]
    rows: int

    @classmethod
    def of(cls, texts: pa.Array, rows: npt.NDArray[np.int64], first: npt.NDArray[np.int64]) -> Self:
        """Look at distinct tidied texts (n,), none missing, with their rows and the first row of each."""
        written = _Written.of(texts)
        point, comma = written.numbers("."), written.numbers(",")
        by_point, by_comma = ~np.isnan(point), ~np.isnan(comma)
        reads = np.where(by_point, np.where(by_comma, EITHER, "."), np.where(by_comma, ",", NONE))
        reads = np.where(point == comma, SAME, reads)
        units = np.where(reads == NONE, "", written.units)
        keys, groups = np.unique(np.stack([units, reads]), axis=1, return_inverse=True)
        seen = {}
        for number, key in enumerate(keys.T.tolist()):
            places = np.flatnonzero(groups.ravel() == number)
            at = places[first[places].argmin()]
            seen[key[0], key[1]] = Seen(int(rows[places].sum()), int(first[at]), texts[int(at)].as_py())
        return cls(_bounded(seen), int(rows.sum()))

    def merge(self, other: AmountForms, offset: int) -> AmountForms:
        """Return the forms of the rows of both, of which those of the other one come ``offset`` later."""
        rows = self.rows + other.rows
        if (self.rows and not self.seen) or (other.rows and not other.seen):
            return AmountForms({}, rows)
        seen = dict(self.seen)
        for key, one in other.seen.items():
            seen[key] = seen[key].merge(one) if key in seen else one.later(offset)
        return AmountForms(_bounded(seen), rows)

    def rule(self, decimal: Decimal | None = None) -> AmountRule:
        """Return the rule: the most frequent unit, and the decimal mark that reads most of its values.

        Where both marks read as many, it is the point.
        """
        unit = next(iter(self.units), "")
        by_point, by_comma = self._rows_of(unit, "."), self._rows_of(unit, ",")
        return AmountRule(decimal or ("," if by_comma > by_point else "."), unit)

    def _rows_of(self, unit: str, *reads: str) -> int:
        """Return the rows of a unit, or without one, that these marks read."""
        return sum(one.rows for (own, by), one in self.seen.items() if own in ("", unit) and by in reads)

    def n_read(self, rule: AmountRule) -> int:
        """Return the rows that a rule reads."""
        return self._rows_of(rule.unit, SAME, EITHER, rule.decimal)

    def n_bare(self, rule: AmountRule) -> int:
        """Return the rows without the unit that others have."""
        return self.n_read(AmountRule(rule.decimal, "")) if rule.unit else 0

    def first_unread(self, rule: AmountRule) -> Seen | None:
        """Return the first value that a rule does not read; None if it reads all."""
        known = (SAME, EITHER, rule.decimal)
        others = [
            one
            for (unit, reads), one in self.seen.items()
            if unit not in ("", rule.unit) or reads not in known
        ]
        return min(others, key=lambda one: one.first, default=None)

    def ambiguous(self, rule: AmountRule) -> str:
        """Return a value that both decimal marks read, where no value tells which; else an empty text."""
        if self._rows_of(rule.unit, ".", ","):
            return ""
        doubtful = [one for (unit, by), one in self.seen.items() if by == EITHER and unit in ("", rule.unit)]
        return min(doubtful, key=lambda one: one.first).text if doubtful else ""

    @property
    def units(self) -> dict[str, int]:
        """Rows of each unit, the most frequent first; values without a unit are left out."""
        found: dict[str, int] = {}
        for (unit, reads), one in self.seen.items():
            if unit and reads != NONE:
                found[unit] = found.get(unit, 0) + one.rows
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _n_equal(parts: Sequence[pa.Array], sign: str) -> npt.NDArray[np.int64]:
    """Return how many parts of each text (n,) are this sign."""
    found = (np.asarray(pc.equal(part, sign).to_numpy(zero_copy_only=False), np.int64) for part in parts)
    return np.asarray(sum(found), np.int64)


def _bounded(seen: Mapping[tuple[str, str], Seen]) -> dict[tuple[str, str], Seen]:
    """Return the values by form; none with too many units."""
    return {} if len({unit for unit, _ in seen}) > MAX_UNITS else dict(seen)
