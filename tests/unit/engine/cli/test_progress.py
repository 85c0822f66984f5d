"""Progress bars leave nothing open."""

import os

import pytest

from engine.cli.progress import _Bars


def test_bars_close_their_copy_of_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    """A notebook draws them for run after run."""
    before = os.listdir("/proc/self/fd")
    bars = _Bars()
    with bars:
        assert len(os.listdir("/proc/self/fd")) > len(before)
    assert os.listdir("/proc/self/fd") == before
