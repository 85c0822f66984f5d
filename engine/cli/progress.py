"""Display of progress: bars on a terminal, otherwise one line per operator, or JSON lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from connectors.foundation.messages import nearest
from engine.cli.safe_output import SafeConsole
from engine.core.errors import InputError
from engine.core.events import Event, Listener
from operators.counts import count

FIT_LINE_SECONDS = 30.0
FORMATS = ("auto", "rich", "plain", "json")


@contextmanager
def listener_for(log_format: str) -> Iterator[Listener]:
    """Yield the listener for a ``--log-format``. Raises InputError for an unknown format."""
    if log_format not in FORMATS:
        raise InputError(
            f"--log-format {log_format}: choose one of {', '.join(FORMATS)}.{nearest(log_format, FORMATS)}"
        )
    if log_format == "json":
        yield _as_json
    elif log_format == "rich" or (log_format == "auto" and sys.stderr.isatty()):
        with _Bars() as bars:
            yield bars
    else:
        yield _Lines()


def _as_json(event: Event) -> None:
    rates = {name: round(getattr(event, name), 1) for name in ("rows_per_second", "rows_per_worker_second")}
    print(json.dumps(asdict(event) | rates), flush=True)


class _Lines:
    """Prints a line for each finished operator, and one every 30 seconds for a long fit."""

    def __init__(self) -> None:
        self._last_line_seconds = 0.0

    def __call__(self, event: Event) -> None:
        """Print the line of an event, if it has one."""
        line = describe(event)
        if event.kind == "start":
            self._last_line_seconds = 0.0
        elif event.kind == "fit" and event.seconds - self._last_line_seconds >= FIT_LINE_SECONDS:
            self._last_line_seconds = event.seconds
            line = f"{event.operator:<10} {fit_place(event)}, {event.seconds:.0f} s"
        if line:
            print(line, file=sys.stderr, flush=True)


def fit_place(event: Event) -> str:
    """Describe the progress of a fit. The number of passes is unknown: most methods stop on convergence."""
    if not event.fit_pass:
        return "fitting"
    return f"fitting, pass {event.fit_pass}: {event.pieces} of {event.total_pieces}"


def describe(event: Event) -> str:
    """Return the line of a finished or reused operator; an empty text for other events."""
    if event.kind == "reused":
        return f"{event.operator:<10} reused   {event.shards} of {count(event.total_shards, 'shard')}"
    if event.kind == "finish":
        shards = f", {count(event.shards, 'shard')}" if event.shards else ""
        rows = f"{count(event.rows, 'row')}{shards}, {_rates(event)}, " if event.rows else ""
        return f"{event.operator:<10} done     {rows}{event.seconds:.1f} s"
    return ""


def _rates(event: Event) -> str:
    """Return the rows per second of the operator and, if workers computed, of one worker."""
    each = f" ({event.rows_per_worker_second:,.0f} per worker)" if event.worked_seconds else ""
    return f"{event.rows_per_second:,.0f} rows/s{each}"


class _Rows(ProgressColumn):
    """Column with the finished rows, all rows and the rate; empty for steps that count no rows."""

    def render(self, task: Task) -> Text:
        """Draw the cell of a task."""
        event: Event = task.fields["event"]
        if not event.total_rows:
            return Text()
        has_rate = event.unit == "rows" and event.kind != "reused" and event.rows
        rate = f" {_rates(event)}" if has_rate else ""
        return Text(f"{event.rows:,}/{event.total_rows:,} {event.unit}{rate}", style="cyan")


class _Bars:
    """Draws a bar for each operator on standard error."""

    def __init__(self) -> None:
        # A copy of the stream, since Ray redirects standard error for a moment when it starts.
        self._stream = os.fdopen(os.dup(sys.stderr.fileno()), "w")
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<10}", markup=False),
            BarColumn(bar_width=20),
            _Rows(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
            console=SafeConsole(file=self._stream),
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._stream.close()

    def __call__(self, event: Event) -> None:
        """Update the bar of the event's operator."""
        total, over = event.total_rows or 1, event.kind in ("finish", "reused")
        if event.operator not in self._tasks:
            task = self._progress.add_task(event.operator, total=total, note="", event=event)
            self._tasks[event.operator] = task
        self._progress.update(
            self._tasks[event.operator],
            total=total,
            completed=total if over else event.rows,
            note=fit_place(event) if event.kind == "fit" else {"reused": "reused"}.get(event.kind, ""),
            event=event,
        )
