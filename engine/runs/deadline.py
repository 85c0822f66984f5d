"""Ends a run that the operator's policy gives no more time, also within a task that reports no progress."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def checked_after(seconds: float | None, check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` once in this thread as soon as the block has taken so many seconds.

    What ``check`` raises interrupts a loop in Python; a call of a library ends first. Nothing is called
    without a limit, or outside of the main thread, which alone gets signals. Afterwards SIGALRM is handled as
    before.
    """
    main = threading.main_thread()
    if seconds is None or threading.current_thread() is not main:
        yield
        return
    finished = threading.Event()

    def wait() -> None:
        if not finished.wait(seconds) and main.ident is not None:
            signal.pthread_kill(main.ident, signal.SIGALRM)

    def on_alarm(number: int, frame: FrameType | None) -> None:
        check()
        if callable(before):
            before(number, frame)

    before = signal.signal(signal.SIGALRM, on_alarm)
    timer = threading.Thread(target=wait, name="rowsieve-deadline", daemon=True)
    timer.start()
    try:
        yield
    finally:
        finished.set()
        timer.join()
        signal.signal(signal.SIGALRM, before)
