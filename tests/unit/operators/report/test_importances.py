"""Importance by source column in words, in a table and as a picture."""

from __future__ import annotations

from typing import Any

from operators.report.importances import (
    SHOWN,
    draw,
    explanation,
    importance_metrics,
    shown_columns,
    summary_sentences,
    table_columns,
    table_rows,
)


def entry(column: str, mean: float, worst: float, margin: float = 0.01) -> dict[str, Any]:
    return {
        "column": column,
        "balanced_accuracy": {"mean": mean, "std": 0.001, "margin": margin},
        "accuracy": {"mean": mean, "std": 0.001, "margin": margin},
        "worst_group_accuracy": {"mean": worst, "std": 0.001, "margin": margin},
    }


def record(*entries: dict[str, Any]) -> dict[str, Any]:
    base = {"accuracy": 0.9, "balanced_accuracy": 0.85, "worst_group_accuracy": 0.25}
    return {"rows": 1000, "repeats": 5, "baseline": base, "columns": list(entries)}


def test_what_the_worst_group_needs_and_what_harms_it() -> None:
    found = record(entry("badge", 0.2, -0.4), entry("age", 0.1, 0.06), entry("plan", 0.004, 0.009))
    assert summary_sentences(found) == [
        "Balanced accuracy rests most on badge (20.0 points lost), age (10.0).",
        "The worst group rests most on age (6.0 points lost).",
        "The worst group gains where the values of badge (40.0 points gained) are shuffled, while balanced "
        "accuracy falls. This column may be a shortcut.",
    ]


def test_losses_are_told_in_parts_of_the_unshuffled_loss() -> None:
    def added(column: str, loss: float, worst: float) -> dict[str, Any]:
        entry = {"loss": loss, "worst_group_loss": worst}
        return {"column": column, **{s: {"mean": m, "std": 0.1, "margin": 1.0} for s, m in entry.items()}}

    base = {"loss": 200.0, "worst_group_loss": 400.0}
    columns = [added("area", 100.0, 40.0), added("badge", 50.0, -80.0), added("note", 0.5, 0.5)]
    found = {"rows": 1000, "repeats": 5, "baseline": base, "columns": columns}
    assert summary_sentences(found) == [
        "The mean loss rests most on area (50.0 % more), badge (25.0).",
        "The worst group rests most on area (10.0 % more).",
        "The worst group gains where the values of badge (20.0 % less) are shuffled, while the mean loss "
        "rises. This column may be a shortcut.",
    ]
    assert table_columns(found) == ("source column", "mean loss", "loss of the worst group")
    assert table_rows(found)[1] == ("badge", "25.0 ± 0.5 %", "-20.0 ± 0.2 %")
    assert "Unshuffled: mean loss 200, of the worst group 400." in explanation(found, "the model")
    assert importance_metrics(found)["importance.worst_group_loss.badge"] == -80.0
    exact = {**found, "baseline": {"loss": 0.0, "worst_group_loss": 0.0}}
    assert table_rows(exact)[2] == ("note", "50.0 ± 100.0 %", "50.0 ± 100.0 %")
    assert draw(found).axes[0].get_legend_handles_labels()[1] == ["mean loss", "loss of the worst group"]


def test_what_chance_explains_is_not_told() -> None:
    found = record(entry("a", 0.02, 0.2, margin=0.3), entry("b", 0.0, -0.2, margin=0.3))
    assert summary_sentences(found, "class") == [
        "Balanced accuracy clearly rests on no single column.",
        "For the worst class no column has a change beyond its margin; the largest is that of a (20.0 ± 30.0 "
        "points lost).",
    ]
    harmed = record(entry("a", 0.02, 0.01, margin=0.3), entry("badge", 0.4, -0.25, margin=0.3))
    assert summary_sentences(harmed)[1] == (
        "For the worst group no column has a change beyond its margin; the largest is that of badge (25.0 ± "
        "30.0 points gained)."
    )


def test_changes_of_nothing_are_told_without_a_name() -> None:
    found = record(entry("a", 0.2, 0.001), entry("b", 0.1, -0.004, margin=0.001))
    assert summary_sentences(found)[1:] == [
        "For the worst group each column changes less than half a point of accuracy."
    ]


def test_a_clear_gain_of_the_worst_group_is_told_also_where_the_mean_does_not_rest_on_the_column() -> None:
    found = record(entry("age", 0.2, 0.005, margin=0.006), entry("badge", 0.001, -0.3))
    assert summary_sentences(found)[1:] == [
        "The worst group gains where the values of badge (30.0 points gained) are shuffled; balanced "
        "accuracy does not clearly fall."
    ]


def test_the_table_has_margins_and_no_negative_zero() -> None:
    found = record(entry("badge", 0.2, -0.4), entry("age", -0.0001, 0.0))
    assert table_columns(found, "class") == ("source column", "balanced accuracy", "accuracy", "worst class")
    assert table_rows(found) == [
        ("badge", "20.0 ± 1.0 %", "20.0 ± 1.0 %", "-40.0 ± 1.0 %"),
        ("age", "0.0 ± 1.0 %", "0.0 ± 1.0 %", "0.0 ± 1.0 %"),
    ]
    text = explanation(found, "the model, on validation rows,")
    assert "balanced accuracy 85 %, accuracy 90 %, worst group 25 %" in text


def test_of_many_columns_those_that_matter_to_either_are_shown() -> None:
    entries = [entry(f"c{i:02}", 0.5 - i / 100, 0.0) for i in range(40)] + [entry("$rare$", -0.01, 0.9)]
    shown = shown_columns(record(*entries))
    assert [one["column"] for one in shown] == [*(f"c{i:02}" for i in range(SHOWN - 1)), "$rare$"]
    axes = draw(record(*entries)).axes[0]
    labels = axes.get_yticklabels()
    assert [text.get_text() for text in labels][::-1] == [one["column"] for one in shown]
    assert not labels[0].get_parse_math()


def test_metrics_have_names_that_mlflow_takes_and_none_hides_another() -> None:
    from mlflow.utils.validation import _validate_metric_name

    names = [
        "age",
        "Age",
        "a/b",
        "a b",
        "a=b",
        "a_b",
        "..",
        "new\nline",
        "年齢",
        "収入",
        "l" * 300,
        "l" * 299,
    ]
    found = importance_metrics(record(*(entry(name, 0.1 + i, -i) for i, name in enumerate(names))))
    assert len(found) == 2 * len(names) == len({key.lower() for key in found})
    for key in found:
        _validate_metric_name(f"cues.{key}")
        assert "/" not in key
    assert found["importance.balanced_accuracy.Age"] == 1.1
    assert found["importance.worst_group_accuracy.age_2"] == 0.0
    keys = [key for key in found if ".balanced_accuracy.a_b" in key]
    assert {key: found[key] for key in sorted(keys)} == {
        "importance.balanced_accuracy.a_b": 2.1,
        "importance.balanced_accuracy.a_b_2": 4.1,
        "importance.balanced_accuracy.a_b_3": 5.1,
    }
    assert importance_metrics(None) == importance_metrics({"reason": "one column"}) == {}


def test_a_name_of_several_lines_stays_on_one() -> None:
    (first, *_) = summary_sentences(record(entry("new\nline", 0.2, 0.0), entry("\n", 0.1, 0.0)))
    assert first == "Balanced accuracy rests most on new line (20.0 points lost), '\\n' (10.0)."


def test_columns_that_are_equal_to_another_are_named_beside_it() -> None:
    badge = entry("badge", 0.2, -0.4) | {"also": ["no_badge"]}
    found = record(badge, entry("age", 0.1, 0.06))
    assert "rests most on badge (also no_badge; 20.0 points lost), age (10.0)." in summary_sentences(found)[0]
    assert table_columns(found)[-1] == "equal columns"
    assert [row[-1] for row in table_rows(found)] == ["also no_badge", ""]
    assert [text.get_text() for text in draw(found).axes[0].get_yticklabels()] == [
        "age",
        "badge (also no_badge)",
    ]
    assert table_columns(record(entry("age", 0.1, 0.06)))[-1] == "worst group"
