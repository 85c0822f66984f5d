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
    the operator started.
    """

    kind: Kind
    operator: str
    rows: int = 0
    total_rows: int = 0
    shards: int = 0
    total_shards: int = 0
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows per second so far; 0 before the first."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Listen to nothing."""


class Meter:
    """Counts one operator's rows and shards and tells the listener."""

    def __init__(self, listener: Listener, operator: str, total_rows: int = 0, total_shards: int = 0) -> None:
        self._listener, self._operator = listener, operator
        self._total_rows, self._total_shards = total_rows, total_shards
        self._started = time.perf_counter()
        self.rows = self.shards = 0

    @property
    def seconds(self) -> float:
        """Seconds since this meter was made."""
        return time.perf_counter() - self._started

    def tell(self, kind: Kind) -> None:
        """Send an event with the counts so far."""
        totals = (self.rows, self._total_rows, self.shards, self._total_shards)
        self._listener(Event(kind, self._operator, *totals, seconds=self.seconds))

    def add(self, rows: int, shards: int = 1) -> None:
        """Count finished shards."""
        self.rows += rows
        self.shards += shards
        self.tell("progress")

    def reused(self) -> None:
        """Everything had been done before."""
        self.rows, self.shards = self._total_rows, self._total_shards
        self.tell("reused")
