"""Lines that show source columns and labels, one for each, so that they can be searched and cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from operators.counts import count

if TYPE_CHECKING:
    from engine.plan.source_columns import SourceColumn
    from operators.ingest.label_checks import LabelCounts

MAX_CLASSES = 20
"""Classes that are listed; further ones are counted."""
WIDEST = 40
"""Characters of a name that are shown."""


def column_lines(columns: Sequence[SourceColumn], note: str = "") -> Iterator[str]:
    """Yield a heading and a line for each source column: name, type, use, and examples or the reason.

    Parameters
    ----------
    note
        Which rows were read, if not all.
    """
    rows = [("column", "type", "use", "values, or why not")]
    rows += [(one_line(_cut(c.name)), type_text(c.type), c.kind, one_line(c.about)) for c in columns]
    yield from aligned(rows)
    used = sum(column.use.used for column in columns)
    note_text = f" This comes from {note}; the run decides from all rows." if note else ""
    what = "is a feature" if used == 1 else "are features"
    yield f"Of {count(len(columns), 'column')} {used} {what}.{note_text}"


def label_lines(label: LabelCounts) -> Iterator[str]:
    """Yield a heading and a line for each class: its rows and their share."""
    rows = sum(label.counts.values())
    where = "" if label.is_exact else " of the sample"
    yield f"label {label.name}: {count(len(label.counts), 'class')} in {count(rows, 'row')}{where}"
    shown = [
        (f"  {_shown(value)}", f"{n:>11,}", f"{n / max(rows, 1):>6.1%}")
        for value, n in label.sorted[:MAX_CLASSES]
    ]
    yield from aligned(shown)
    if len(label.counts) > MAX_CLASSES:
        yield f"  and {len(label.counts) - MAX_CLASSES:,} more"
    if label.missing:
        yield f"  {count(label.missing, 'row')}{where} without a label"


def one_line(text: str) -> str:
    """Text without line ends, which would break a line of the list."""
    return " ".join(text.splitlines())


def aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as lines whose cells, but for the last, are as wide as the widest of their column."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    for *cells, last in rows:
        yield "  ".join([*(cell.ljust(w) for cell, w in zip(cells, widths, strict=True)), last]).rstrip()


def type_text(kind: str) -> str:
    """Return an Arrow type, shortened where it is long."""
    short = {"string": "text", "large_string": "text", "double": "float64", "float": "float32"}.get(
        kind, kind
    )
    if kind.startswith("dictionary<values=string"):
        return "category"
    return short if len(short) <= 24 else f"{short[:23]}…"


def _shown(value: object) -> str:
    """Return a label; in quotes where spaces at its ends would not be seen."""
    text = str(value)
    return repr(value) if text != text.strip() or not text else one_line(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
