"""A limit of time interrupts loops, is met once, and lets imports end."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.runs.deadline import checked_after


class LateError(Exception):
    """Raised by the check."""


def late() -> None:
    raise LateError


def test_a_loop_that_goes_on_after_every_error_is_interrupted() -> None:
    """So plugins are called, and rows are skipped on which an operator raises."""
    before = signal.getsignal(signal.SIGALRM)
    started = time.monotonic()

    def work() -> None:
        while time.monotonic() < started + 10:
            try:
                time.sleep(0.01)
            except Exception:
                continue

    with pytest.raises(LateError), checked_after(0.05, late):
        work()
    assert time.monotonic() < started + 5
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_import_ends_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch, half imported, can be imported by this process no more."""
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.8)\nwhole = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def import_and_wait() -> None:
        with checked_after(0.05, late):
            importlib.import_module("slow_module")
            time.sleep(5)

    with pytest.raises(LateError):
        import_and_wait()
    assert sys.modules.pop("slow_module").whole


def test_nothing_is_checked_in_time_or_in_other_threads() -> None:
    with checked_after(30, late), checked_after(None, late):
        pass
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with checked_after(0.01, late):
                time.sleep(0.1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []
