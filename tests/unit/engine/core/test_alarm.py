"""Alarms interrupt the main thread, in any order of their ends, and leave SIGALRM as it was."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from types import FrameType

import pytest

from engine.core.alarm import Alarm, alarm


class RungError(Exception):
    """Raised by the check."""


def ring(bell: Alarm) -> threading.Thread:
    thread = threading.Thread(target=bell.ring, daemon=True)
    thread.start()
    return thread


def fail() -> None:
    raise RungError


def wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def test_the_one_that_is_rung_is_checked() -> None:
    checked: list[str] = []
    with alarm(lambda: checked.append("outer")) as outer, alarm(lambda: checked.append("inner")):
        ring(outer).join(10)
        wait(0.1)
    assert checked == ["outer"]


@pytest.mark.parametrize("first", [0, 1])
def test_they_end_in_any_order(first: int) -> None:
    """A run's lease is given back after the clock of the run has stopped, though it was taken later."""
    before = signal.getsignal(signal.SIGALRM)
    stacks = ExitStack(), ExitStack()
    for stack in stacks:
        stack.enter_context(alarm(fail))
    stacks[first].close()
    assert signal.getsignal(signal.SIGALRM) is not before
    stacks[1 - first].close()
    assert signal.getsignal(signal.SIGALRM) is before


def test_one_that_has_ended_is_silent() -> None:
    with alarm(fail) as bell:
        pass
    ring(bell).join(10)
    wait(0.05)


def interrupted() -> None:
    with alarm(fail) as bell:
        ring(bell)
        wait(10)


def test_a_loop_is_interrupted_and_the_thread_that_rang_ends() -> None:
    threads = threading.active_count()
    with pytest.raises(RungError):
        interrupted()
    wait(0.1)
    assert threading.active_count() == threads


def test_the_timer_of_somebody_else_goes_on() -> None:
    """Such as that of pytest-timeout."""
    seen: list[int] = []

    def theirs(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGALRM, theirs)
    try:
        wait(2.1)  # the signals of former alarms are older
        with alarm(fail):
            signal.raise_signal(signal.SIGALRM)
        assert seen == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_one_that_is_answered_while_it_ends_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal may come after the block, before the alarm is silent."""
    before = signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(Alarm, "stop", lambda _: fail())
    with pytest.raises(RungError), alarm(fail):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
