"""Globs match as fsspec's do, in time that grows with the length of pattern and name alone."""

from __future__ import annotations

import re
import time

import pytest
from fsspec.utils import glob_translate
from hypothesis import given
from hypothesis import strategies as st

from connectors import ConnectorError
from connectors.locations import Glob

PARTS = st.sampled_from(["**", "*", "a", "*a", "a*", "?", "[ab]", "[!a]*", "a.b", "*.b", "b*a*", "[", "[]a]"])
NAMES = st.lists(st.text("ab.[", min_size=1, max_size=5), min_size=1, max_size=4).map("/".join)


@given(st.lists(PARTS, min_size=1, max_size=5).map("/".join), NAMES)
def test_a_glob_matches_as_fsspecs_does(pattern: str, name: str) -> None:
    expected = re.fullmatch(glob_translate(pattern), name) is not None
    assert Glob(pattern).matches(name) == expected


@pytest.mark.parametrize("pattern", ["*a" * 60 + "*b", "**/" * 40 + "b", "**/*a/" * 40 + "b", "a*" * 5000])
def test_a_hostile_glob_ends(pattern: str) -> None:
    """`data/*a*a*a*a*a*a*b.csv` beside a file `aaa...` of 200 letters did not end within a minute."""
    glob, began = Glob(pattern), time.process_time()
    for name in ("a" * 255, "/".join("a" * 120)):
        assert not glob.matches(name)
    assert time.process_time() - began < 2


def test_two_stars_stand_alone() -> None:
    with pytest.raises(ConnectorError, match=r"\*\*.*data/\*\*/"):
        Glob("a**/b")
