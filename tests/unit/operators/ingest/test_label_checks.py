"""Faults of a label that its counts show, with their remedies."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from operators.ingest.adaptor import Ingest
from operators.ingest.label_checks import LabelCounts, check_labels, look_alike, merging_map
from operators.ingest.params import IngestParams


def kinds(counts: dict[Any, int], missing: int = 0, **settings: Any) -> list[str]:
    return [finding.kind for finding in check_labels(LabelCounts("y", counts, missing), **settings)]


def text(counts: dict[Any, int], missing: int = 0, **settings: Any) -> str:
    (finding,) = check_labels(LabelCounts("y", counts, missing), **settings)
    return finding.text


ADULT = {" <=50K": 24720, " <=50K.": 12435, " >50K": 7841, " >50K.": 3846}


def test_adults_two_files_look_like_two_classes() -> None:
    said = text(ADULT)
    assert "' <=50K' (24,720 rows) and ' <=50K.' (12,435 rows)" in said
    assert "source.strip: true and source.label_map: {<=50K.: <=50K, '>50K.': '>50K'}" in said
    assert merging_map(LabelCounts("y", ADULT, 0), strip=True) == {"<=50K.": "<=50K", ">50K.": ">50K"}


def test_spaces_alone_need_strip_and_no_map() -> None:
    said = text({" a": 100, "a": 200, "b": 300})
    assert "look like one class" in said
    assert said.endswith("set source.strip: true.")
    assert kinds({" a": 100, " b": 200}) == ["spaces"]


def test_case_is_joined_to_the_frequent_spelling() -> None:
    assert look_alike(["Yes", "yes", "no", "No.", 3]) == [["Yes", "yes"], ["No.", "no"]]
    assert merging_map(LabelCounts("y", {"Yes": 5, "yes": 90, "no": 80}, 0)) == {"Yes": "yes"}


def test_two_spellings_of_one_letter_look_alike() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    said = text({composed: 100, decomposed: 90})
    assert "'caf\u00e9' (100 rows)" in said
    assert "'cafe\\u0301' (90 rows)" in said
    assert merging_map(LabelCounts("y", {composed: 100, decomposed: 90}, 0)) == {decomposed: composed}
    assert look_alike(["\uff21", "A"]) == [["A", "\uff21"]]


def test_values_of_marks_alone_do_not_look_alike() -> None:
    assert kinds({".": 100, ",": 100, ";": 100}) == []


def test_a_class_of_six_rows_is_named_with_its_weight() -> None:
    counts = {"a": 2000, "b": 925, "c": 6}
    said = text(counts)
    assert "'c' of the label 'y' has 6 of 2,931 rows" in said
    assert "about 0.7% of all weight, and each of its rows weighs up to 3.5 times the mean row" in said
    assert "less where fewer of its rows are in training or held-out rows favour less balance" in said
    assert "source.filter: [[y, '!=', c]]" in said
    assert "class balance" not in text(counts, balanced=False)
    assert kinds({"a": 50, "b": 50}) == []
    assert kinds({"a": 9, "b": 8}) == []  # a small table, not a rare class
    sampled = LabelCounts("y", counts, 0, is_exact=False)
    assert check_labels(sampled) == []  # six rows of a sample are many of all


@pytest.mark.parametrize("name", ["y: 1", "a, b", "{x}", "yes", "#1"])
def test_filters_of_remedies_are_yaml_whatever_the_name_of_the_label(name: str) -> None:
    rare = check_labels(LabelCounts(name, {"a": 2000, "no": 6}, 0))[0].text
    missing = check_labels(LabelCounts(name, {"a": 100, "b": 100}, 7))[0].text
    filters = [text.partition("source.filter: ")[2].partition("]]")[0] + "]]" for text in (rare, missing)]
    assert [yaml.safe_load(one) for one in filters] == [[[name, "!=", "no"]], [[name, "!=", None]]]


def test_missing_labels_need_a_decision() -> None:
    assert "7 of 207 rows (3.38%) have no label 'y'" in text({"a": 100, "b": 100}, 7)
    assert "source.max_error_rate: 0.04" in text({"a": 100, "b": 100}, 7)
    assert kinds({"a": 100, "b": 100}, 7, tolerated=0.05) == []


@pytest.mark.parametrize(
    "counts",
    [{n / 7: 3 for n in range(100)}, dict.fromkeys(range(30), 5), {f"id{n}": 1 for n in range(200)}],
)
def test_quantities_and_names_are_no_classes(counts: dict[Any, int]) -> None:
    (finding,) = check_labels(LabelCounts("y", counts, 0))
    assert finding.fatal
    assert finding.kind == "quantity"
    assert kinds(counts, classes=[*counts]) in ([], ["rare"])


def test_many_classes_with_many_rows_are_classes() -> None:
    assert kinds(dict.fromkeys(range(1000), 100)) == []
    assert kinds({float(n): 100 for n in range(25)}) == []


def test_one_value_is_fatal_unless_it_is_a_sample() -> None:
    for counts in ({"a": 9}, {}):
        (finding,) = check_labels(LabelCounts("y", counts, 1))
        assert (finding.kind, finding.fatal) == ("one_class", True)
        sampled = check_labels(LabelCounts("y", counts, 0, is_exact=False))
        assert [(f.kind, f.fatal) for f in sampled] == [("one_class", False)]


def test_numbers_among_words_are_named() -> None:
    said = text({"1": 400, "0": 300, "yes": 60})
    assert "two types: numbers such as '0' (300 rows), '1' (400 rows)" in said.replace(
        "'1' (400 rows), '0' (300 rows)", "'0' (300 rows), '1' (400 rows)"
    )
    assert "words such as 'yes' (60 rows)" in said
    assert kinds({"1": 400, "0": 300}) == []


def test_the_report_names_faults_of_the_label(tmp_path: Path) -> None:
    state = {"classes": ["a", "a.", "b"], "counts": [500, 400, 6], "label": "y"}
    (tmp_path / "classes.json").write_text(json.dumps(state))
    context: Any = SimpleNamespace(state=tmp_path)
    section = Ingest(IngestParams(label="y", features=None)).report_section(context)
    assert section is not None
    assert [finding.severity for finding in section.findings] == ["warning", "warning"]
    alike = ", counted in the rows to learn from, look like one class: 'a' (500 rows) and 'a.' (400 rows)"
    assert alike in section.findings[0].text
    state["counts"] = [500, 0, 600]
    (tmp_path / "classes.json").write_text(json.dumps(state))
    assert Ingest(IngestParams(label="y", features=None)).report_section(context) is None
