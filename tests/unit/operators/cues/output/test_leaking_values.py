"""Values whose rows are nearly all of one class are named as leaks of the label may be."""

from __future__ import annotations

from typing import Any

from operators.cues.output.leaking_values import leaking_values
from operators.cues.output.report import cue_section
from operators.report import Finding
from tests.unit.operators.cues.output.test_cue_report import FOUND, SUSPECT


def found(share: float, by_class: dict[str, float], rows: int = 5065, answer: str = "open") -> dict[str, Any]:
    suspect = {
        **SUSPECT,
        "slice": "stay = short",
        "share": share,
        "share_by_class": by_class,
        "answer": answer,
    }
    return {**FOUND, "sample_rows": rows, "suspects": [suspect]}


def test_a_value_of_one_class_is_named_with_the_remedy() -> None:
    """As of ``support2``, whose follow-up of less than two months nobody survives."""
    (said,) = leaking_values(found(0.342, {"alive": 0.0, "dead": 0.505}))
    assert said.startswith(
        "All 1,732 sampled rows with `stay = short` are of the class 'dead'. If this value is"
    )
    assert "leave its column out (source.exclude)" in said
    section = cue_section(found(0.342, {"alive": 0.0, "dead": 0.505}))
    assert said in section.content
    assert Finding(said, "warning") in section.findings
    (nearly,) = leaking_values(found(0.25 * 0.01 + 0.75 * 0.4, {"no": 0.01, "yes": 0.4}))
    assert nearly.startswith("99.2% of the 1,532 sampled rows")


def test_other_values_are_not_named() -> None:
    assert not leaking_values(found(0.342, {"alive": 0.1, "dead": 0.463}))
    assert not leaking_values(found(0.342, {"alive": 0.0, "dead": 0.505}, answer="legitimate"))
    assert not leaking_values(found(0.342, {"alive": 0.0, "dead": 0.505}, rows=100)), "few rows"
    assert not leaking_values(found(0.097, {"rare": 0.0, "common": 0.1})), "97 % of all rows are of the class"
    assert not leaking_values(found(0.25, {"a": 0.25, "b": 0.25}))
    assert not leaking_values(found(0.1, {"a": 0.3, "b": 0.001, "c": 0.0})), "the classes' rows are not known"
