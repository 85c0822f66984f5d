"""Output of the command line, in which names from recipes, files and rows cannot control the terminal."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from engine.core.terminal import printable

PIPED_WIDTH = 200
"""Characters of a line that is written to a file or a pipe, where nobody sees the edge of a terminal."""


class SafeConsole(Console):
    """A console of rich that prints every text as it stands, and its control characters as escapes.

    Texts come from recipes, files and rows, so that none is read as rich's markup or as the name of an emoji.
    Styles are set by :meth:`rich.text.Text.assemble` or by the argument ``style``.

    Tables that are no wider than ``PIPED_WIDTH`` keep each row on one line in a file or a pipe, so that they
    can be searched; the variable ``COLUMNS`` sets another width.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)
        if "width" not in settings and not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = PIPED_WIDTH

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object to segments whose text has no control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def bold(text: object) -> Text:
    """Return a text in bold, to which plain text can be added with ``+``."""
    return Text.assemble((str(text), "bold"))


def plain_table(*columns: str, right: Collection[str] = ()) -> Table:
    """Return an empty table without lines; the columns named by ``right`` are aligned at their right."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def echo(text: str, **settings: Any) -> None:
    """Print a text as :func:`typer.echo` does, without control characters."""
    typer.echo(printable(text), **settings)
