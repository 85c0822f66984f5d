"""Events: plain values that a run sends to its listener and its plugins."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["start", "fit", "progress", "finish", "reused"]


@dataclass(frozen=True)
class Event:
    """The state of one operator, or of a step of the run (``operator`` is then "plan", "publish" and so on).

    Attributes
    ----------
    rows, shards
        Processed so far, of ``total_rows`` and ``total_shards``.
    seconds
        Since the operator started.
    worked_rows
        Those of ``rows`` that were computed in this run.
    worked_seconds
        The time that the workers spent on them in sum, from reading a shard to its new columns.
    fit_pass
        The number of the pass over the data in which a fit is, from 1; 0 before the first.
    pieces
        Finished pieces of work of this pass, of ``total_pieces``.
    quarantined
        Rows that this operator has quarantined.
    unit
        What ``rows`` counts: of a training ``epochs``, of a search for parameters ``trainings``.

    """

    kind: Kind
    operator: str
    rows: int = 0
    total_rows: int = 0
    shards: int = 0
    total_shards: int = 0
    seconds: float = 0.0
    worked_rows: int = 0
    worked_seconds: float = 0.0
    fit_pass: int = 0
    pieces: int = 0
    total_pieces: int = 0
    quarantined: int = 0
    unit: str = "rows"

    @property
    def rows_per_second(self) -> float:
        """Rows per second so far; 0 before the first row."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def rows_per_worker_second(self) -> float:
        """Rows per second of one worker while it computes; 0 before the first row."""
        return self.worked_rows / self.worked_seconds if self.worked_seconds > 0 else 0.0


Listener = Callable[[Event], None]
FIT_EVERY_SECONDS = 0.5


def silent(event: Event) -> None:
    """Ignore an event; the default receiver of events."""


class Meter:
    """Counts the rows and shards of one operator and sends events to a listener."""

    def __init__(self, listener: Listener, operator: str, total_rows: int = 0, total_shards: int = 0) -> None:
        self._listener, self._operator = listener, operator
        self._total_rows, self._total_shards = total_rows, total_shards
        self._started = time.perf_counter()
        self.rows = self.shards = self.worked_rows = self.quarantined = 0
        self.worked_seconds = 0.0
        self._last_event_seconds = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the meter was created."""
        return time.perf_counter() - self._started

    def emit(self, kind: Kind) -> None:
        """Send an event of this kind with the counts so far."""
        self._listener(self.event(kind))

    def event(self, kind: Kind) -> Event:
        """Return an event of this kind with the counts so far."""
        return Event(
            kind=kind,
            operator=self._operator,
            rows=self.rows,
            total_rows=self._total_rows,
            shards=self.shards,
            total_shards=self._total_shards,
            seconds=self.seconds,
            worked_rows=self.worked_rows,
            worked_seconds=self.worked_seconds,
            quarantined=self.quarantined,
        )

    def fit_progress(self, fit_pass: int, pieces: int, total_pieces: int) -> None:
        """Send the progress of a fit, but not for each of the thousands of small pieces that it may have."""
        if self.seconds - self._last_event_seconds >= FIT_EVERY_SECONDS:
            self._last_event_seconds = self.seconds
            event = self.event("fit")
            self._listener(replace(event, fit_pass=fit_pass, pieces=pieces, total_pieces=total_pieces))

    def add(self, rows: int, shards: int = 1, *, worked: float = 0.0, quarantined: int = 0) -> None:
        """Count finished shards, their quarantined rows, and the seconds that a worker spent in this run."""
        self.rows += rows
        self.shards += shards
        self.quarantined += quarantined
        if worked:
            self.worked_rows += rows
            self.worked_seconds += worked
        self.emit("progress")

    def reused(self) -> None:
        """Send the event of an operator whose work was done by an earlier run."""
        self.rows, self.shards = self._total_rows, self._total_shards
        self.emit("reused")
