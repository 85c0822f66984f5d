"""Guessing the options of a CSV file from its first lines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from connectors.base import SourceSpec
from connectors.csv_guess import doubtful_marks, guess_options
from connectors.csv_options import CsvOptions

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
    'a,b\n1,"42,134"\n2,"5,210"\n': {"thousands": ","},
    'a,b\n1,"42,134"\n2,"5210"\n': {"thousands": ","},
    'a,b\n1.5,"42,134"\n2,"5,210"\n': {"thousands": ","},
    'a,b\n1.5,"3,7"\n2.25,"4,1"\n': {},
    'a,b\n1.5,"3,7,7"\n2.25,"4,1"\n': {},
    "a;b;c\n3,7;1.5;2,1\n4,1;2.5;2,2\n": {"delimiter": ";", "decimal": ","},
    "a;b\n42,134;x\n5,210;y\n": {"delimiter": ";", "thousands": ","},
    "a;b\n42,134;3,7\n5,210;4,1\n": {"delimiter": ";", "decimal": ","},
    "a;b\n0,134;x\n5,210;y\n": {"delimiter": ";", "decimal": ","},
    'a,b\n1,"1,234,567"\n2,-\n3,"1,200"\n4,"9"\n5,8\n': {"thousands": ","},
    'a,b\n1,"1,234.50"\n2,"12.25"\n': {"thousands": ","},
    'a;b\n"1.234";x\n"0.125";y\n2;z\n': {"delimiter": ";"},
    "a,b\n1.234.567,x\n5.210,y\n": {"decimal": ",", "thousands": "."},
    "text\nhello, you\nb\n": {},
    "age,Email,Phone,y\n31,Email,,no\n44,,Phone,yes\n": {},
    "age,Email,Phone,y\n31,Email,NA,no\n44,NA,Phone,yes\n": {},
    "Email,Phone\nEmail,\n,Phone\n": {},
    "Email,Phone,31\nEmail,,44\n,Phone,25\n": {"header": False},
    "Email,no,31\nEmail,no,44\n,yes,25\n": {"header": False},
    "a,b\n": {},
}


@pytest.mark.parametrize("text", CASES)
def test_the_options_are_guessed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert guess_options(SourceSpec(str(path))).options == CASES[text]


def test_a_label_in_the_first_line_names_a_column_unless_it_is_a_value_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("red,blue,y\nblue,red,no\nred,blue,yes\n")
    spec = SourceSpec(str(path))
    assert guess_options(spec).options == {"header": False}
    assert guess_options(spec, "y").options == {}
    assert guess_options(spec, "red").options == {"header": False}


NOTES = {
    'k,n\n1,"42,134"\n2,"5,210"\n': "thousands of n, as in '42,134'; three digits follow every comma, yet it",
    'k,n\n1,"1,042,134"\n2,"5,210"\n': "thousands of n, as in '1,042,134'",
    'k,n\n1.5,"3,7"\n2.25,"4,1"\n': "decimal points in k, so that n is text",
    "k;n\n42,134;3,7\n5,210;4,1\n": "decimal commas in n; so the commas of k are read as decimal commas too",
}


@pytest.mark.parametrize("text", NOTES)
def test_what_commas_mean_is_said(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    why = guess_options(SourceSpec(str(path))).why
    assert NOTES[text] in why
    assert ("could be a decimal comma" in why) == ("yet it" in NOTES[text])


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("a;b\n1,234,567;x\n2,100;y\n", {"delimiter": ";", "decimal": ","}, "it stands between thousands"),
        ("a;b\n1,234.5;x\n2.25;y\n", {"delimiter": ";", "decimal": ","}, "source.options.thousands: ','"),
        ('a,b\n1,x\n"1,5",y\n', {}, "1 of the first 2 values have ',' as their decimal point"),
        ("a;b\n1.25;x\n3;y\n", {"delimiter": ";", "decimal": ","}, "Set source.options.decimal: '.'"),
        ("a;b\n1,5;x\n2;y\n", {"delimiter": ";", "decimal": ","}, ""),
        ("a;b\n1.234,5;x\n2,5;y\n", {"delimiter": ";", "decimal": ",", "thousands": "."}, ""),
        ("a,b\n1.5,x\n2,y\n", {}, ""),
        ('a,b\n"1,234",x\n2,y\n', {}, ""),
        ("a;b\n1,5 or 2,5;x\n2,5;y\n", {"delimiter": ";"}, ""),
    ],
)
def test_numbers_that_contradict_the_decimal_point_are_named(
    tmp_path: Path, text: str, options: dict[str, Any], said: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    found = doubtful_marks(SourceSpec(str(path)), CsvOptions(**options))
    assert [said in one and one.startswith("Column 'a': ") for one in found] == ([True] if said else [])
    assert doubtful_marks(SourceSpec(str(path), text_columns=("a",)), CsvOptions(**options)) == []
    assert doubtful_marks(SourceSpec(str(path)), CsvOptions(**options), amounts=["a"]) == []


def test_many_columns_take_linear_time(tmp_path: Path) -> None:
    """Each name was counted among all others: 20,000 columns took ten seconds."""
    path = tmp_path / "wide.csv"
    path.write_text(f"{',' * 20_000}\n{',' * 20_000}\n")
    start = time.process_time()
    assert guess_options(SourceSpec(str(path))).options == {"header": False}
    assert time.process_time() - start < 3
