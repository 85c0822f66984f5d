"""What a run tells while it goes: plain values, shown by whoever listens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["start", "fit", "progress", "finish", "reused"]


@dataclass(frozen=True)
class Event:
    """One step of one operator (or of the run itself: ``operator`` is then "plan", "publish", ...).

    ``rows`` and ``shards`` are done so far, of ``total_rows`` and ``total_shards``; ``seconds`` since
    the operator started. Of these rows ``worked_rows`` were computed in this run, which took its workers
    ``worked_seconds`` in all, from reading a shard until its new columns were there.
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

    @property
    def rows_per_second(self) -> float:
        """Rows per second so far; 0 before the first."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def rows_per_worker_second(self) -> float:
        """Rows per second of one actor (or task) while it works; 0 before the first."""
        return self.worked_rows / self.worked_seconds if self.worked_seconds > 0 else 0.0


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Listen to nothing."""


class Meter:
    """Counts one operator's rows and shards and tells the listener."""

    def __init__(self, listener: Listener, operator: str, total_rows: int = 0, total_shards: int = 0) -> None:
        self._listener, self._operator = listener, operator
        self._total_rows, self._total_shards = total_rows, total_shards
        self._started = time.perf_counter()
        self.rows = self.shards = self.worked_rows = 0
        self.worked_seconds = 0.0

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
        return Event(kind, self._operator, *totals, self.seconds, self.worked_rows, self.worked_seconds)

    def add(self, rows: int, shards: int = 1, *, worked: float = 0.0) -> None:
        """Count finished shards, and how many seconds a worker spent on them in this run."""
        self.rows += rows
        self.shards += shards
        if worked:
            self.worked_rows += rows
            self.worked_seconds += worked
        self.tell("progress")

    def reused(self) -> None:
        """Everything had been done before."""
        self.rows, self.shards = self._total_rows, self._total_shards
        self.tell("reused")
