"""Output of the command line. Names from recipes, files and rows cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from engine.core.terminal import printable


class SafeConsole(Console):
    """A console of rich that writes control characters of the text as escapes; its own styles stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object to segments whose text has no control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def echo(text: str, **settings: Any) -> None:
    """Print a text as :func:`typer.echo` does, without control characters."""
    typer.echo(printable(text), **settings)
