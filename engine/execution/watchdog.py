"""The watchdog for operators that make no progress."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.core.errors import InfeasibleError


def is_stalled(now: float, last: float, limit: float) -> bool:
    """Return whether work is stalled.

    Parameters
    ----------
    now, last
        The present time and the time of the last progress, in seconds of the same clock.
    limit
        Longest time without progress in seconds; 0: no limit.

    """
    return 0 < limit <= now - last


class StallGuard:
    """Remembers when an operator last made progress."""

    def __init__(self, operator: str, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the clock. ``limit`` is in seconds; 0: no limit."""
        self._operator, self._limit, self._clock = operator, limit, clock
        self._last, self._done = clock(), 0

    def done(self, count: int) -> None:
        """Record the number of finished pieces of work."""
        if count != self._done:
            self._last, self._done = self._clock(), count

    def check(self) -> None:
        """Raise InfeasibleError if there was no progress for longer than the limit."""
        if is_stalled(self._clock(), self._last, self._limit):
            raise stalled(self._operator, self._limit, self._done)


def stalled(operator: str, limit: float, done: int) -> InfeasibleError:
    """Return the error of an operator that makes no progress."""
    return InfeasibleError(
        f"operators.{operator} made no progress for {limit:g} seconds, after {done} pieces of work. Either "
        f"the cluster has no room for its workers (other jobs, a lost node: `ray status` shows it; ask for "
        f"less with --set run.shards_in_flight=1), or one piece takes longer: then allow for it with --set "
        f"run.no_progress_seconds={2 * limit:g} (0 waits for ever). Committed work is kept."
    )
