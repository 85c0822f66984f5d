"""Two columns that each carry a shortcut: found one after the other, balanced and judged together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operators.cues import (
    CueSettings,
    Named,
    fit,
    fit_searched,
    full_factor,
    load_state,
    save_state,
    weights,
)
from operators.cues.decision import full_weights
from operators.cues.decision.groups import shortcut_groups
from operators.cues.gather import SampledRows
from operators.cues.models.linear import Scaler, class_balance, fit_softmax, predict
from operators.cues.output.curve import measured_curve
from operators.cues.output.verdict import verdict
from operators.cues.row_weights import breaks, broken_column
from operators.cues.search import several_columns as module
from operators.cues.search.class_column import LEAST_BALANCE, ClassColumn
from operators.cues.search.evidence import Evidence
from operators.cues.search.independence import Independence
from operators.cues.search.several_columns import joint_part, passing_gate
from operators.cues.search.wrong_labels import SURE_RATIO
from operators.cues.sides.sides import Sides
from operators.cues.state import summary
from tests.unit.operators.cues.output.test_cue_report import FOUND

FIRST, SECOND = 5, 6
IDS = np.arange(8000)
SEVERAL = "several of them"


def shortcuts(y: Any, told: tuple[float, ...], rng: np.random.Generator) -> list[Any]:
    return [np.where(rng.random(len(y)) < share, y, 1 - y) for share in told]


def table(n: int, told: tuple[float, ...], seed: int = 3) -> tuple[Any, Any]:
    """(n, 5 + k) features, of which the first three tell the label honestly, and labels of two classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 5)) + np.outer(2 * y - 1, [0.5, 0.5, 0.5, 0, 0])
    return np.column_stack([X, *shortcuts(y, told, rng)]).astype(np.float32), y


def of_three_classes(told: tuple[float, ...]) -> tuple[Any, Any]:
    """(9000, 6 + 3 k) features, of which the first three tell the label and each three behind six a name."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 9000)
    X = rng.normal(size=(9000, 6))
    X[np.arange(9000), y] += 1.0
    for share in told:
        cue = np.where(rng.random(9000) < share, y, (y + rng.integers(1, 3, 9000)) % 3)
        X = np.column_stack([X, cue[:, None] == np.arange(3)])
    return X.astype(np.float32), y


def worst_group(weight: Any, X: Any, y: Any) -> float:
    """Accuracy of the worst group of label x both columns, of rows on which neither column says anything."""
    rows, label = table(40_000, (0.5, 0.5), seed=11)
    scaler = Scaler.from_rows(X)
    coef = fit_softmax(scaler.apply(X), y, weight, 2, l2=1e-4)
    right = predict(coef, scaler.apply(rows)).argmax(axis=1) == label
    group = (4 * label + 2 * rows[:, FIRST] + rows[:, SECOND]).astype(int)
    return float((np.bincount(group, right) / np.bincount(group)).min())


def test_both_are_found_and_the_worst_group_of_both_is_better():
    X, y = table(8000, (0.95, 0.9))
    state = fit(X, y, IDS)
    assert [sides.columns for sides in state.class_columns] == [(FIRST,), (SECOND,)]
    assert state.blend == 1.0
    w = weights(state, X, y, IDS)
    for column in (FIRST, SECOND):
        share = [np.average(X[y == c, column], weights=w[y == c]) for c in (0, 1)]
        assert share == pytest.approx([0.5, 0.5], abs=0.12), "the cap leaves a little"
    alone = full_factor(replace(state, further=()), X, y, IDS) * class_balance(y, 2)
    together = worst_group(w, X, y)
    assert together > 0.5
    assert together > worst_group(np.ones(len(y)), X, y) + 0.3
    assert together > worst_group(alone, X, y) + 0.1, "one of them alone leaves the other"


@pytest.mark.parametrize("told", [(0.95,), (0.95, 0.6)], ids=["one column", "a weak one beside it"])
def test_one_column_stays_alone(told: tuple[float, ...]):
    X, y = table(8000, told)
    state = fit(X, y, IDS)
    assert [sides.columns for sides in state.class_columns] == [(FIRST,)]
    assert state.further == ()


@pytest.mark.parametrize("told", [(0.95, 0.93, 0.9), (0.85, 0.85, 0.85), (0.93, 0.93, 0.88, 0.88)])
def test_three_and_more_columns_of_which_none_is_strong_by_itself_are_balanced(told: tuple[float, ...]):
    X, y = table(8000, told)
    state = fit(X, y, IDS)
    assert {sides.columns for sides in state.class_columns} == {(5 + k,) for k in range(len(told))}
    assert state.blend > 0.7
    assert state.several_apart
    w = weights(state, X, y, IDS)
    several = (X[:, 5:] != y[:, None]).sum(axis=1) > 1
    np.testing.assert_array_equal(broken_column(state, X, y, IDS) == len(told) + 1, several)
    assert w[several].mean() > 2 * w.mean()
    rows, label = table(40_000, (0.5,) * len(told), seed=11)
    scaler = Scaler.from_rows(X)
    accuracy = []
    for weight in (w, np.ones(len(y))):
        coef = fit_softmax(scaler.apply(X), y, weight, 2, l2=1e-4)
        accuracy.append(float((predict(coef, scaler.apply(rows)).argmax(axis=1) == label).mean()))
    assert accuracy[0] > accuracy[1] + 0.04


def test_three_columns_beside_features_that_tell_nothing_are_not_balanced():
    """Each is judged by models that see the two others: these tell the label, the rest does not."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 8000)
    X = np.column_stack([rng.normal(size=(8000, 5)), *shortcuts(y, (0.95, 0.93, 0.9), rng)])
    state = fit(X.astype(np.float32), y, IDS)
    assert state.blend == 0.0
    np.testing.assert_allclose(weights(state, X.astype(np.float32), y, IDS), 1.0, rtol=0.05)


@pytest.mark.parametrize(("accuracy", "followed"), [(0.14, False), (0.21, True)])
def test_models_that_see_none_of_three_columns_have_to_tell_the_label(
    accuracy: float, followed: bool, monkeypatch: pytest.MonkeyPatch
):
    X, y = table(8000, (0.95, 0.93, 0.9))
    judged = Independence(rows=100, label_accuracy=accuracy, ratio=1.0)
    monkeypatch.setattr(fit_searched, "judge_several", lambda *_: judged)
    state = fit(X, y, IDS)
    assert len(state.further) == 2
    assert (state.blend > 0) == followed


def test_nothing_else_is_followed_where_three_columns_are_refused(monkeypatch: pytest.MonkeyPatch):
    X, y = table(8000, (0.95, 0.93, 0.9))
    monkeypatch.setattr(fit_searched, "judge_several", lambda *_: Independence())
    monkeypatch.setattr(full_weights, "gain_to_expect", lambda *_: 1.0)
    state = fit(X, y, IDS)
    assert (len(state.further), state.blend, state.expected_gain) == (2, 0.0, 0.0)


def test_a_column_that_is_no_shortcut_hides_none_that_is_weaker(monkeypatch: pytest.MonkeyPatch):
    X, y = table(8000, (0.9, 0.9, 0.9))
    judge = module.judge
    monkeypatch.setattr(
        module, "judge", lambda one, *rest: None if one.sides.columns == (6,) else judge(one, *rest)
    )
    monkeypatch.setattr(module, "LEAST_TOGETHER", 2)
    monkeypatch.setattr(module, "_with_others_balanced", lambda one, *_: replace(one, column_strength=1.0))
    assert {sides.columns for sides in fit(X, y, IDS).class_columns} == {(5,), (7,)}


def test_of_many_classes_a_column_on_which_models_hardly_lean_at_first_stays_out():
    state = fit(*of_three_classes((0.97, 0.8)), np.arange(9000))
    assert [sides.columns for sides in state.class_columns] == [(6, 7, 8)]


def test_two_columns_need_a_first_one_that_is_strong_by_itself(monkeypatch: pytest.MonkeyPatch):
    X, y = table(8000, (0.95, 0.93, 0.9))
    monkeypatch.setattr(module, "MOST", 2)
    assert fit(X, y, IDS).further == ()


def test_each_of_three_columns_has_to_be_strong_where_the_others_are_balanced(
    monkeypatch: pytest.MonkeyPatch,
):
    X, y = table(8000, (0.95, 0.93, 0.9))

    def weak(one: ClassColumn, found: Any, *_: Any) -> ClassColumn:
        return replace(one, column_strength=1.0 if one is found[0] else 0.3)

    monkeypatch.setattr(module, "_with_others_balanced", weak)
    assert fit(X, y, IDS).further == ()


def test_rows_that_break_several_are_no_group_where_their_labels_are_wrong():
    X, y = table(8000, (0.95, 0.93, 0.9))
    state = fit(X, y, IDS)
    assert state.several_apart
    assert state.broken_parts == 4
    spared = replace(state, caps_several=True)
    assert not spared.several_apart
    assert broken_column(spared, X, y, IDS).max() == 3
    assert not replace(state, blend=0.0).several_apart


def test_two_columns_that_may_be_wrong_labels_leave_the_search_as_it_is(monkeypatch: pytest.MonkeyPatch):
    X, y = table(8000, (0.95, 0.9))
    monkeypatch.setattr(fit_searched, "joint_part", lambda *_: 0.0)
    assert fit(X, y, IDS).further == ()
    X, y = table(8000, (0.95, 0.93, 0.9))
    refused = fit(X, y, IDS)
    assert (len(refused.further), refused.blend) == (2, 0.0)
    assert summary(refused)["weakest"] == "several"


def test_the_curve_names_rows_that_break_several():
    X, y = table(8000, (0.95, 0.93, 0.9))
    state = fit(X, y, IDS)
    record = measured_curve(state, SampledRows(X, y, IDS), ["no", "yes"], ["a", "b", "c"])
    assert record is not None
    worst = {point["worst_group"] for point in record["points"]}
    assert "class yes, breaks several of them" in worst
    follows = {f"class {c}, follows `a`, `b` and `c`" for c in ("no", "yes")}
    broken = {f"class {c}, breaks {one}" for c in ("no", "yes") for one in ("`a`", "`b`", "`c`", SEVERAL)}
    assert worst <= follows | broken | {f"rows that break {one}" for one in ("`a`", "`b`", "`c`", SEVERAL)}


def test_a_strong_column_that_is_no_shortcut_hides_none_behind_it():
    """Of two columns that are judged in search of the second one the stronger is honest."""
    rng = np.random.default_rng(2)
    X, y = table(8000, (0.95, 0.9))
    honest = 2.0 * y - 1 + 0.8 * rng.normal(size=len(y))
    copy = honest + 0.3 * rng.normal(size=len(y))
    X = np.column_stack([X, honest, copy]).astype(np.float32)
    assert {sides.columns for sides in fit(X, y, IDS).class_columns} <= {(FIRST,), (SECOND,)}


def column(strength: float, ratio: float, *, classes: int = 2, dependence: float = 0.5) -> ClassColumn:
    judged = Independence(
        rows=500,
        minority=0.07,
        label_accuracy=0.5,
        ratio=ratio,
        ratio_error=0.05,
        evenness=1.0,
        dependence=dependence,
    )
    level_side, factor = np.arange(classes), np.ones((classes, classes + 1))
    sides = Sides((0,), np.zeros(classes - 1, np.float32), level_side, factor)
    return ClassColumn(sides, strength, judged)


def evidence(classes: int = 2) -> Evidence:
    return Evidence(0.9, 0.5, 0.9, 0.6, 0.1, 0.02, 0.1, 0.1, classes=classes)


def test_the_weakest_column_decides_how_far_the_joint_balance_is_followed():
    strong, half = column(0.9, 0.9), column(0.46, 0.9)
    gate = passing_gate(half, evidence())
    assert 0.5 < gate < 0.7
    assert passing_gate(strong, evidence()) == 1.0
    for columns in ([strong, half], [half, strong]):
        assert joint_part(columns, evidence(), opened=True) == gate


def test_columns_of_two_classes_whose_rows_may_be_wrong_labels_need_the_search():
    sure, unsure = column(0.9, SURE_RATIO + 0.01), column(0.9, SURE_RATIO - 0.01)
    assert joint_part([sure, sure], evidence(), opened=False) == 1.0
    assert joint_part([sure, unsure], evidence(), opened=False) == 0.0
    assert joint_part([sure, unsure], evidence(), opened=True) == 1.0


def test_of_many_classes_a_column_with_wrong_labels_has_part_of_the_balance():
    sure, unsure = column(0.9, 0.9, classes=3), column(0.9, 0.1, classes=3)
    assert joint_part([sure, sure], evidence(3), opened=False) == 1.0
    assert joint_part([sure, unsure], evidence(3), opened=False) == LEAST_BALANCE


def test_a_column_of_which_others_tell_the_side_does_not_pass():
    assert passing_gate(column(0.9, 0.9, dependence=0.6), evidence()) == 0.0


def test_a_legitimate_column_is_not_balanced():
    X, y = table(8000, (0.95, 0.9))
    state = fit(X, y, IDS, CueSettings(legitimate=frozenset({SECOND})))
    assert all(SECOND not in sides.columns for sides in state.class_columns)


@pytest.mark.parametrize("named", [FIRST, SECOND])
def test_an_answer_that_names_one_keeps_the_other(named: int):
    X, y = table(8000, (0.95, 0.9))
    silent, told = fit(X, y, IDS), fit(X, y, IDS, CueSettings(spurious=(Named((named,)),)))
    assert {sides.columns for sides in told.named or ()} == {(FIRST,), (SECOND,)}
    w, before = weights(told, X, y, IDS), weights(silent, X, y, IDS)
    assert worst_group(w, X, y) > worst_group(before, X, y) - 0.03


def test_more_than_two_classes():
    state = fit(*of_three_classes((0.95, 0.9)), np.arange(9000))
    assert [sides.columns for sides in state.class_columns] == [(6, 7, 8), (9, 10, 11)]
    assert state.blend > 0


def test_nothing_further_is_looked_for_beside_a_column_that_is_no_shortcut(monkeypatch: pytest.MonkeyPatch):
    X, y = table(8000, (0.95, 0.9))
    monkeypatch.setattr(module, "PASSES", 1.1)
    assert fit(X, y, IDS).further == ()


def test_rows_are_grouped_by_the_first_column_that_they_break():
    X, y = table(8000, (0.95, 0.9))
    state = fit(X, y, IDS)
    which, broken = broken_column(state, X, y, IDS), breaks(state, X, y, IDS)
    np.testing.assert_array_equal(which == 1, X[:, FIRST] != y)
    np.testing.assert_array_equal(which == 2, (X[:, FIRST] == y) & (X[:, SECOND] != y))
    assert np.all(which[broken] > 0)
    groups = shortcut_groups(y, which, 2, 2)
    assert sorted(set(groups.tolist())) == [0, 1, 2, 3, 4, 5]
    record = measured_curve(state, SampledRows(X, y, IDS), ["no", "yes"], ["site", "camera"])
    assert record is not None
    worst = {point["worst_group"] for point in record["points"]}
    follow = {f"class {c}, follows `site` and `camera`" for c in ("no", "yes")}
    broken = {f"class {c}, breaks `{one}`" for c in ("no", "yes") for one in ("site", "camera")}
    assert worst <= follow | broken
    assert worst & broken


def test_few_rows_that_break_a_column_are_pooled_by_column():
    y = np.repeat([0, 1], 200)
    which = np.zeros(400, int)
    which[[0, *range(200, 260)]] = 1
    which[100:130] = which[300:330] = 2
    groups = shortcut_groups(y, which, 2, 2)
    assert set(groups[which == 1]) == {6}, "one row joins the sixty of the other class"
    assert set(groups[which == 2]) == {7}
    assert set(groups[which == 0]) == {0, 3}


def test_the_state_is_stored(tmp_path: Path):
    X, y = table(8000, (0.95, 0.9))
    state = fit(X, y, IDS)
    save_state(state, tmp_path)
    np.testing.assert_array_equal(weights(load_state(tmp_path), X, y, IDS), weights(state, X, y, IDS))


def test_the_verdict_names_both():
    text = verdict({**FOUND, "part": 1.0, "balanced_columns": ["site", "camera"], "several": True})
    assert "The values of `site` and `camera` go with the classes" in text
    assert "Each carries a shortcut of its own; if one is honest signal, name it under `legitimate`." in text
