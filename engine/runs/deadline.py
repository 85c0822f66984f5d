"""Ends a run that exceeds the time of the administrator's policy, also within a task without progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.core.alarm import alarm


@contextmanager
def checked_after(seconds: float | None, check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` once in this thread as soon as the block has taken this number of seconds.

    Nothing is called without a limit. What ``check`` raises interrupts the block as :mod:`engine.core.alarm`
    describes.
    """
    if seconds is None:
        yield
        return
    done = threading.Event()
    with alarm(check) as bell:

        def wait() -> None:
            if not done.wait(min(seconds, threading.TIMEOUT_MAX)):
                bell.ring()

        timer = threading.Thread(target=wait, name="rowsieve-deadline", daemon=True)
        timer.start()
        try:
            yield
        finally:
            bell.stop()
            done.set()
            timer.join()
