"""Thresholds that people read: with few digits, or at the start of a day, minute or second."""

from __future__ import annotations

import math
import sys
from typing import Literal

import numpy as np

Scale = Literal["number", "date", "time"]
SECONDS_PER_DAY = 86_400.0
MAX_SECONDS = 9.2e18
"""Seconds before and after 1970 that a date of 64 bits holds: 292 billion years."""


def readable_between(low: float, high: float, scale: Scale = "number") -> float:
    """Return a number t with low < t <= high and as few digits as possible; ``high`` where both are equal.

    Parameters
    ----------
    low, high : numbers, or seconds since 1970 where ``scale`` is another.
    scale : ``date``: the start of a day if there is one between; ``time``: of a minute.
    """
    if scale != "number":
        unit = SECONDS_PER_DAY if scale == "date" else 60.0
        floor = math.floor(high / unit) * unit
        return floor if floor > low else high
    if not high > low:
        return high
    size = max(abs(low), abs(high))
    exponent = math.floor(math.log10(size)) if size > 0 else 0
    for digits in range(max(exponent + 1 - sys.float_info.max_10_exp, 0), 17):  # a larger step overflows
        places = digits - 1 - exponent
        step = 10.0**-places
        if step == 0:
            continue
        for part in (5.0, 1.0):  # 0, 50, 100 before 10, 20, 30
            found = round(math.floor(high / (step * part)) * step * part, max(places + 1, 0))
            if low < found <= high:
                return float(found)
    return high


def snapped(value: float, error: float) -> float:
    """Return the number with the fewest digits, at most six, that is within ``error`` of ``value``."""
    for digits in range(1, 7):
        found = float(f"{value:.{digits}g}")
        if abs(found - value) <= error:
            return found
    return value


def time_text(seconds: float, scale: Scale | None = None) -> str:
    """Return seconds since 1970 as text.

    Parameters
    ----------
    seconds : bounded to the dates that 64 bits hold.
    scale : ``date``: the day; ``time``: to the minute. Default: as much as the value has.
    """
    if scale is None:
        unit = "D" if seconds % SECONDS_PER_DAY == 0 else "m" if seconds % 60 == 0 else "s"
    else:
        unit = "D" if scale == "date" else "m"
    # The standard library knows the years 1 to 9999 only; integers of 64 bits reach further.
    second = np.datetime64(math.floor(min(max(seconds, -MAX_SECONDS), MAX_SECONDS)), "s")
    return str(np.datetime_as_string(second, unit=unit)).replace("T", " ")  # type: ignore[call-overload]
