"""What a run tells while it goes: plain values, shown by whoever listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["start", "fit", "progress", "finish", "reused", "note"]


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
    text: str = ""

    @property
    def rows_per_second(self) -> float:
        """Rows per second so far; 0 before the first."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Listen to nothing."""
