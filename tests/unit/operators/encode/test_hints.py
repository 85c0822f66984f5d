"""Hints on texts that could be dates of formats which are read only where the recipe names them."""

from __future__ import annotations

import pytest

from operators.encode.hints import hint, list_hint


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        (["7/27/13 6:57", "10/15/13 18:09"], "`at: {format: '%m/%d/%y %H:%M'}`"),
        (["27/7/13 6:57", "15/10/13 18:09"], "`at: {format: '%d/%m/%y %H:%M'}`"),
        (["1/2/13 6:57"], "`at: {format: '%m/%d/%y %H:%M'}` or '%d/%m/%y %H:%M'"),
        (["03-Feb-2024"], "`at: {format: '%d-%b-%Y'}`"),
        (["€ 12", "1,200 €"], "amounts such as '€ 12': used as numbers if"),
        (["US$ 12.50"], "operators.encode.columns says `at: amount`"),
        (["12", "1,200"], "amounts such as '1,200'"),
        (["12 kg", "12 lb"], ""),
        (["Lyon", "7/27/13 6:57"], ""),
        ([], ""),
    ],
)
def test_what_texts_could_be(examples: list[str], said: str) -> None:
    found = hint("at", examples)
    assert found == "" if not said else said in found


def test_texts_that_list_names_are_said_to_be_better_tags() -> None:
    casts = ["Robert Downey Jr., Jon Favreau, Gwyneth Paltrow", "Tim Robbins, Morgan Freeman", "Uma Thurman"]
    assert list_hint([casts[0], casts[1], casts[0], casts[1], casts[2]]).startswith("lists such as 'Robert")
    assert "makes them tags" in list_hint(casts[:2])
    sentences = ["The film is slow, but the end is good, and we liked it", "Well, it is long, too long"]
    assert list_hint(sentences) == list_hint(casts[2:]) == list_hint([]) == ""
