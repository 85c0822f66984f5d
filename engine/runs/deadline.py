"""Ends a run that the operator's policy gives no more time, also within a task that reports no progress."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 0.5
"""Time in seconds after which a check that met an import is tried again."""


@contextmanager
def checked_after(seconds: float | None, check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` once in this thread as soon as the block has taken so many seconds.

    What ``check`` raises interrupts a loop in Python; a call of a library ends first, and so does an import,
    since torch can be imported only once. Nothing is called without a limit, or outside of the main thread,
    which alone gets signals. Afterwards SIGALRM is handled as before.
    """
    main = threading.main_thread()
    if seconds is None or threading.current_thread() is not main:
        yield
        return
    done = threading.Event()

    def wait() -> None:
        left = min(seconds, threading.TIMEOUT_MAX)
        while not done.wait(left) and main.ident is not None:
            signal.pthread_kill(main.ident, signal.SIGALRM)
            left = AGAIN_SECONDS

    def on_alarm(number: int, frame: FrameType | None) -> None:
        if _imports(frame):
            return
        done.set()
        check()
        if callable(before):
            before(number, frame)

    before = signal.signal(signal.SIGALRM, on_alarm)
    timer = threading.Thread(target=wait, name="rowsieve-deadline", daemon=True)
    timer.start()
    try:
        yield
    finally:
        done.set()
        timer.join()
        signal.signal(signal.SIGALRM, before)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a frame is within the import of a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
