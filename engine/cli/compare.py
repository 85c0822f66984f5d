"""The table of ``rowsieve compare``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.cli.show import near

if TYPE_CHECKING:
    from engine.runs.compare.comparison import Comparison
    from engine.runs.compare.scores import Scores

MOST_SIZES = 6


def show_comparison(found: Comparison) -> None:
    """One line a method, the floor first."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("method")
    numbers = ("ARI", "minority recall", "outlier precision", "outlier recall", "groups")
    for name in numbers:
        table.add_column(name, justify="right")
    table.add_column("sizes", overflow="fold")
    table.add_column("seconds", justify="right")
    for entry in found.entries:
        scores = entry.scores
        figures = (scores.ari, scores.minority_recall, scores.outlier_precision, scores.outlier_recall)
        cells = [_number(value) for value in figures]
        table.add_row(
            entry.method, *cells, str(len(scores.sizes)), sizes_text(scores), f"{entry.seconds:.2f}"
        )
    console = Console(highlight=False)
    console.print(table)
    for path in (found.figure, found.record):
        console.print(f"  {escape(near(path))}", soft_wrap=True)


def sizes_text(scores: Scores) -> str:
    """The largest groups, and the rows in none."""
    shown = ", ".join(f"{rows:,}" for rows in scores.sizes[:MOST_SIZES])
    more = ", ..." if len(scores.sizes) > MOST_SIZES else ""
    return shown + more + (f"; in none {scores.noise:,}" if scores.noise else "")


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
