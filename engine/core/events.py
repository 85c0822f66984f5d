"""What a run tells while it goes: plain values, shown by whoever listens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["start", "fit", "progress", "finish", "reused"]


@dataclass(frozen=True)
class Event:
    """One step of one operator (or of the run itself: ``operator`` is then "plan", "publish", ...).

    ``rows`` and ``shards`` are done so far, of ``total_rows`` and ``total_shards``; ``seconds`` since
    the operator started. Of these rows ``worked_rows`` were computed in this run, which took its workers
    ``worked_seconds`` in all, from reading a shard until its new columns were there. A fit goes over the
    data in passes: ``fit_pass`` is the number of the one it is in (0: none yet), of whose ``total_pieces``
    pieces of work ``pieces`` are done. ``quarantined`` rows were set aside by this operator.
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

    @property
    def rows_per_second(self) -> float:
        """Rows per second so far; 0 before the first."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def rows_per_worker_second(self) -> float:
        """Rows per second of one actor (or task) while it works; 0 before the first."""
        return self.worked_rows / self.worked_seconds if self.worked_seconds > 0 else 0.0


Listener = Callable[[Event], None]
FIT_EVERY_SECONDS = 0.5


def silent(event: Event) -> None:
    """Listen to nothing."""


class Meter:
    """Counts one operator's rows and shards and tells the listener."""

    def __init__(self, listener: Listener, operator: str, total_rows: int = 0, total_shards: int = 0) -> None:
        self._listener, self._operator = listener, operator
        self._total_rows, self._total_shards = total_rows, total_shards
        self._started = time.perf_counter()
        self.rows = self.shards = self.worked_rows = self.quarantined = 0
        self.worked_seconds = 0.0
        self._told = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since this meter was made."""
        return time.perf_counter() - self._started

    def tell(self, kind: Kind) -> None:
        """Send an event with the counts so far."""
        self._listener(self.event(kind))

    def event(self, kind: Kind) -> Event:
        """The counts so far."""
        totals = (self.rows, self._total_rows, self.shards, self._total_shards)
        worked = (self.worked_rows, self.worked_seconds)
        return Event(kind, self._operator, *totals, self.seconds, *worked, quarantined=self.quarantined)

    def fitting(self, fit_pass: int, pieces: int, total_pieces: int) -> None:
        """How far a fit is: told now and then, as a fit may hand out thousands of small pieces."""
        if self.seconds - self._told >= FIT_EVERY_SECONDS:
            self._told = self.seconds
            event = self.event("fit")
            self._listener(replace(event, fit_pass=fit_pass, pieces=pieces, total_pieces=total_pieces))

    def add(self, rows: int, shards: int = 1, *, worked: float = 0.0, quarantined: int = 0) -> None:
        """Count finished shards, the rows set aside there, and the seconds a worker spent in this run."""
        self.rows += rows
        self.shards += shards
        self.quarantined += quarantined
        if worked:
            self.worked_rows += rows
            self.worked_seconds += worked
        self.tell("progress")

    def reused(self) -> None:
        """Everything had been done before."""
        self.rows, self.shards = self._total_rows, self._total_shards
        self.tell("reused")
