"""The strength of the weights: one baseline for gate, curve and text; exact on small problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from operators.class_shares import class_factors
from operators.cues import CueSettings, Named, fit, weights
from operators.cues.decision.balance_of_classes import choose_class_strength
from operators.cues.decision.decision import (
    Decision,
    DecisionRules,
    DecisionSample,
    beats_baseline,
    best_part,
    broken_rise,
    decide,
    raised_part,
    trusted_part,
    worst_rise,
)
from operators.cues.decision.groups import shortcut_groups
from operators.cues.gather import SampledRows
from operators.cues.models.curve_points import baseline, point_at
from operators.cues.models.trade_off import STRENGTHS, TradeOffPoint, Trials
from operators.cues.models.weight_path import WeightPath
from operators.cues.output.curve import measured_curve
from operators.cues.output.curve_report import baseline_of, baseline_sentence

RARE_ROWS = 9


@pytest.fixture(scope="module")
def churn() -> Any:
    """4,200 rows: numbers with gaps, text as vectors, a plan that tells the class in 93 %, 9 random rows."""
    rng = np.random.default_rng(0)
    n, width = 4200, 32
    y = (rng.random(n) < 0.3).astype(int)
    template = rng.normal(size=(30, width))
    text = template[rng.integers(0, 30, n)] + 0.3 * rng.normal(size=(n, width))
    numbers = rng.normal(size=(n, 6))
    numbers[:, :4] += (2 * y[:, None] - 1) * 0.8
    gap = rng.random(n) < 0.1
    numbers[gap, 0] = 0.0
    plan = np.where(rng.random(n) < 0.93, y, 1 - y)
    X = np.column_stack([numbers, gap, plan == 0, plan == 1, text]).astype(np.float32)
    label = y.copy()
    label[rng.choice(n, RARE_ROWS, replace=False)] = 2
    return X, label, np.arange(n)


def test_nine_random_rows_of_a_third_class_do_not_wreck_the_others(churn: Any) -> None:
    X, label, ids = churn
    state = fit(X, label, ids)
    w = weights(state, X, label, ids)
    assert w[label == 2].sum() < 0.02 * w.sum()
    unweighted, balanced = (point_at(state.points, strength) for strength in (0.0, 1.0))
    assert unweighted is not None
    assert balanced is not None
    assert balanced.mean > unweighted.mean - 0.02


def test_a_class_that_is_in_no_figure_is_named(churn: Any) -> None:
    X, label, ids = churn
    state = fit(X, label, ids)
    record = measured_curve(state, SampledRows(X, label, ids), ["no", "yes", "other"], ["plan"])
    assert record is not None
    assert record["classes_left_out"] == {"other": RARE_ROWS}
    said = baseline_sentence(record)
    assert "Class other, too small to divide (9 rows) is left out of the worst" in said


def test_the_curve_says_why_a_class_is_not_divided() -> None:
    """It was "class c, follows `flag`", as though other rows of it broke the shortcut."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [400, 400, 200])
    flag = np.where(rng.random(1000) < 0.85, y > 0, y == 0) | (y == 2)
    X = np.column_stack([flag, rng.normal(size=(1000, 3)) + np.eye(3)[y]]).astype(np.float32)
    state = fit(X, y, np.arange(1000), CueSettings(spurious=(Named((0,)),)))
    record = measured_curve(state, SampledRows(X, y, np.arange(1000)), ["a", "b", "c"], ["flag"])
    assert record is not None
    assert "class c, no row of which breaks the shortcut" in record["group_rows"]
    assert "class a, follows the shortcut" in record["group_rows"]


def test_gate_curve_and_text_share_one_baseline(churn: Any) -> None:
    X, label, ids = churn
    for settings in (CueSettings(), CueSettings(legitimate=frozenset({7, 8}))):
        state = fit(X, label, ids, settings)
        base = baseline(state.points)
        assert base.worst == max(point.worst for point in state.points if point.strength in (0.0, 1.0))
        assert state.published_strength is not None
        reached = point_at(state.points, state.published_strength)
        assert reached is not None
        if state.blend > 0:
            assert reached.worst > base.worst
        record = measured_curve(state, SampledRows(X, label, ids), ["no", "yes", "z"])
        assert record is not None
        older = {name: value for name, value in record.items() if name != "baseline"}
        assert baseline_of(older) == record["baseline"]
        text = baseline_sentence(record)
        assert f"is {record['baseline']['name']}: " in text
        for point in (base, reached):
            assert f"{point.worst:.3f}, all rows {point.mean:.3f}" in text


def trials_of(right: dict[float, Any]) -> Trials:
    n = len(next(iter(right.values())))
    return Trials(tuple(right), np.array(list(right.values())), np.ones(n), (1.0,) * len(right))


def test_the_baseline_is_the_better_of_the_two_ends() -> None:
    y = np.repeat([0, 1], 100)
    easy, hard = np.ones(200, bool), np.arange(200) % 2 == 0
    for first, second, expected in ((easy, hard, 0.0), (hard, easy, 1.0), (easy, easy, 1.0)):
        points = trials_of({0.0: first, 0.5: easy, 1.0: second}).points(y)
        assert baseline(points).strength == expected


def test_robust_weights_have_to_beat_both_ends_in_the_worst_group() -> None:
    # The first feature follows the class in 90 % of the rows, the second tells it in earnest.
    rng = np.random.default_rng(1)
    y = (rng.random(3000) < 0.4).astype(int)
    side = np.where(rng.random(3000) < 0.9, y, 1 - y)
    Z = np.column_stack([2.0 * side - 1, 2.0 * y - 1 + rng.normal(size=3000)]).astype(np.float32)
    counts, broken = np.bincount(y), side != y
    harmful = np.where(broken, 0.2, 1.0)  # weighs up what the feature gets right
    helpful = np.where(broken, 5.0, 1.0)
    for factor, opens in ((harmful, False), (helpful, True)):
        path = WeightPath.fit(factor, y, counts, cap=20.0, min_effective=0.2)
        sample = DecisionSample(Z, y, np.arange(3000), factor, broken.astype(int))
        found = decide(sample, path, 0.9, DecisionRules(), l2=1e-3, seed=0)
        assert (found.blend >= 0.9) == opens
        published = [point.strength for point in found.points]
        assert (1.9 in published) == opens
        assert set(STRENGTHS) <= set(published)
        assert (
            decide(sample, path, 0.9, DecisionRules(named=True, only_if_better=False), l2=1e-3, seed=0).blend
            == 0.9
        )


def test_less_than_half_of_the_robust_factor_is_not_followed_though_held_out_rows_gain() -> None:
    rng = np.random.default_rng(2)
    y = np.repeat([0, 1], 1500)
    side = np.where(rng.random(3000) < 0.9, y, 1 - y)
    Z = np.column_stack([2.0 * side - 1, 2.0 * y - 1 + rng.normal(size=3000)]).astype(np.float32)
    broken = side != y
    factor = np.where(broken, 5.0, 1.0)
    path = WeightPath.fit(factor, y, np.bincount(y), cap=20.0, min_effective=0.2)
    sample = DecisionSample(Z, y, np.arange(3000), factor, broken.astype(int))
    small = decide(sample, path, 0.09, DecisionRules(), l2=1e-3, seed=0)  # no gate that is raised
    assert (small.blend, small.class_strength) == (0.0, 1.0)
    assert 1.09 not in [point.strength for point in small.points]
    little, best = (
        decide(sample, path, gate, DecisionRules(by_part=True), l2=1e-3, seed=0) for gate in (0.3, 0.6)
    )
    assert little.blend == 0.0
    assert best.blend >= 0.5, "of a column the part that is best"
    assert decide(sample, path, 0.09, DecisionRules(named=True), l2=1e-3, seed=0).blend == 0.09


def broken_rows_right(shares: dict[float, tuple[float, ...]]) -> tuple[Any, Any, Any]:
    """Labels, rows that break a shortcut (half of 400 a class), trials that get such shares of them right."""
    C = len(shares[0.0])
    y, within = np.repeat(np.arange(C), 400), np.tile(np.arange(400), C)
    broken = within < 200
    right = {s: ~broken | (within < 200 * np.array(part)[y]) for s, part in shares.items()}
    return y, broken, trials_of(right)


def test_a_large_rise_of_rows_that_break_the_shortcut_raises_a_gate_that_is_not_shut() -> None:
    y, broken, trials = broken_rows_right({0.0: (0.2, 0.2), 1.0: (0.3, 0.1), 2.0: (0.7, 0.7)})
    # A change of .5 (.4 and .6 against class balance) less two standard errors of about .035.
    assert broken_rise(trials, 2.0, y, broken, 0.0) == pytest.approx(0.5)
    error = (0.5 - broken_rise(trials, 2.0, y, broken, 1.0)) * np.sqrt(2)
    assert error == pytest.approx(np.sqrt(0.25 / 200))
    raised = [raised_part(gate, trials, y, broken) for gate in (0.0, 0.05, 0.1, 0.15, 0.2, 0.9, 1.0)]
    assert raised == [0.0, 0.05, 0.1, 0.5, 1.0, 1.0, 1.0]
    _, _, small = broken_rows_right({0.0: (0.2, 0.2), 1.0: (0.2, 0.2), 2.0: (0.4, 0.4)})
    assert raised_part(0.5, small, y, broken) == 0.5
    dear = trials.right.copy()
    dear[2, np.flatnonzero(~broken)[: len(y) // 2 - 1]] = False  # nearly as many rows again are made wrong
    assert (
        raised_part(0.5, Trials(trials.strengths, dear, trials.mass, trials.effective_share), y, broken)
        == 1.0
    )
    dear[2, ~broken] = False
    dear[2, broken] = trials.right[1, broken]
    assert (
        raised_part(0.5, Trials(trials.strengths, dear, trials.mass, trials.effective_share), y, broken)
        == 0.5
    )


def points_of(worst: dict[float, float]) -> tuple[TradeOffPoint, ...]:
    return tuple(TradeOffPoint(s, 0.9, 0.9, 0.9, w, w, w, (0,), 100, 1.0) for s, w in worst.items())


def test_where_only_full_strength_helps_the_worst_group_the_rest_of_the_way_is_taken() -> None:
    late = points_of({0.0: 0.1, 1.0: 0.0, 1.5: 0.1, 1.75: 0.12, 2.0: 0.5})
    raised = [trusted_part(gate, late) for gate in (0.2, 0.3, 0.35, 0.5, 0.75, 1.0)]
    assert raised == [0.2, 0.3, 0.75, 1.0, 1.0, 1.0]
    early = points_of({0.0: 0.1, 1.0: 0.0, 1.5: 0.35, 2.0: 0.5})
    assert [trusted_part(gate, early) for gate in (0.5, 0.6)] == [0.5, 0.6], "most is gained already"
    small = points_of({0.0: 0.1, 1.0: 0.0, 1.5: 0.1, 2.0: 0.24})
    assert trusted_part(0.5, small) == 0.5
    assert trusted_part(0.5, late[:-1]) == 0.5, "full strength was not measured"
    assert worst_rise(late, 2.0) == pytest.approx(0.4)
    assert worst_rise(late, 1.25) == 0.0


def test_with_many_classes_the_rows_that_break_the_shortcut_may_speak_for_the_worst_group() -> None:
    start, hardly, worse = (0.2, 0.2, 0.2), (0.6, 0.6, 0.19), (0.6, 0.6, 0.15)
    for after, expected in ((hardly, True), (worse, False), (start, False)):
        y, broken, trials = broken_rows_right({0.0: start, 1.0: start, 2.0: after})
        points = trials.points(shortcut_groups(y, broken, 3))
        assert beats_baseline(points, trials, 2.0, y, broken, len(np.unique(y))) == expected
    y, broken, trials = broken_rows_right({0.0: (0.2, 0.2), 1.0: (0.2, 0.2), 2.0: (0.9, 0.19)})
    assert not beats_baseline(trials.points(shortcut_groups(y, broken, 2)), trials, 2.0, y, broken, 2)


def test_classes_of_few_rows_are_not_divided_by_the_shortcut() -> None:
    y = np.repeat([0, 1, 2], [100, 100, 9])
    groups = shortcut_groups(y, np.ones(209, bool), 3)
    assert np.unique(groups).tolist() == [1, 3, 4]


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ((60, 70, 80), [1, 3, 5]),
        ((20, 70, 80), [5, 6]),  # 20 rows cannot be measured: they are with the next fewest
        ((20, 40, 80), [5, 6]),
        ((20, 0, 0), [1]),
    ],
)
def test_few_rows_that_break_the_shortcut_are_compared_together(
    broken: tuple[int, ...], expected: list[int]
) -> None:
    y = np.repeat([0, 1, 2], 100)
    breaks = np.concatenate([np.arange(100) < count for count in broken])
    groups = shortcut_groups(y, breaks, 3)
    assert np.unique(groups[breaks]).tolist() == expected
    assert groups[~breaks].tolist() == (2 * y[~breaks]).tolist()


def test_less_class_balance_needs_a_rise_beyond_chance() -> None:
    y = np.repeat([0, 1], [400, 400])
    right = np.arange(800) % 400 < 300
    few, many = right.copy(), right.copy()
    few[300:303] = few[700:703] = True
    few[0:2] = False  # class 0 gains 3 and loses 2 of 400, class 1 gains 3
    many[300:340] = many[700:740] = True
    assert choose_class_strength(trials_of({0.0: few, 0.5: right, 1.0: right}), y).strength == 1.0
    assert choose_class_strength(trials_of({0.0: many, 0.5: right, 1.0: right}), y).strength == 0.0
    assert choose_class_strength(trials_of({0.0: right, 0.5: many, 1.0: right}), y).strength == 0.5


def test_class_factors_of_the_decision_are_those_of_the_weights(churn: Any) -> None:
    X, label, ids = churn
    state = fit(X, label, ids)
    expected = class_factors(np.bincount(label), strength=state.class_strength)
    np.testing.assert_allclose(state.class_factor, expected)


def test_where_rows_are_too_few_to_be_divided_only_a_name_is_followed() -> None:
    y = np.append(np.zeros(99, int), 1)
    Z, factor, which = np.zeros((100, 1), np.float32), np.ones(100), np.zeros(100, int)
    path = WeightPath.fit(factor, y, np.bincount(y), cap=20.0, min_effective=0.2)
    sample = DecisionSample(Z, y, np.arange(100), factor, which)
    for rules, blend in (
        (DecisionRules(), 0.0),
        (DecisionRules(named=True), 0.0),
        (DecisionRules(named=True, only_if_better=False), 0.6),
    ):
        assert decide(sample, path, 0.6, rules, l2=1e-3, seed=0) == Decision(1.0, blend, ())


def test_a_class_that_is_not_learnt_does_not_make_the_rule_of_many_classes_count() -> None:
    y, broken, trials = broken_rows_right({0.0: (0.2,) * 3, 1.0: (0.2,) * 3, 2.0: (0.6, 0.6, 0.19)})
    points = trials.points(shortcut_groups(y, broken, 3))
    assert beats_baseline(points, trials, 2.0, y, broken, 3)
    assert not beats_baseline(points, trials, 2.0, y, broken, 2)


def test_a_part_that_is_not_published_is_not_the_best_one() -> None:
    points = points_of({0.0: 0.3, 1.0: 0.4, 1.25: 0.7, 1.5: 0.69, 1.75: 0.68})
    assert best_part(points, 0.75) == 0.5
    assert best_part(points, 0.3) == 0.0
