"""How a CSV file is written, as its first lines show: separators, decimal commas, thousands, no header."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from connectors.base import SourceSpec
from connectors.csv_source import TSV, Csv
from connectors.files import find_names
from connectors.locations import extension
from connectors.text_source import text_blocks

HEAD_BYTES = 2**18
"""Bytes at the start of the first file that are looked at."""
SEPARATORS = (",", ";", "\t", "|")
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
COMMA = re.compile(r"[+-]?\d*,\d+|[+-]?\d{1,3}(\.\d{3})+,\d+")
GROUPED = {mark: re.compile(rf"[+-]?\d{{1,3}}([{mark}]\d{{3}})+([.,]\d+)?") for mark in ",.' "}
MOSTLY = 0.8

Rows = list[list[str]]


def guess_options(spec: SourceSpec) -> dict[str, Any]:
    """Return the options of ``csv`` that differ from their defaults; empty for a file in the usual form.

    Raises
    ------
    ConnectorError
        The file cannot be read.

    """
    path = find_names(spec, Csv)[0]
    data = b"".join(text_blocks(spec, path, 0, HEAD_BYTES, HEAD_BYTES))
    text = data.decode(spec.encoding, "replace").removeprefix("\ufeff")
    lines = [*io.StringIO(text, newline="")]
    lines = lines[:-1] if len(data) == HEAD_BYTES else lines
    usual = "\t" if extension(path, TSV) else ","
    separator, rows = _cut(lines, usual)
    found: dict[str, Any] = {} if separator == usual else {"delimiter": separator}
    if len(rows) < 2:
        return found
    body = [*zip(*(row for row in rows[1:] if len(row) == len(rows[0])), strict=True)]
    if not _has_header(rows[0], body):
        found["header"] = False
    else:
        named = [name for name in map(str.strip, rows[0]) if name]
        found |= {"empty_names": "number"} if len(named) < len(rows[0]) else {}
        found |= {"duplicate_names": "number"} if len({*named}) < len(named) else {}
    return found | _marks(body)


def _cut(lines: Sequence[str], usual: str) -> tuple[str, Rows]:
    """Return the separator that cuts most lines into the same number of cells, more than one, and
    these cells.
    """
    best: tuple[float, int, str, Rows] = (0.0, 0, usual, [])
    for separator in dict.fromkeys([usual, *SEPARATORS]):
        try:
            rows = [row for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            continue
        if not rows:
            continue
        width, n = Counter(map(len, rows)).most_common(1)[0]
        share = round(n / len(rows), 2) if width > 1 else 0.0
        if (share, width) > best[:2]:
            best = (share, width, separator, rows)
    if best[1] == 0:
        return usual, [row for row in csv.reader(lines, delimiter=usual) if row]
    return best[2], best[3]


def _has_header(first: list[str], columns: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: it has no numbers, or none of its texts is a value below it."""
    cells = [cell.strip() for cell in first]
    numbers = [bool(NUMBER.fullmatch(cell)) for cell in cells]
    again = [
        cell in {value.strip() for value in column} for cell, column in zip(cells, columns, strict=False)
    ]
    if all(numbers):
        return cells == [str(place) for place in range(len(cells))]  # pandas numbers columns without names
    texts = [seen for seen, number in zip(again, numbers, strict=False) if not number]
    repeated = sum(texts) >= max(1, len(texts) / 2)
    return not repeated


def _marks(columns: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the decimal point and thousands, where most cells of a column show them."""
    found: dict[str, Any] = {}
    cells = [[cell.strip() for cell in column if cell.strip()] for column in columns]
    if any(_most(column, COMMA) for column in cells):
        found["decimal"] = ","
    for mark, pattern in GROUPED.items():
        shown = mark != found.get("decimal", ".")
        grouped = any(
            any(pattern.fullmatch(cell) for cell in column)
            and all(
                pattern.fullmatch(cell) or re.fullmatch(r"[+-]?\d{1,3}([.,]\d+)?", cell) for cell in column
            )
            for column in cells
        )
        if shown and grouped:
            return found | {"thousands": mark}
    return found


def _most(column: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Whether most cells match, and those that do not are plain numbers."""
    hits = sum(pattern.fullmatch(cell) is not None for cell in column)
    return hits >= MOSTLY * len(column) > 0 and all(
        NUMBER.fullmatch(c) or pattern.fullmatch(c) for c in column
    )
