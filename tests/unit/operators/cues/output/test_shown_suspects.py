"""Which suspects are asked about, and how they are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from operators.cues.output.listing import read_suspects
from operators.cues.output.report import accuracy_by_class, choice_items, cue_section
from operators.cues.output.shown_suspects import answer_text, asked_suspects, sentence_on_entries, slice_text
from operators.cues.output.verdict import verdict
from operators.report import ReportTable
from tests.unit.operators.cues.output.test_cue_report import FOUND, SUSPECT

WEAK: dict[str, Any] = {**SUSPECT, "strength": 0.06, "gain": 0.15, "cost": 0.02}


@pytest.mark.parametrize(
    ("changed", "asked"),
    [
        ({}, False),
        ({"stands_out": True}, True),
        ({"strength": 0.1}, True),
        ({"strength": 0.1, "gain": 0.09}, False),
        ({"strength": 0.1, "gain": 0.0, "leads": True}, True),
        ({"strength": 0.09, "leads": True}, False),
        ({"strength": 0.24, "cost": 0.16}, False),
        ({"strength": 0.25, "gain": 0.0}, True),
        ({"strength": 0.25, "answer": "legitimate"}, False),
    ],
)
def test_a_suspect_is_asked_about_if_that_is_worth_it(changed: dict[str, Any], asked: bool) -> None:
    suspect = WEAK | changed
    found = {**FOUND, "part": 0.0, "suspects": [suspect]}
    assert bool(asked_suspects(found)) == asked
    assert answer_text(suspect, found) == (
        "weak" if suspect["answer"] == "open" and not asked else suspect["answer"]
    )


@pytest.mark.parametrize("part", [0.0, 0.8])
def test_entries_of_vectors_whose_balance_wins_nothing_are_weak(part: float) -> None:
    """Of pictures eight entries without a meaning were asked about, each with a gain of 0."""
    idle = {**SUSPECT, "feature": "x[671]", "slice": "x[671] > 0.02", "strength": 0.4, "gain": 0.009}
    found = {**FOUND, "part": part, "suspects": [idle]}
    assert answer_text(idle, found) == "weak"
    assert asked_suspects(found) == []
    assert "x[671]` under `spurious`" not in "".join(filter(None, verdict(found)))
    for other in (idle | {"gain": 0.01}, idle | {"feature": "x"}):
        assert answer_text(other, {**found, "suspects": [other]}) == "open"


def test_a_weak_suspect_keeps_its_buttons_and_is_told_to_need_no_answer() -> None:
    found = {**FOUND, "part": 0.0, "suspects": [WEAK]}
    section = cue_section(found)
    (table,) = (item for item in section.content if isinstance(item, ReportTable))
    assert table.rows[0][-1] == "weak"
    assert any("weak: no answer is needed" in str(item) for item in section.content)
    assert [item.value for item in choice_items(found)] == ["PAY_0"]
    assert "`PAY_0" not in verdict(found)


def test_the_strongest_suspect_of_robust_weights_is_asked_about() -> None:
    found = {**FOUND, "part": 0.8, "suspects": [WEAK, {**WEAK, "slice": "b > 1"}]}
    assert [one["slice"] for one in asked_suspects(found)] == ["PAY_0 > 1.5"]


def test_what_is_balanced_without_an_answer_is_no_question() -> None:
    """A report asked whether a column is a shortcut that its weights had balanced."""
    owner = {**SUSPECT, "slice": "owner = yes", "reference": "owner", "balanced": True}
    found = {**FOUND, "part": 1.0, "balanced_columns": ["owner"], "suspects": [owner, WEAK]}
    assert [answer_text(one, found) for one in found["suspects"]] == ["balanced (not answered)", "weak"]
    assert asked_suspects(found) == []
    section = cue_section(found)
    _, finding = section.findings
    assert finding.severity == "information"
    assert "The weights balance owner = yes (25% of the rows) against the label. If it is" in finding.text
    assert any("though no answer names it. Only if it is honest" in str(item) for item in section.content)
    assert [item.value for item in choice_items(found)] == ["owner", "PAY_0"]
    answered = {**found, "suspects": [{**owner, "answer": "legitimate"}]}
    assert answer_text(answered["suspects"][0], answered) == "legitimate"


def test_columns_that_say_the_same_stand_beside_a_slice() -> None:
    assert slice_text(SUSPECT) == "PAY_0 > 1.5"
    assert slice_text({**SUSPECT, "also": ["a", "b"]}) == "PAY_0 > 1.5; also a, b"
    assert slice_text({**SUSPECT, "also": [*"abcde"]}) == "PAY_0 > 1.5; also a, b, c and 2 more"


def test_of_many_classes_the_lowest_are_named() -> None:
    figures = dict(zip("abcdef", (0.9, None, 0.2, 0.5, 0.1, 0.7), strict=True))
    assert accuracy_by_class(figures) == "lowest e: 0.10, c: 0.20, d: 0.50, f: 0.70"


def test_an_entry_of_a_vector_is_said_to_have_no_meaning_in_words() -> None:
    entries = [
        {**SUSPECT, "feature": f"x[{n}]", "slice": f"x[{n}] > 0.5", "reference": f"x[{n}]"} for n in (9, 4)
    ]
    found = {**FOUND, "part": 1.0, "suspects": entries, "evidence": {"agreement": 0.9, "slice_rival": 0.95}}
    assert sentence_on_entries(found).startswith("Each of `x[9]` and `x[4]` is a direction of the vector")
    said = verdict(found)
    assert "suspected about equally" not in said
    assert "`x[9] > 0.5`, which has no meaning in words: look at the report's example rows" in said
    section = cue_section(found)
    assert sentence_on_entries(found) in section.content
    assert "look at the report's example rows" in section.findings[-1].text
    assert not sentence_on_entries({**found, "suspects": [SUSPECT | {"feature": "PAY_0"}]})


@pytest.mark.parametrize("part", [0.8, None])
def test_the_list_of_an_older_version_is_read(part: float | None, tmp_path: Path) -> None:
    older = {("gate" if key == "part" else key): value for key, value in FOUND.items()} | {"gate": part}
    (tmp_path / "suspects.json").write_text(json.dumps(older))
    assert read_suspects(tmp_path) == {**FOUND, "part": part}
