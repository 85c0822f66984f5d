"""Whole numbers of text files that float64 cannot hold, which would become other numbers without a word.

Arrow infers float64 for a column of CSV or JSON lines with a whole number beyond int64, or with one fraction
among whole numbers. An id such as 9223372036854775809 then becomes 9223372036854775808, as its neighbours do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

EXACT = 2.0**53
"""Size from which on float64 lacks some whole numbers."""
MAX_DIGITS = 300
"""Digits of a whole number that float64 has a value near to."""
MAX_SHOWN = 40
"""Digits that an error shows."""
LONG = r"^\s*[+-]?[0-9]{16,}\s*$"
"""Regular expression of a whole number that float64 may lack."""
LONG_IN_JSON = re.compile(rb"[0-9]{16}")


def holds_large(column: pa.ChunkedArray | pa.Array) -> bool:
    """Return whether a column holds floats from which whole numbers may have been lost, at any depth."""
    kind = column.type
    if pa.types.is_floating(kind):
        return bool((pc.max(pc.abs(column)).as_py() or 0.0) >= EXACT)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if pa.types.is_list(kind):
        return any(holds_large(chunk.flatten()) for chunk in chunks)
    if pa.types.is_struct(kind):
        return any(holds_large(part) for chunk in chunks for part in chunk.flatten())
    return False


def is_inexact(text: str) -> bool:
    """Return whether a whole number, in decimal digits, is neither a float64 nor one in its shortest form.

    Programs that have floats alone write 1152921504606846976 as 1152921504606847000, which loses nothing.
    """
    if len(text) > MAX_DIGITS:
        return True
    number = float(text)
    return int(number) != int(text) and Decimal(repr(number)) != Decimal(text)


def first_inexact(texts: pa.ChunkedArray) -> str | None:
    """Return the first text that is a whole number which float64 cannot hold; None if there is none."""
    found = pc.filter(texts, pc.fill_null(pc.match_substring_regex(texts, LONG), False))
    return next((text for text in pc.utf8_trim_whitespace(found).to_pylist() if is_inexact(text)), None)


class WholeNumber(str):
    """A whole number of JSON as it is written."""

    __slots__ = ()


def inexact_in(value: Any, kind: pa.DataType) -> str | None:
    """Return the first whole number in a value of JSON that ``kind`` would change; None if there is none.

    The value comes from ``json.loads`` with ``parse_int=WholeNumber``.
    """
    if isinstance(value, WholeNumber):
        return str(value) if pa.types.is_floating(kind) and is_inexact(value) else None
    found: Iterable[str | None] = ()
    if isinstance(value, list) and pa.types.is_list(kind):
        found = (inexact_in(one, kind.value_type) for one in value)
    elif isinstance(value, Mapping) and pa.types.is_struct(kind):
        found = (inexact_in(value[one.name], one.type) for one in kind if one.name in value)
    return next((one for one in found if one is not None), None)


def inexact_in_lines(data: bytes, table: pa.Table) -> tuple[str, str] | None:
    """Return the first column, and its value, that JSON lines lost when they became a table; else None."""
    kinds = {name: column.type for name, column in zip(table.schema.names, table.columns, strict=True)}
    large = {name: kind for name, kind in kinds.items() if holds_large(table[name])}
    if not large:
        return None
    for line in data.splitlines():
        if not LONG_IN_JSON.search(line):
            continue
        found = json.loads(line, parse_int=WholeNumber)
        for name, kind in large.items():
            text = inexact_in(found.get(name), kind)
            if text is not None:
                return name, text
    return None


def check_exact_lines(data: bytes, table: pa.Table) -> None:
    """Raise ArrowInvalid where a whole number of JSON lines became another number in the table."""
    found = inexact_in_lines(data, table)
    if found is not None:
        raise pa.ArrowInvalid(f"column {found[0]!r}: {loss_of(found[1])}. Write it as text, in quotes")


def number_of(digits: str) -> int | float:
    """Return a whole number of JSON; Python refuses to make an int of thousands of digits."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def loss_of(text: str) -> str:
    """Return the sentence that says what would become of a whole number in a column of float64."""
    shown, after = text, f"{float(text):.0f}"
    if len(text) > MAX_SHOWN:
        shown, after = f"{text[:MAX_SHOWN]}... ({len(text):,} digits)", "another number"
    return (
        f"{shown} would become {after} in float64, the type of the column, because a whole number is beyond "
        f"int64 or another value has a fraction"
    )
