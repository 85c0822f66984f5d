"""Guesses the options of a CSV file from its first lines: separators, decimal commas, thousands, header."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.base import SourceSpec
from connectors.cells import NULLS
from connectors.csv_marks import NUMBER, guess_marks, mark_fault
from connectors.csv_options import CsvOptions
from connectors.csv_source import TSV, Csv
from connectors.files import find_names
from connectors.locations import extension
from connectors.packed_text import text_blocks

HEAD_BYTES = 2**18
"""Bytes at the start of the first file from which options are guessed."""
SEPARATORS = (",", ";", "\t", "|")

Rows = list[list[str]]


@dataclass(frozen=True)
class Guess:
    """Guessed options of ``csv`` that differ from their defaults, each with its reason."""

    options: dict[str, Any]
    why: str = "as the first lines of the file show"


def guess_options(spec: SourceSpec, label: str | None = None) -> Guess:
    """Return the options with which the first file can be read; none for a file in the usual form.

    Parameters
    ----------
    spec
        The source.
    label
        The label column where it is known: a first line that has it, above other values, is the header.

    Raises
    ------
    ConnectorError
        The file cannot be read.
    """
    path = find_names(spec, Csv)[0]
    lines = _head(spec, path)
    usual = "\t" if extension(path, TSV) else ","
    separator, rows = _cut(lines, usual)
    found: dict[str, Any] = {} if separator == usual else {"delimiter": separator}
    if len(rows) < 2:
        return Guess(found)
    body = [*zip(*(row for row in rows[1:] if len(row) == len(rows[0])), strict=True)]
    if not _has_header(rows[0], body, label):
        found["header"] = False
    else:
        named = [name for name in map(str.strip, rows[0]) if name]
        found |= {"empty_names": "number"} if len(named) < len(rows[0]) else {}
        found |= {"duplicate_names": "number"} if len({*named}) < len(named) else {}
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(rows[0], 1)]
    if "header" in found:
        names = [f"column_{place}" for place in range(1, len(names) + 1)]
    counts = Counter(names)
    distinct_names = (name if counts[name] == 1 else f"{name} ({n})" for n, name in enumerate(names, 1))
    marks, notes = guess_marks(dict(zip(distinct_names, body, strict=False)), separator)
    return Guess(found | marks, "; ".join(["as the first lines of the file show", *notes]))


def doubtful_marks(spec: SourceSpec, options: CsvOptions, amounts: Collection[str] = ()) -> list[str]:
    """Return the columns of the first file whose numbers contradict ``decimal``, each with an explanation.

    Columns of ``amounts`` are not looked at: they are read by a rule of their own.

    Raises
    ------
    ConnectorError
        The file cannot be read.
    """
    path = find_names(spec, Csv)[0]
    separator = options.delimiter or ("\t" if extension(path, TSV) else ",")
    try:
        rows = [row for row in csv.reader(_head(spec, path), delimiter=separator) if row]
    except csv.Error:  # the run reports it
        return []
    body = [*zip(*(row for row in rows[1:] if len(row) == len(rows[0])), strict=True)]
    found = []
    for name, column in zip(rows[0] if rows else [], body, strict=False):
        fault = mark_fault(column, options.decimal, options.thousands)
        if fault and name.strip() not in (*spec.text_columns, *amounts):
            found.append(f"Column {name.strip()!r}: {fault}")
    return found


def _head(spec: SourceSpec, path: str) -> list[str]:
    """Return the whole lines at the start of a file."""
    data = b"".join(text_blocks(spec, path, 0, HEAD_BYTES, HEAD_BYTES))
    text = data.decode(spec.encoding, "replace").lstrip("\ufeff")
    lines = [*io.StringIO(text, newline="")]
    return lines[:-1] if len(data) == HEAD_BYTES else lines


def _cut(lines: Sequence[str], usual: str) -> tuple[str, Rows]:
    """Return the separator by which most lines have the same number of cells, more than one; and the
    cells.
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


def _has_header(first: list[str], columns: Sequence[Sequence[str]], label: str | None) -> bool:
    """Return whether the first row names columns: it has no numbers, or few of its texts occur below.

    The texts of check boxes count neither way.
    """
    cells = [cell.strip() for cell in first]
    below = [{value.strip() for value in column} for column in columns]
    if any(cell == label and cell not in values for cell, values in zip(cells, below, strict=False)):
        return True
    numbers = [bool(NUMBER.fullmatch(cell)) for cell in cells]
    if all(numbers):
        return cells == [str(place) for place in range(len(cells))]  # pandas numbers columns without names
    pairs = zip(cells, below, numbers, strict=False)
    again = [
        cell in values for cell, values, number in pairs if not number and not _is_check_box(cell, values)
    ]
    if not again:
        return not any(numbers)
    return sum(again) < max(1, len(again) / 2)


def _is_check_box(name: str, values: set[str]) -> bool:
    """Return whether a column has nothing but its name, in the rows where an option was ticked."""
    return name in values and len(values) > 1 and values <= {name, *NULLS}
