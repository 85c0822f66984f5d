"""Guesses the decimal point and the separator of thousands of a CSV file from cells of its columns.

``42,134`` is 42.134 if the comma is the decimal point, and 42134 if it separates thousands. Other cells of
the file decide: ``3,7`` and ``0,125`` can only have a decimal comma, ``1,234,567`` only thousands, and a file
with ``3.7`` has decimal points. If no cell decides, the comma separates thousands, and the reason says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.foundation.messages import first_of

NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
COMMA = re.compile(r"[+-]?\d*,\d+|[+-]?\d{1,3}(\.\d{3})+,\d+")
POINT = re.compile(r"[+-]?(\d*|[1-9]\d{0,2}(,\d{3})+)\.\d+([eE][+-]?\d+)?")
GROUPED = {
    (mark, point): re.compile(rf"[+-]?[1-9]\d{{0,2}}([{mark}]\d{{3}})+({re.escape(point)}\d*)?")
    for mark in ",.' "
    for point in ",."
    if mark != point
}
"""Numbers with thousands by their mark and the decimal point. No group begins with a zero."""
MOSTLY = 0.8
"""Share of the cells of a column that must match."""
SHOWN = 3
"""Columns that a reason names."""

Columns = Mapping[str, Sequence[str]]


def guess_marks(columns: Columns, separator: str) -> tuple[dict[str, Any], list[str]]:
    """Return the options ``decimal`` and ``thousands`` that differ from their defaults, with the reasons.

    Parameters
    ----------
    columns : some cells of each column by its name; empty cells are ignored.
    separator : character between two cells of the file.
    """
    cells = {name: [cell for value in column if (cell := value.strip())] for name, column in columns.items()}
    commas = [name for name, column in cells.items() if _mostly(column, COMMA)]
    decimal = [name for name in commas if not _all_grouped(cells[name])]
    points = [name for name, column in cells.items() if _has_points(column)]
    if decimal and points and (separator == "," or len(points) >= len(decimal)):
        return _with_thousands(
            cells, ".", [f"numbers have decimal points in {_some(points)}, so that {_some(decimal)} is text"]
        )
    if decimal:
        notes = [f"decimal commas in {_some(decimal)}"]
        both = [name for name in commas if name not in decimal]
        notes += [f"so the commas of {_some(both)} are read as decimal commas too"] if both else []
        notes += [f"{_some(points)} has points instead and is text"] if points else []
        return _with_thousands(cells, ",", notes)
    if not points and any(cell.count(".") > 1 for column in cells.values() for cell in _dotted(column)):
        return _with_thousands(cells, ",", [])
    return _with_thousands(cells, ".", [], proven=bool(points))


def mark_fault(column: Sequence[str], decimal: str, thousands: str | None) -> str:
    """Return how the numbers of a column contradict the options of a recipe, or an empty text.

    Parameters
    ----------
    column : cells; empty ones are ignored.
    decimal, thousands : the options in ``source.options``.
    """
    cells = [cell for value in column if (cell := value.strip())]
    other = "," if decimal == "." else "."
    grouped = GROUPED[decimal, other]
    for cell in cells:
        if grouped.fullmatch(cell) and (cell.count(decimal) > 1 or other in cell):
            if not _mostly(cells, re.compile(rf"{grouped.pattern}|[+-]?\d+({re.escape(other)}\d*)?")):
                return ""
            return (
                f"source.options.decimal is {decimal!r}, but there it stands between thousands, as in "
                f"{cell!r}, so that the column is text. Set source.options.decimal: {other!r} and "
                f"source.options.thousands: {decimal!r}."
            )
    points = COMMA if other == "," else POINT
    clear = [cell for cell in cells if points.fullmatch(cell) and not GROUPED[other, decimal].fullmatch(cell)]
    if thousands == other or not clear or not all(NUMBER.fullmatch(c) or points.fullmatch(c) for c in cells):
        return ""
    if any(decimal in cell for cell in cells):
        return ""  # both marks occur: which one is the decimal point cannot be told
    return (
        f"{len(clear):,} of the first {len(cells):,} values have {other!r} as their decimal point, as in "
        f"{clear[0]!r}, so that the column is text. Set source.options.decimal: {other!r}, or name the "
        "column in source.text_columns if it is text."
    )


def _dotted(column: Sequence[str]) -> Sequence[str]:
    """Return the cells of a column that has points between thousands, as in ``1.234.567``; else none."""
    return column if _is_grouped(column, GROUPED[".", ","], re.compile(r"[+-]?\d+(,\d*)?")) else ()


def _with_thousands(
    cells: Columns, decimal: str, notes: list[str], *, proven: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """Return the options for a decimal point, with the mark of thousands if a column shows one."""
    options: dict[str, Any] = {"decimal": decimal} if decimal != "." else {}
    for (mark, point), pattern in GROUPED.items():
        if point != decimal:
            continue
        plain = re.compile(rf"[+-]?\d+({re.escape(decimal)}\d*)?")
        names = [name for name, column in cells.items() if _is_grouped(column, pattern, plain)]
        if not names:
            continue
        sure = proven or mark != "," or any(cell.count(mark) > 1 for name in names for cell in cells[name])
        example = next(cell for cell in cells[names[0]] if pattern.fullmatch(cell))
        notes = [*notes, f"{mark!r} stands between the thousands of {_some(names)}, as in {example!r}"]
        if not sure:
            notes += [
                "three digits follow every comma, yet it could be a decimal comma: then write decimal: ',' "
                "in place of thousands"
            ]
        return options | {"thousands": mark}, notes
    return options, notes


def _is_grouped(column: Sequence[str], pattern: re.Pattern[str], plain: re.Pattern[str]) -> bool:
    """Return whether a column has numbers with thousands, and hardly any that are not plain ones."""
    grouped = [pattern.fullmatch(cell) is not None for cell in column]
    fitting = sum(hit or plain.fullmatch(cell) is not None for hit, cell in zip(grouped, column, strict=True))
    others = [cell for cell in column if any(digit.isdigit() for digit in cell)]
    return any(grouped) and fitting >= max(MOSTLY * len(column), len(others))


def _all_grouped(column: Sequence[str]) -> bool:
    """Return whether all commas of a column can stand between thousands."""
    pattern = GROUPED[",", "."]
    return all(pattern.fullmatch(cell) for cell in column if "," in cell)


def _has_points(column: Sequence[str]) -> bool:
    """Return whether a column has numbers whose point cannot stand between thousands."""
    hits = [cell for cell in column if POINT.fullmatch(cell)]
    fits = sum(1 for cell in column if POINT.fullmatch(cell) or NUMBER.fullmatch(cell))
    odd = any(not GROUPED[".", ","].fullmatch(cell) for cell in hits)
    return odd and fits >= MOSTLY * len(column)


def _mostly(column: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Return whether most cells match, and those that do not are plain numbers."""
    hits = sum(pattern.fullmatch(cell) is not None for cell in column)
    return hits >= MOSTLY * len(column) > 0 and all(
        NUMBER.fullmatch(cell) or pattern.fullmatch(cell) for cell in column
    )


def _some(names: Sequence[str]) -> str:
    return first_of(names, SHOWN)
