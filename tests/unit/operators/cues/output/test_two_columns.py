"""A second column that says the same of the rows is named as the reason why nothing is balanced."""

from __future__ import annotations

from typing import Any

import pytest

from operators.cues.output.two_columns import two_columns_text
from operators.cues.output.verdict import verdict


def suspect(name: str, share: float, inside: list[Any], outside: list[Any], **more: Any) -> dict[str, Any]:
    found = {"feature": name, "slice": f"{name} = yes", "reference": name, "answer": "open", "share": share}
    accuracies = {
        "accuracy_inside": dict(zip("ab", inside, strict=True)),
        "accuracy_outside": dict(zip("ab", outside, strict=True)),
    }
    return {**found, **accuracies, "strength": 0.9, "gain": 0.6, "cost": 0.1, **more}


FIRST = suspect("accident", 0.48, [0.0, 0.99], [1.0, 0.03])
MIRROR = suspect("insurance case", 0.51, [0.99, 0.42], [0.43, 0.99], strength=0.6)


def found_with(*suspects: dict[str, Any], weakest: str = "slice_support") -> dict[str, Any]:
    return {
        "suspects": [*suspects],
        "weakest": weakest,
        "reason": "",
        "gate": 0.0,
        "part": 0.0,
        "evidence": {},
        "slice_blend": 0.0,
        "class_strength": 1.0,
    }


def test_a_mirror_is_named_in_place_of_other_columns_that_support_nothing() -> None:
    said = '`"insurance case"` says nearly the same of the rows as `accident`'
    found = found_with(FIRST, MIRROR)
    assert two_columns_text(found).startswith(said)
    assert f"({said}, so that the data cannot tell which of them, if any, is the shortcut)" in verdict(found)
    assert "do not support that the column on which models lean" in verdict(found_with(FIRST))


@pytest.mark.parametrize(
    "other",
    [
        {**MIRROR, "strength": 0.3},
        {**MIRROR, "share": 0.2},
        {**MIRROR, "answer": "legitimate"},
        {**MIRROR, "feature": "x[3]"},
        {**MIRROR, "reference": "accident"},
        suspect("age", 0.51, [0.99, 0.99], [0.43, 0.42]),
        suspect("blank", 0.51, [0.99, None], [0.43, 0.99]),
    ],
    ids=["weak", "other rows", "answered", "entry", "itself", "other classes", "no rows"],
)
def test_other_columns_are_no_mirror(other: dict[str, Any]) -> None:
    assert two_columns_text(found_with(FIRST, other)) == ""
    assert two_columns_text(found_with(FIRST, MIRROR, weakest="cost")) == ""
