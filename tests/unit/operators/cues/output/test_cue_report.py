"""The section of ``cues`` in the report, from the content of ``suspects.json``."""

from __future__ import annotations

from typing import Any

import pytest

from engine.training.page import strength_sentence
from operators.cues.output.report import choice_items, cue_section
from operators.cues.output.shown_suspects import few_rows_sentence
from operators.cues.output.verdict import WEAKEST, summary, verdict
from operators.cues.search.ramps import RAMPS
from operators.report import RecipeChoices, ReportTable

SUSPECT: dict[str, Any] = {
    "slice": "PAY_0 > 1.5",
    "reference": "PAY_0",
    "answer": "open",
    "share": 0.25,
    "accuracy_inside": {"no": 0.5, "yes": None},
    "accuracy_outside": {"no": 0.9, "yes": 0.8},
    "gain": 0.1,
    "cost": 0.02,
    "strength": 0.6,
}
FOUND: dict[str, Any] = {
    "reason": "",
    "part": 0.8,
    "evidence": {"agreement": 0.9},
    "class_strength": 1.0,
    "weakest": "agreement",
    "slice_blend": 0.0,
    "spurious": [],
    "legitimate": [],
    "suspects": [SUSPECT],
}


def test_the_section_says_whose_weights_it_speaks_of() -> None:
    section = cue_section(FOUND, beside_cues="class_strength: 0")
    assert str(section.content[0]).endswith("as operators.weights says `class_strength: 0`.")
    assert "may be others, as operators.weights says class_strength: 0." in section.findings[0].text
    assert section.content[1:] == cue_section(FOUND).content


def test_a_strong_suspect_is_a_warning_with_buttons() -> None:
    section = cue_section(FOUND)
    assert "follow the robust ones by 80%, and class balance for the rest" in str(section.content[0])
    (table,) = (item for item in section.content if isinstance(item, ReportTable))
    expected = (
        "PAY_0 > 1.5",
        "25.0%",
        "no: 0.50, yes: –",
        "no: 0.90, yes: 0.80",
        "+0.100",
        "+0.020",
        "0.60",
        "open",
    )
    assert tuple(table.rows[0]) == expected
    (choices,) = (item for item in section.content if isinstance(item, RecipeChoices))
    assert [(item.label, item.value, item.chosen) for item in choices.items] == [("PAY_0 > 1.5", "PAY_0", "")]
    said, finding = section.findings
    assert said.text == summary(FOUND)
    assert finding.severity == "warning"
    assert "PAY_0 > 1.5 (25% of the rows)" in finding.text


def test_wrong_labels_and_limits_are_said_ahead_of_the_figures() -> None:
    curve = curve_of((0.0, 0.5, 0.9), (1.0, 0.4, 0.8), (1.5, 0.6, 0.89), published=1.5, base=0)
    counted = {"no": [200, 50.0], "yes": [100, 90.0]}
    found = {**FOUND, "blend": 0.8, "trust": [1.0, 0.6, 0.0], "wrong_labels": counted, "trade_off": curve}
    said = verdict(found)
    assert "about 47% of the sampled rows that break it look like rows of other classes" in said
    assert "(90% of 100 rows of class 'yes', 25% of 200 rows of class 'no')" in said
    assert "the factors are shrunk by 40%" in said
    assert said.index("shrunk by") < said.index("labels are wrong") < said.index("On held-out rows")
    assert "leave nothing of that but class balance" in verdict({**found, "trust": [0.0, 0.0]})
    plain = verdict({**found, "trust": [1.0, 0.97], "wrong_labels": {}})
    assert "shrunk" not in plain
    assert "wrong labels" not in plain


def test_why_a_column_of_many_classes_is_balanced_in_part_is_said() -> None:
    counted = {"no": [200, 50.0], "yes": [100, 90.0]}
    evidence = {**(FOUND["evidence"] or {}), "classes": 3}
    found = {**FOUND, "part": 0.75, "balanced_columns": "camera", "evidence": evidence}
    assert "by 75% (with wrong labels more of it loses as often" in verdict(
        {**found, "wrong_labels": counted}
    )
    assert "wrong labels" not in verdict(found)
    two = {**found, "evidence": {**evidence, "classes": 2}, "wrong_labels": counted}
    assert "by 75% (the evidence allows no more). " in verdict(two)


def test_answers_of_today_are_items_as_the_recipe_writes_them() -> None:
    answered = {**SUSPECT, "answer": "spurious"}
    found = {
        **FOUND,
        "part": None,
        "suspects": [answered],
        "spurious": [{"column": "PAY_0", "cut": 1.5}],
        "legitimate": [["a", "b"]],
    }
    items = [(item.value, item.chosen) for item in choice_items(found)]
    assert items == [("{column: PAY_0, cut: 1.5}", "spurious"), ("[a, b]", "legitimate")]
    section = cue_section(found)
    assert "that the recipe names" in str(section.content[0])
    assert [one.text for one in section.findings] == [summary(found)]
    priced = cue_section({**found, "blend": 0.5, "named_cost": 0.021})
    assert "by 50%, which costs 0.021 of balanced accuracy on held-out rows." in str(priced.content[0])
    dear = cue_section({**found, "blend": 0.85, "named_cost": 0.12})
    assert "costs 0.120" in str(dear.content[0])
    assert "if a named column is honest signal after all" in str(dear.content[0])
    both = cue_section({**found, "blend": 0.85, "named_cost": 0.0, "searched_part": 0.5})
    assert "finds a shortcut as well, which has 50% of the robust weights" in str(both.content[0])


def test_a_named_shortcut_that_costs_too_much_is_said_not_to_be_balanced() -> None:
    section = cue_section({**FOUND, "part": None, "spurious": ["a"], "blend": 0.0, "named_cost": 0.06})
    assert "would cost more than `max_named_cost` allows" in str(section.content[0])


def test_a_named_shortcut_without_two_sides_is_not_called_balanced() -> None:
    section = cue_section({**FOUND, "part": None, "spurious": ["a"], "undivided": ["a"]})
    assert "names `a` as spurious, but no usable cut" in str(section.content[0])


def curve_of(
    *figures: tuple[float, float, float], published: float, base: int, grouping: str = "shortcut"
) -> dict[str, Any]:
    """Return the record of a curve: figures are (strength, worst accuracy, mean accuracy); ``base``: which of
    them is the baseline."""
    ends = {f"{kind}_{end}": 0.5 for kind in ("mean", "worst") for end in ("low", "high")}
    more = {"worst_group": "class no, breaks", "worst_rows": 90, "effective_share": 0.5}
    points = [
        {"strength": strength, "worst_accuracy": worst, "mean_accuracy": mean, **ends, **more}
        for strength, worst, mean in figures
    ]
    name = "class balance" if points[base]["strength"] else "no weights"
    return {
        "grouping": grouping,
        "pooled": [],
        "points": points,
        "baseline": points[base] | {"name": name},
        "published_strength": published,
    }


@pytest.mark.parametrize(
    ("figures", "published", "base", "grouping", "said"),
    [
        (
            [(0.0, 0.216, 0.894), (1.0, 0.21, 0.89), (1.25, 0.24, 0.877), (2.0, 0.252, 0.821)],
            2.0,
            0,
            "shortcut",
            "cost 0.073 of mean accuracy on rows like these, in most of which the shortcut holds, against no "
            "weights and win 0.036 in the worst group, less than they cost. To lose less, train with "
            "`max_mean_loss: 0.02` (`--set max_mean_loss=0.02` for `rowsieve retrain`): on these rows that "
            "is strength 1.25, with 0.240 in the worst group and 0.877 in all rows.",
        ),
        (
            [(0.0, 0.1, 0.95), (1.0, 0.3, 0.94), (2.0, 0.6, 0.85)],
            2.0,
            1,
            "shortcut",
            "cost 0.090 of mean accuracy on rows like these, in most of which the shortcut holds, against "
            "class balance and win 0.300 in the worst group. No milder weights keep this gain at a loss of "
            "at most 0.02: `max_mean_loss: 0.02` would train at strength 1, with 0.300 in the worst group.",
        ),
        (
            [(0.0, 0.2, 0.98), (0.5, 0.3, 0.97), (1.0, 0.8, 0.85)],
            1.0,
            2,
            "classes",
            "cost 0.130 of mean accuracy against no weights and win 0.600 in the worst class. To lose less, "
            "train with `max_mean_loss: 0.02` (`--set max_mean_loss=0.02` for `rowsieve retrain`): on these "
            "rows that is strength 0.5",
        ),
        (
            [(0.0, 0.6, 0.95), (1.0, 0.5, 0.94), (2.0, 0.58, 0.9)],
            2.0,
            0,
            "shortcut",
            "cost 0.050 of mean accuracy on rows like these, in most of which the shortcut holds, against no "
            "weights and win nothing in the worst group. To lose less",
        ),
    ],
)
def test_weights_that_cost_mean_accuracy_have_their_price_and_the_remedy(
    figures: list[tuple[float, float, float]], published: float, base: int, grouping: str, said: str
) -> None:
    curve = curve_of(*figures, published=published, base=base, grouping=grouping)
    subject = "The published weights are these. They" if grouping == "classes" else "The published weights"
    assert f"{subject} {said}" in verdict({**FOUND, "trade_off": curve})


def test_equal_classes_have_the_same_point_at_strength_0_and_1() -> None:
    """The milder strength was another one than the baseline, with the same figures."""
    curve = curve_of((0.0, 0.07, 0.95), (1.0, 0.07, 0.95), (2.0, 0.7, 0.75), published=2.0, base=0)
    assert "would train at strength 1, with 0.070 in the worst group" in verdict(
        {**FOUND, "trade_off": curve}
    )


def test_a_chosen_strength_that_is_worse_than_class_balance_is_said_to_be_so() -> None:
    """``max_mean_loss`` took a strength whose worst group is below that of class balance without a word."""
    balance = (1.0, 0.8, 0.85)
    curve = curve_of((0.0, 0.2, 0.98), (0.5, 0.3, 0.97), balance, (2.0, 0.82, 0.7), published=2.0, base=2)
    said = (
        "Class balance (strength 1) is better for the worst group: 0.800 against 0.300, with 0.850 against "
        "0.970 in all rows."
    )
    assert verdict({**FOUND, "trade_off": curve}).endswith(said)
    chosen = {"strength": 0.5, "max_mean_loss": 0.02, "end": "cues", "trade_off": {**curve, "rows": 900}}
    assert said in strength_sentence(chosen)
    assert "Class balance" not in strength_sentence({**chosen, "strength": 2.0})


def test_a_price_that_exceeds_the_gain_is_a_warning() -> None:
    dear = curve_of((0.0, 0.216, 0.894), (1.0, 0.21, 0.89), (2.0, 0.252, 0.821), published=2.0, base=0)
    warnings = [f.text for f in cue_section({**FOUND, "trade_off": dear}).findings if f.severity == "warning"]
    assert any("less than they cost" in text for text in warnings)
    dear["group_rows"] = {"class no, follows a": 900, "rows that break a": 540}
    warnings = [f.text for f in cue_section({**FOUND, "trade_off": dear}).findings if f.severity == "warning"]
    assert any(
        "Rows that break a are one group over the classes that have fewer than 50" in w for w in warnings
    )
    dear["group_rows"] = {"class no, follows a": 900, "class no, breaks a": 20}
    warnings = [f.text for f in cue_section({**FOUND, "trade_off": dear}).findings if f.severity == "warning"]
    assert any("cost. " in text and "breaks a (20 rows) is left out" in text for text in warnings)
    worth = curve_of((0.0, 0.1, 0.95), (1.0, 0.3, 0.94), (2.0, 0.6, 0.85), published=2.0, base=1)
    assert all("mean accuracy" not in f.text for f in cue_section({**FOUND, "trade_off": worth}).findings)


@pytest.mark.parametrize("published", [0.0, 1.5, None])
def test_weights_that_cost_little_have_no_price(published: float | None) -> None:
    curve = curve_of((0.0, 0.5, 0.9), (1.0, 0.4, 0.8), (1.5, 0.6, 0.89), published=0.0, base=0)
    curve["published_strength"] = published
    assert "To lose less" not in verdict({**FOUND, "trade_off": curve})


def test_shortcuts_without_two_sides_hide_neither_the_others_nor_what_the_search_finds() -> None:
    curve = curve_of((0.0, 0.5, 0.9), (1.0, 0.4, 0.8), (1.5, 0.6, 0.89), published=1.5, base=0)
    named = {**FOUND, "part": None, "blend": 0.85, "named_cost": 0.01, "trade_off": curve}
    both = verdict({**named, "spurious": ["a", "b"], "undivided": ["a"]})
    assert "names `a` as spurious, but no usable cut" in both
    assert "The others are balanced against the label by 85%, which costs 0.010 of balanced" in both
    assert "With the published weights (strength 1.5)" in both
    kept = verdict({**named, "spurious": ["a", "b"], "undivided": ["a"], "kept": ["c"]})
    assert "0.010 of balanced accuracy on held-out rows. So is what the search finds: `c` (if" in kept
    alone = verdict({**named, "named_cost": -1e-4, "spurious": ["a"], "undivided": ["a"], "kept": ["c", "d"]})
    assert "What the search finds is balanced against the label by 85%, which costs 0.000 of" in alone
    assert ": `c` and `d` (if that is honest signal, name them under" in alone
    dear = verdict({**named, "named_cost": 0.3, "spurious": ["a"], "undivided": ["a"], "kept": ["c"]})
    assert "by 85%, which costs 0.300 of balanced accuracy on held-out rows: `c` (if" in dear
    none = verdict({**named, "blend": 0.0, "spurious": ["a", "b"], "undivided": ["a"]})
    assert "Even a seventh of the balance" in none
    searched = verdict({**FOUND, "spurious": ["a"], "undivided": ["a"], "trade_off": curve})
    assert searched.endswith(verdict({**FOUND, "trade_off": curve}))
    assert "names `a` as spurious, but no usable cut" in searched
    alone = verdict({**named, "blend": 0.0, "spurious": ["a"], "undivided": ["a"]})
    assert "The weights balance the classes." in alone


def test_the_verdict_names_the_baseline_with_the_figures_of_the_curve() -> None:
    curve = curve_of((0.0, 0.776, 0.97), (1.0, 0.7, 0.965), (1.8, 0.801, 0.95), published=1.8, base=0)
    section = cue_section({**FOUND, "trade_off": curve})
    text = str(section.content[0])
    assert "the better of no weights and class balance is no weights" in text
    assert "0.776, all rows 0.970" in text
    assert "(strength 1.8) the worst group (class no, breaks) has 0.801, all rows 0.950." in text
    assert any(
        "Baseline is the better of no weights and class balance, here no weights" in str(item)
        for item in section.content
    )
    shut = cue_section(
        {**FOUND, "part": 0.0, "class_strength": 0.0, "trade_off": curve | {"published_strength": 0.0}}
    )
    assert "the weights are the same for all rows, as held-out rows" in str(shut.content[0])
    assert "The published weights are these." in str(shut.content[0])


def test_weak_evidence_and_no_suspects_are_said_in_one_sentence() -> None:
    spread = cue_section({**FOUND, "evidence": {"agreement": 0.2}})
    assert "No single feature carries it" in str(spread.content[0])
    partly = cue_section({**FOUND, "part": 0.0, "class_strength": 0.5})
    assert "balance the classes in part" in str(partly.content[0])
    weak = cue_section({**FOUND, "part": 0.0, "suspects": []})
    assert "is weak (no single feature alone explains where models fail)" in str(weak.content[0])
    assert len(weak.content) == 1
    none = cue_section({**FOUND, "reason": "99 rows are fewer than 100", "part": 0.0, "suspects": []})
    assert "No shortcut was searched for (99 rows" in str(none.content[0])


def test_a_column_whose_values_stand_for_the_classes_is_named() -> None:
    text = str(cue_section({**FOUND, "part": 0.75, "balanced_columns": "camera"}).content[0])
    assert "The values of `camera` go with the classes" in text
    assert (
        "the weights balance it against the label by 75% (the evidence allows no more). If it is honest "
        "signal, name it under `legitimate`"
    ) in text
    full = str(cue_section({**FOUND, "part": 1.0, "balanced_columns": "camera"}).content[0])
    assert (
        "which rows are exceptions to this, which points to a shortcut: the weights balance it against the "
        in full
    )
    assert "label in full." in full


def test_columns_of_which_each_is_a_value_that_stands_for_a_class_are_all_named() -> None:
    text = str(cue_section({**FOUND, "part": 1.0, "balanced_columns": ["is_a", "is_b", "is_c"]}).content[0])
    assert "The values of `is_a`, `is_b` and `is_c` go with the classes" in text
    assert (
        "the weights balance them against the label in full. If they are honest signal, name them under"
        in text
    )
    one = str(cue_section({**FOUND, "part": 1.0, "balanced_columns": ["camera"]}).content[0])
    assert "The values of `camera` go with the classes" in one


def test_words_that_cannot_be_balanced_are_told_first() -> None:
    section = cue_section(FOUND | {"part": None, "blend": 0.85, "unclear": ["no text contains x."]})
    assert section.content[1] == "Words that the recipe names: no text contains x."
    assert [one.severity for one in section.findings] == ["information", "warning"]


def test_a_column_that_may_be_honest_is_said_to_shut_the_gate() -> None:
    shut = {**FOUND, "part": 0.0, "weakest": "not_honest", "suspects": []}
    assert "is weak (robust weights gain little on held-out rows, as where models lean" in verdict(shut)


@pytest.mark.parametrize("part", [0.0, 0.8])
def test_two_columns_that_are_suspected_about_equally_are_both_named(part: float) -> None:
    second = {**SUSPECT, "reference": "site", "slice": "site is north"}
    equal = {**FOUND, "part": part, "evidence": {"agreement": 0.9, "slice_rival": 0.93}}
    said = verdict({**equal, "suspects": [SUSPECT, {**SUSPECT, "slice": "PAY_0 > 2"}, second]})
    assert said.count("suspected about equally") == 1
    assert "`PAY_0` and `site` are suspected about equally, and nothing measured tells whether " in said
    assert "The strongest suspect" not in said
    answered = [SUSPECT, {**second, "answer": "legitimate"}]
    for other in (
        {**equal, "suspects": answered},
        {**equal, "suspects": []},
        {**equal, "evidence": {"agreement": 0.9, "slice_rival": 0.5}, "suspects": [SUSPECT, second]},
    ):
        assert "suspected about equally" not in verdict(other)


def test_a_suspect_of_large_gain_is_asked_about_although_the_evidence_is_weak() -> None:
    depot = {**SUSPECT, "slice": "depot = Lyon", "reference": "depot", "gain": 0.35, "cost": 0.08}
    found = {**FOUND, "part": 0.0, "suspects": [{**SUSPECT, "gain": 0.02}, depot]}
    said = verdict(found)
    assert said == (
        "It is not known whether `PAY_0 > 1.5`, on which models lean, is a shortcut or honest signal (no "
        "single feature alone explains where models fail), so that it is not balanced without your answer: "
        "the weights balance the classes. Named under `spurious`, it would be balanced, which would raise "
        "the worst class and side by 0.02, for 0.02 of balanced accuracy: name `PAY_0` there if it is a "
        "shortcut, or under `legitimate` if it is honest signal. Models lean less on `depot = Lyon`; to "
        "balance that would raise the worst class and side by 0.35, for 0.08: name `depot` in the same way "
        "if you know what it is."
    )
    assert verdict({**found, "suspects": [depot]}).startswith("It is not known whether `depot = Lyon`")
    assert summary(found).endswith("without your answer: the weights balance the classes.")
    bold = verdict({**found, "slice_blend": 0.5})
    assert "so that it is balanced in part alone without your answer" in bold
    _, finding = cue_section(found).findings
    assert finding.severity == "information"
    assert "PAY_0 > 1.5 (25% of the rows)" in finding.text
    leading = {**found, "suspects": [{**SUSPECT, "gain": 0.22}, depot]}
    assert "depot" not in verdict(leading)


def test_a_suspect_whose_balance_wins_much_contradicts_no_reason_of_the_verdict() -> None:
    assay = {**SUSPECT, "slice": "assay > 1.5", "reference": "assay", "gain": 0.26, "cost": 0.05}
    said = verdict({**FOUND, "part": 0.0, "weakest": "not_honest", "suspects": [assay]})
    assert "(robust weights gain little on held-out rows, as where models lean on an honest column or" in said
    assert "balancing the column on which models lean most gains little" not in said
    assert "name `assay` there if it is a shortcut, or under `legitimate`" in said


def test_weights_that_follow_the_robust_ones_in_part_have_mixed_evidence_and_a_question() -> None:
    said = verdict({**FOUND, "part": 0.6})
    assert "The evidence for a shortcut is mixed: the weights follow the robust ones by 60%" in said
    assert (
        "The strongest suspect is `PAY_0 > 1.5`: name `PAY_0` under `spurious` if it is a shortcut, which is "
        "then balanced against the label, or under `legitimate` if it is honest signal."
    ) in said
    whole = verdict({**FOUND, "part": 1.0})
    assert "kinds of evidence for a shortcut agree: the weights follow the robust ones in full." in whole
    assert "may balance it less than its name under `spurious` does" in whole


@pytest.mark.parametrize("changed", [{"gain": 0.09}, {"cost": 0.36}, {"answer": "legitimate"}])
def test_nothing_is_asked_about_a_suspect_that_wins_little_or_is_answered(changed: dict[str, Any]) -> None:
    depot = {**SUSPECT, "gain": 0.35, "cost": 0.08, **changed}
    found = {**FOUND, "part": 0.0, "suspects": [depot]}
    assert "on which models lean" not in verdict(found)
    assert [one.text for one in cue_section(found).findings] == [summary(found)]


def test_a_suspect_on_which_models_clearly_lean_is_named_although_nothing_is_won() -> None:
    gap = {**SUSPECT, "slice": "age is missing", "gain": 0.0, "cost": 0.03, "strength": 0.47}
    said = verdict({**FOUND, "part": 0.0, "suspects": [gap]})
    assert (
        "Models lean most on `age is missing`. On held-out rows its balance would raise the worst class and "
        "side by 0.00, for 0.03 of balanced accuracy: name `PAY_0` under"
    ) in said
    assert "lean most" not in verdict({**FOUND, "part": 0.0, "suspects": [{**gap, "strength": 0.24}]})


def test_a_gain_says_on_how_many_rows_it_rests() -> None:
    few = {**SUSPECT, "gain": -0.026, "gain_rows": 31, "small_cells": [15], "strength": 0.5}
    said = verdict({**FOUND, "part": 0.0, "suspects": [few]})
    assert (
        "its balance would lower the worst class and side by 0.03 (measured on 31 rows, without a class and "
        "side of 15 rows, too few to tell), for 0.02"
    ) in said
    section = cue_section({**FOUND, "part": 0.0, "suspects": [few]})
    assert any("Gains that say little: `PAY_0 > 1.5` (measured on 31 rows" in str(x) for x in section.content)
    many = {**few, "gain_rows": 50, "small_cells": [3, 15]}
    assert "without 2 classes and sides of at most 15 rows" in few_rows_sentence({"suspects": [many]})
    assert few_rows_sentence({"suspects": [{**many, "small_cells": []}, SUSPECT]}) == ""


def test_a_part_is_given_with_its_reason() -> None:
    curve = curve_of(
        (0.0, 0.5, 0.9), (1.0, 0.4, 0.8), (1.75, 0.6, 0.89), (2.0, 0.55, 0.8), published=1.75, base=0
    )
    column = {**FOUND, "part": 0.75, "blend": 0.75, "balanced_columns": "site", "trade_off": curve}
    assert "by 75% (the worst group on held-out rows has 0.600 so, and 0.550 in full)." in summary(column)
    many = {"classes": 3, "column_ratio": 0.5}
    better = curve_of(
        (0.0, 0.5, 0.9), (1.0, 0.4, 0.8), (1.75, 0.6, 0.89), (2.0, 0.65, 0.8), published=1.75, base=0
    )
    doubt = {**column, "trade_off": better, "evidence": many}
    assert "by 75% (the other columns do not rule out that rows which break it have wrong" in summary(doubt)
    assert "by 75% (the evidence allows no more)." in summary({**doubt, "evidence": {"classes": 2}})
    assert "The part of" not in verdict({**doubt, "named_cost": 0.0}), "nothing is named"
    named = {
        **FOUND,
        "part": None,
        "blend": 0.85,
        "named_cost": 0.01,
        "trade_off": None,
        "spurious": ["site"],
    }
    assert "The part of 85% is as much as evidence and held-out rows support" in verdict(named)
    assert "more would cost more than `max_named_cost` allows" in verdict({**named, "blend": 0.28})
    assert "The part of" not in verdict({**named, "blend": 1.0})


def test_the_summary_does_not_end_in_a_name() -> None:
    found = {**FOUND, "part": 1.0, "balanced_columns": "No. of St. Louis"}
    said = summary(found)
    assert said.startswith("The values of `No. of St. Louis` go with the classes")
    assert said.endswith("the weights balance it against the label in full.")
    assert summary({**FOUND, "part": 0.5}).endswith("by 50%, and class balance for the rest.")
    words = {
        "part": None,
        "blend": 0.85,
        "named_cost": 0.007,
        "found_words": [{"column": "note", "words": ["app"]}],
    }
    one, two = (
        verdict(FOUND | words | {"found_words": [{"column": "note", "words": listed}]})
        for listed in (["app"], ["app", "web"])
    )
    assert "'app' in `note` goes with the label" in one
    assert "whether it occurs. It is balanced against the label by 85%" in one
    assert "'app' or 'web' in `note` go with the label" in two
    assert "whether they occur. They are balanced" in two
    assert summary(FOUND | words).endswith("by 85%, which costs 0.007 of balanced accuracy on held-out rows.")
    expected = {"part": 1.0, "balanced_columns": "depot", "expected_gain": 0.2}
    assert summary(FOUND | expected).endswith("the weights balance it against the label in full.")
    backtick = {
        **FOUND,
        "part": 1.0,
        "balanced_columns": ["a`b. c"],
        "class_sets": [["St. Paul`s. x"], ["b", "c"]],
    }
    assert summary(backtick).endswith("the weights balance it against the label in full.")
    assert verdict(backtick).startswith(f"{summary(backtick)} If it is honest signal")


def test_every_measurement_that_can_shut_the_gate_has_words() -> None:
    assert {*RAMPS, "slice_support", "not_honest", "gain over the baseline"} <= {*WEAKEST}


def test_slices_of_one_column_have_one_button() -> None:
    slices = [{**SUSPECT, "slice": f"depot = {one}", "reference": "depot"} for one in ("Lyon", "Oslo")]
    (item,) = choice_items({**FOUND, "suspects": slices})
    assert (item.label, item.value) == ("depot = Lyon, depot = Oslo", "depot")


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ([], ""),
        (["b"], "So is what the search finds: `b` (if that is honest signal, name it under `legitimate`)."),
        (["b", "c"], "So is what the search finds: `b` and `c` (if that is honest signal, name them under"),
    ],
)
def test_columns_that_are_balanced_beside_the_named_ones_are_told(kept: list[str], said: str) -> None:
    named = {**FOUND, "part": None, "blend": 0.85, "named_cost": 0.01, "spurious": ["a"], "trade_off": None}
    text = verdict({**named, "kept": kept})
    assert said in text
    assert ("what the search finds" in text) == bool(kept)
