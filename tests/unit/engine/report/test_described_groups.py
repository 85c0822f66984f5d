"""The report's part on groups in words: what is shown, and when there is nothing to say."""

from __future__ import annotations

from typing import Any

from engine.report.described_groups import describe_groups, term_lines


def entry(class_name: str, group: int, rule: dict[str, Any] | None, central: list[int]) -> dict[str, Any]:
    return {
        "class": class_name,
        "group": group,
        "description": "age < 30" if rule else "no rule",
        "rule": rule,
        "terms": [],
        "central_rows": central,
    }


RULE = {"coverage": 0.8, "purity": 0.5, "lift": 2.0, "checked": 300}


def test_groups_rules_and_central_rows_are_shown() -> None:
    groups = [entry("a", 0, RULE, [4, 5]), entry("a", 1, None, []), entry("a", -1, None, [9])]
    shortcut = {"slice": "x[1] > 0", "also": ["x[2] > 1"], "description": "hours < 3"}
    found = describe_groups({"groups": groups, "slices": [shortcut]})
    assert [(one.name, one.text, one.noise) for one in found.groups] == [
        ("0", "age < 30", False),
        ("1", "no rule", False),
        ("noise", "no rule", True),
    ]
    assert found.checked == 300
    assert [example.row_ids for example in found.central] == [[4, 5]]
    assert found.slices == [("x[1] > 0, x[2] > 1", "hours < 3")]


def test_classes_that_are_not_split_are_not_described() -> None:
    whole = describe_groups({"groups": [entry("a", 0, None, [1]), entry("b", 1, None, [2])], "slices": []})
    assert (whole.groups, whole.central) == ([], [])
    assert describe_groups(None).groups == []


def test_terms_are_listed_by_column_with_their_frequencies() -> None:
    terms = [
        {"column": "note", "term": "refund", "in_group": 0.5, "in_rest_of_class": 0.125},
        {"column": "title", "term": "late", "in_group": 0.2, "in_rest_of_class": 0.1},
    ]
    first, second = term_lines(terms)
    assert first.replace("\u00a0", " ") == "more often in note: refund (50 %, else 12.5 %)"
    assert second.startswith("more often in title: late")
