"""Interrupts the main thread with a check that another thread asks for, such as that of a limit of time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

AGAIN_SECONDS = 0.5
"""Time in seconds after which a check that met an import is tried again."""


class Interrupt(BaseException):
    """Carries the error of a check out of the block that it interrupts.

    Like ``KeyboardInterrupt``, it is not an ``Exception``: code that reports or skips what fails, such as
    that which calls a plugin, would go on without noticing that the run is over.
    """

    def __init__(self, error: Exception) -> None:
        """``error`` is raised in place of this one where the block ends."""
        super().__init__(str(error))
        self.error = error


@contextmanager
def errors_of_checks() -> Iterator[None]:
    """Raise the error of a check that has interrupted the block."""
    try:
        yield
    except Interrupt as interrupt:
        raise interrupt.error from None


class Alarm:
    """Asks the main thread to carry out one check. Made by :func:`alarm`."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._over = threading.Event()
        self._rung = False
        self._sending = threading.Lock()

    def ring(self) -> None:
        """Have the check carried out once in the main thread, and wait until that begins or the block ends.

        Other threads than the main one call this.
        """
        self._rung = True
        while self._send():
            self._over.wait(AGAIN_SECONDS)

    def _send(self) -> bool:
        main = threading.main_thread()
        with self._sending:
            if self._over.is_set() or main.ident is None:
                return False
            _Signals.last = time.monotonic()
            signal.pthread_kill(main.ident, signal.SIGALRM)
            return True

    def answer(self) -> None:
        """Carry out the check if it is due; from then on it is not due again."""
        if self._rung and not self._over.is_set():
            self._over.set()
            try:
                self._check()
            except Exception as error:
                raise Interrupt(error) from None

    def stop(self) -> None:
        """Ask for nothing any more. To be called in the main thread."""
        with self._sending:
            self._over.set()
        signal.sigpending()  # on the way back from the kernel, a signal that was sent before arrives


class _Signals:
    """The alarms of this process. They may end in another order than they began in."""

    alarms: ClassVar[list[Alarm]] = []
    before: Any = None
    """The handler of SIGALRM before the first of them."""
    last: float = float("-inf")
    """Time at which an alarm has sent a signal."""


@contextmanager
def alarm(check: Callable[[], None]) -> Iterator[Alarm]:
    """Yield an alarm that has ``check`` called in this thread, once, while the block runs.

    What ``check`` raises interrupts a loop in Python, is not caught by the block's own ``except Exception``,
    and leaves the block; a call of a library ends first, and so does an import, since torch can be imported
    only once. Nothing is called outside of the main thread, which alone gets
    signals. After the last alarm SIGALRM is handled as before the first.
    """
    found = Alarm(check)
    if threading.current_thread() is not threading.main_thread():
        found.stop()
        yield found
        return
    if not _Signals.alarms:
        _Signals.before = signal.signal(signal.SIGALRM, _on_signal)
    _Signals.alarms.append(found)
    try:
        with errors_of_checks():
            yield found
    finally:
        try:
            with errors_of_checks():  # it may be answered while it stops
                found.stop()
        finally:
            _Signals.alarms.remove(found)
            if not _Signals.alarms:
                signal.signal(signal.SIGALRM, _Signals.before)


def _on_signal(number: int, frame: FrameType | None) -> None:
    if _imports(frame):
        return
    for found in tuple(_Signals.alarms):
        found.answer()
    recent = time.monotonic() - _Signals.last < 4 * AGAIN_SECONDS
    if callable(_Signals.before) and not recent:  # of somebody else's timer
        _Signals.before(number, frame)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a frame is within the import of a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
