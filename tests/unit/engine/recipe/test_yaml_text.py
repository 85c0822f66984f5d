"""Recipes as YAML: every text and every key is read back as it was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.core.errors import InputError
from engine.jobs.kubernetes.kinds import to_yaml
from engine.recipe.recipe import Recipe
from engine.recipe.yaml_text import parse_yaml, write_yaml

ODD = "\x85\u2028\u2029\ufeff\r\n\t\x00\x1b\x7f\xa0\u200b\u202e ab:#'\"\\-?[]{},&*!|>%@`~\U0001f600\U0010ffff"
TEXTS = st.text(st.sampled_from(ODD), max_size=12) | st.text(st.characters(exclude_categories=["Cs"]))
LONG = st.lists(TEXTS, min_size=20, max_size=30).map(" ".join)
SMALL = {"name": "small", "source": {"path": "x.csv", "label": "y"}, "output": {"path": "out"}}


@given(TEXTS | LONG)
@example("\x85")
@example("&\x85 b")
def test_every_text_and_key_is_read_back(text: str) -> None:
    value = {text: [text, {text: text}], "again": [text]}
    assert parse_yaml(write_yaml(value, "r"), "r") == value
    assert parse_yaml(to_yaml([{"data": write_yaml(value, "r"), "name": text}], "r"), "r") == {
        "data": write_yaml(value, "r"),
        "name": text,
    }


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"])
def test_line_ends_of_unicode_are_no_blanks(end: str) -> None:
    """U+0085 in the name of a column was a blank on the cluster, where no column had this name."""
    value = {**SMALL, "source": {"path": "x.csv", "label": f"y{end}", "exclude": [f"a{end}b", end]}}
    sent = parse_yaml(Recipe.parse(value).to_yaml(), "sent")
    assert sent == value


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"name": "a\ud800"}, "name"),
        ({"operators": {"encode": {"columns": {"\udfff": "numeric"}}}}, "operators.encode.columns: a key"),
        ({"source": {"path": "x", "label": "y", "missing": ["n", "\udc85"]}}, "source.missing"),
    ],
)
def test_half_a_character_is_refused_with_its_key(change: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=rf"^recipe: {key}: a text holds U\+D[0-9A-F]{{3}}, half of a char"):
        Recipe.parse(SMALL | change)
    assert Recipe.parse(SMALL | {"source": {"path": "\U00010000", "label": "y"}}).source.path == "\U00010000"
