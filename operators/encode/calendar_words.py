"""Parts of dates in words: which hours, months, weekdays or days a cut of a sine or cosine divides.

``encode`` makes two features of a cyclic part, its sine and its cosine. A cut of either selects whole values
of the part, which lie side by side on the circle: ``hour (cos) > -0.5`` is ``between 17:00 and 08:00``. The
sets are found by evaluating the features at every value of the part, so that the words select exactly the
rows that the cut selects.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Literal

import numpy as np

from operators.arrays import Float64

Wave = Literal["sin", "cos"]
WAVES: tuple[Wave, Wave] = ("sin", "cos")
PERIODS = MappingProxyType({"month": 12, "day": 30, "weekday": 7, "hour": 24})
"""Length of each cyclic part in its own unit."""
VALUES = MappingProxyType(
    {"month": range(1, 13), "day": range(1, 32), "weekday": range(1, 8), "hour": range(24)}
)
"""Values of each cyclic part. Monday is weekday 1."""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
LONG_RUN = 3
"""Months, days or weekdays in a row from which on they are written as ``Mon-Wed``."""


def waves(values: Float64, part: str) -> dict[Wave, Float64]:
    """Return sine and cosine of the values (n,) of a cyclic part."""
    angle = values / PERIODS[part] * 2 * np.pi
    return {"sin": np.sin(angle), "cos": np.cos(angle)}


def selected(part: str, wave: Wave, cut: float) -> frozenset[int]:
    """Return the values of a cyclic part whose feature, in float32, exceeds the cut."""
    values = np.array(VALUES[part])
    above = waves(values.astype(np.float64), part)[wave].astype(np.float32) > np.float32(cut)
    return frozenset(values[above].tolist())


def cuts(part: str, wave: Wave) -> list[float]:
    """Return one cut for every set of values that a cut of the feature can select, ascending."""
    values = np.array(VALUES[part], np.float64)
    levels = np.unique(waves(values, part)[wave].astype(np.float32)).astype(np.float64)
    wide = levels[1:] - levels[:-1] > 1e-6  # equal ones apart by rounding only
    return [float(cut) for cut in ((levels[1:] + levels[:-1]) / 2)[wide]]


def part_text(part: str, values: Collection[int]) -> str:
    """Return the condition that a part has one of the values, to be read behind the name of the column.

    Examples
    --------
    >>> part_text("hour", {20, 21, 22, 23, 0, 1, 2, 3})
    'between 20:00 and 04:00'
    >>> part_text("month", {11, 12, 1, 2})
    'in Nov-Feb'
    >>> part_text("weekday", {6, 7})
    'on Sat, Sun'
    >>> part_text("day", {30, 31, 1, 5})
    'on day 5, 30-1 of the month'
    """
    if not values:
        return f"in no {part}"
    if len(set(values)) == len(VALUES[part]):
        return f"in any {part}"
    found = _runs(part, frozenset(values))
    if part == "hour":
        return " or ".join(f"between {run[0]:02}:00 and {(run[-1] + 1) % 24:02}:00" for run in found)
    listed = ", ".join(_run_text(part, run) for run in found)
    if part == "day":
        return f"on day {listed} of the month"
    return f"{'in' if part == 'month' else 'on'} {listed}"


def _runs(part: str, values: frozenset[int]) -> list[list[int]]:
    """Return the values that lie side by side, with the last value followed by the first one."""
    order = list(VALUES[part])
    # Starting behind a value that is not among them, no run is cut in two.
    gap = next(place for place, value in enumerate(order) if value not in values)
    run: list[int] = []
    runs: list[list[int]] = []
    for value in [*order[gap:], *order[:gap]]:
        if value in values:
            run.append(value)
        elif run:
            runs.append(run)
            run = []
    return sorted([*runs, *([run] if run else [])])


def _run_text(part: str, run: list[int]) -> str:
    names = [_name(part, value) for value in run]
    return ", ".join(names) if len(run) < LONG_RUN else f"{names[0]}-{names[-1]}"


def _name(part: str, value: int) -> str:
    if part == "month":
        return MONTHS[value - 1]
    return WEEKDAYS[value - 1] if part == "weekday" else str(value)
