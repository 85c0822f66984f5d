"""How a CSV file is written, told from its first lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connectors.base import SourceSpec
from connectors.csv_guess import guess_options

CASES: dict[str, dict[str, Any]] = {
    "a,b\n1,2\n": {},
    'a;b\n"1.234,5";x\n2,5;y\n': {"delimiter": ";", "decimal": ",", "thousands": "."},
    "a;b\n2,5;y\n,25;z\n": {"delimiter": ";", "decimal": ","},
    'x,y\n"1,234",2\n"12",3\n': {"thousands": ","},
    "a|b\n1|2\n": {"delimiter": "|"},
    "a\tb\n1\t2,5\n": {"delimiter": "\t", "decimal": ","},
    "1,2,3\n4,5,6\n": {"header": False},
    "0,1,2\n4,5,6\n": {},
    "yes,3\nno,4\nyes,5\n": {"header": False},
    "name,2019,2020\nanna,1,2\nbert,2,3\n": {},
    "a,b,a\n1,2,3\n": {"duplicate_names": "number"},
    ",a,b\n0,2,3\n1,2,3\n": {"empty_names": "number"},
    ",a,,a\n0,2,3,4\n": {"empty_names": "number", "duplicate_names": "number"},
    "a,b\n1.234,x\n2.345,y\n": {},
    "text\nhello, you\nb\n": {},
    "a,b\n": {},
}


@pytest.mark.parametrize("text", CASES)
def test_the_options_are_guessed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert guess_options(SourceSpec(str(path))) == CASES[text]
