"""The nearest known name, and values in a few characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.foundation.messages import closest, cut, first_of, nearest, shorten


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("grapes", ["grasp", "kmeans"], "grasp"),
        ("AGE", ["edge", "Age"], "Age"),
        ("age", ["AGE", "Age"], "AGE"),
        ("hours_per_wek", iter(["hours", "hours_per_week"]), "hours_per_week"),
        ("xyz", ["grasp"], None),
        ("x", [], None),
    ],
)
def test_the_closest_name_whatever_its_case(name: str, known: list[str], found: str | None) -> None:
    assert closest(name, known) == found


def test_a_message_names_it_or_says_nothing() -> None:
    assert nearest("grapes", ["grasp"]) == " Did you mean 'grasp'?"
    assert nearest("grapes", ["x"]) == ""


@given(st.text(max_size=200), st.integers(10, 90))
def test_values_are_short(value: str, most: int) -> None:
    text = shorten(value, most)
    assert len(text) <= most
    assert text == repr(value) if len(repr(value)) <= most else text == repr(value)[: most - 3] + "..."


@given(st.text(max_size=90), st.integers(1, 90))
def test_a_text_is_cut_to_its_length_and_no_shorter(text: str, most: int) -> None:
    found = cut(text, most)
    assert len(found) == min(len(text), most)
    assert found == text or (found[-1] == "…" and text.startswith(found[:-1]) and len(text) > most)


def test_the_first_names_and_the_number_of_the_others() -> None:
    assert first_of(["a", "b", "c"], 3) == "a, b, c"
    assert first_of(["a", "b", "c", "d"], 3) == "a, b, c and 1 more"
    assert first_of(["a", "b", "c"], 1, "; ") == "a and 2 more"
    assert first_of([], 2) == ""
