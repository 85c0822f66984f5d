"""Names and values of strangers as they are written into recipes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from operators.yaml_text import inline_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=5))
def test_one_line_means_the_value(value: Any) -> None:
    line = inline_yaml([value])
    assert line.isprintable()
    assert yaml.safe_load(line) == [value]


@pytest.mark.parametrize(
    "sign", ["\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\x85", "\x1b", "\U000e0041"]
)
def test_marks_that_turn_or_hide_text_are_escapes(sign: str) -> None:
    line = inline_yaml({"spurious": [f"age{sign}", {f"a{sign}": 1}]})
    assert line.isascii()
    assert yaml.safe_load(line) == {"spurious": [f"age{sign}", {f"a{sign}": 1}]}
