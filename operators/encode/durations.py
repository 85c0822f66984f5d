"""Durations: texts such as ``3h 22m``, ``45 min``, ``1 day 2 hours`` and ``01:22:05``, read as seconds.

A column of the kind ``duration`` is read so, and becomes a number. ``init`` writes the kind where
:func:`are_durations` recognises it. ``2:05`` is none: it may be minutes and seconds, hours and minutes, or a
time of the day.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float64
from operators.encode.mixed_numbers import MIN_NUMBERS
from operators.encode.sketches import ValueCounts

DURATION = "duration"
"""Key of ``ColumnSummary.parsed``, and value of ``parse``, of a column of durations."""
UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
"""Seconds of each unit, by its name in ``PATTERN``."""
NUMBER_OF = r"(?:(?P<{}>\d{{1,9}}(?:\.\d{{1,9}})?) ?(?:{})(?:[ ,]+|$))?"
PATTERN = (
    "(?i)^"
    + NUMBER_OF.format("d", "d|days?")
    + NUMBER_OF.format("h", "h|hrs?|hours?")
    + NUMBER_OF.format("m", "m|mins?|minutes?")
    + NUMBER_OF.format("s", "s|secs?|seconds?")
    + "$"
)
JOINED = r"(?i)(\d ?(?:d|h|m|min))(\d)"
"""Place of a missing blank, as in ``3h22m``."""
CLOCK = r"^(?P<h>\d{1,4}):(?P<m>[0-5]\d):(?P<s>[0-5]\d(?:\.\d{1,9})?)$"
SEVERAL = r"\d.*[A-Za-z:].*\d"
"""Texts of several parts: those of one, such as ``45 m``, may be amounts in another unit."""


def durations(texts: pa.Array) -> Float64:
    """Return the seconds of tidied texts (n,); NaN for texts that are no durations."""
    texts = texts.cast(pa.string())
    for _ in range(len(UNITS) - 1):
        texts = pc.replace_substring_regex(texts, JOINED, r"\1 \2")
    found = np.full(len(texts), np.nan)
    for pattern in (PATTERN, CLOCK):
        parts = pc.extract_regex(texts, pattern)
        fits = parts.is_valid().to_numpy(zero_copy_only=False) & (pc.binary_length(texts).to_numpy(False) > 0)
        seconds = sum(_seconds(parts, name) for name in parts.type.names)
        found = np.where(fits, seconds, found)
    return found


def _seconds(parts: pa.StructArray, name: str) -> Float64:
    """Return the seconds of one unit (n,); 0 for texts without it."""
    field = pc.struct_field(parts, name)
    empty = pc.or_kleene(pc.is_null(field), pc.equal(pc.binary_length(field), 0))
    filled = pc.if_else(pc.fill_null(empty, True), pa.scalar("0", field.type), field)
    return np.asarray(filled.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64) * UNITS[name]


def are_durations(values: ValueCounts, *, least: int = MIN_NUMBERS) -> bool:
    """Return whether all texts are durations, some of several parts.

    ``least``: distinct durations that are needed; a column of fewer may be one of grades.
    """
    read = durations(values.values)
    several = pc.match_substring_regex(values.values, SEVERAL).to_numpy(zero_copy_only=False)
    return bool(np.isfinite(read).all() and several.any()) and len(np.unique(read)) >= least
