"""How far classes are balanced: less where that makes rows that contradict a column wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from operators.cues import CueSettings, Named, fit, weights
from operators.cues.decision.balance_of_classes import LeaningSlices, choose_class_strength, leaning_slices
from operators.cues.gather import SampledRows
from operators.cues.models.linear import Scaler, fit_softmax, predict
from operators.cues.output.curve import measured_curve
from operators.cues.output.verdict import WHY_LESS, verdict
from operators.cues.search.evidence import Evidence
from operators.cues.search.slices import find_slices
from operators.cues.sides.sides import Sides
from tests.unit.operators.cues.decision.test_decision import trials_of
from tests.unit.operators.cues.output.test_cue_report import FOUND

N, CUE = 6000, 5
IDS = np.arange(N)


def rare_class(told: float = 0.95, share: float = 0.06, seed: int = 1, rare: float = 1.0) -> tuple[Any, Any]:
    """Features, of which the last tells labels, and labels of which few are 1; the others tell less.

    The column says so of every row of the rare class, or of a share ``rare``.
    """
    rng = np.random.default_rng(seed)
    y = (rng.random(N) < share).astype(int)
    right = rng.random(N) < np.where(y == 1, rare, told)
    X = rng.normal(size=(N, CUE)) + 0.4 * y[:, None]
    return np.column_stack([X, np.where(right, y, 1 - y)]).astype(np.float32), y


def contradicting(weight: Any, X: Any, y: Any) -> float:
    """Accuracy of the rows of the large class that the column calls the small one, under a model."""
    rows, label = rare_class(seed=9)
    scaler = Scaler.from_rows(X)
    coef = fit_softmax(scaler.apply(X), y, weight, 2, l2=1e-4)
    right = predict(coef, scaler.apply(rows)).argmax(axis=1) == label
    return float(right[(label == 0) & (rows[:, CUE] == 1)].mean())


def test_classes_are_not_balanced_where_that_turns_the_rows_that_contradict_a_column():
    X, y = rare_class()
    state = fit(X, y, IDS)
    assert (state.blend, state.class_strength) == (0.0, 0.0)
    np.testing.assert_array_equal(weights(state, X, y, IDS), 1.0)
    balanced = replace(state, class_factor=len(y) / (2.0 * np.bincount(y)))
    assert contradicting(weights(balanced, X, y, IDS), X, y) < 0.1
    assert contradicting(weights(state, X, y, IDS), X, y) > 0.3


def test_rows_of_the_rare_class_that_contradict_the_column_must_not_pay_for_it():
    """They are too few to be measured by themselves, and hardly any is right without class balance."""
    X, y = rare_class(rare=0.95)
    state = fit(X, y, IDS)
    assert 0 < np.count_nonzero((y == 1) & (X[:, CUE] == 0)) < 50
    assert state.leaning_column is None
    assert state.class_strength == 1.0


def test_a_rare_class_without_such_a_column_is_balanced():
    X, y = rare_class(told=0.5, rare=0.5)
    assert fit(X, y, IDS).class_strength == 1.0


def test_a_named_column_is_balanced_and_the_classes_too():
    X, y = rare_class()
    state = fit(X, y, IDS, CueSettings(spurious=(Named((CUE,)),)))
    assert state.class_strength == 1.0
    assert state.named


def sides_right(by_cell: dict[tuple[int, int], float], cells: dict[tuple[int, int], int]) -> Any:
    """Labels, sides and right rows with an accuracy for each class and side."""
    y = np.repeat([c for c, _ in cells], list(cells.values()))
    side = np.repeat([bool(s) for _, s in cells], list(cells.values()))
    right = np.concatenate([np.arange(rows) < round(by_cell[cell] * rows) for cell, rows in cells.items()])
    return y, side, right


def balance(trials: Any, y: Any, side: Any, clear: bool = True) -> Any:
    unused = Sides((0,), np.empty(0, np.float32), np.array([0, 1]), np.ones((2, 2)))
    return choose_class_strength(trials, y, LeaningSlices(side[None], (unused,), np.array([clear])))


CELLS = {(0, 0): 800, (0, 1): 100, (1, 0): 0, (1, 1): 100}
LOW, HIGH = ({(0, 0): 1.0, (0, 1): at, (1, 0): 0.0, (1, 1): 0.9} for at in (0.2, 0.7))


@pytest.mark.parametrize(
    ("strength", "better", "expected"), [(0.0, HIGH, 0.0), (0.5, HIGH, 0.5), (0.0, LOW, 1.0)]
)
def test_the_strength_with_the_better_worst_side_is_taken(
    strength: float, better: dict[tuple[int, int], float], expected: float
):
    y, side, full = sides_right(LOW, CELLS)
    found = {0.0: full, 0.5: full, 1.0: full} | {strength: sides_right(better, CELLS)[2]}
    assert balance(trials_of(found), y, side) == (expected, 0 if expected < 1 else None)


def test_a_slice_does_not_overrule_the_worst_class():
    """All rows with a value are of class 0; without balance the other rows of it gain what class 1 loses."""
    cells = {(0, 0): 900, (0, 1): 900, (1, 0): 900, (1, 1): 0}
    full, half, none = (
        sides_right({(0, 0): low, (0, 1): 1.0, (1, 0): high, (1, 1): 0.0}, cells)[2]
        for low, high in ((0.48, 0.87), (0.62, 0.81), (0.71, 0.735))
    )
    y, side, _ = sides_right(dict.fromkeys(cells, 1.0), cells)
    found = trials_of({0.0: none, 0.5: half, 1.0: full})
    assert balance(found, y, side) == (0.5, None)
    assert balance(trials_of({0.0: none, 0.5: full, 1.0: full}), y, side).decided_by == 0


def test_the_slice_of_the_worst_cell_is_named():
    y, side, full = sides_right(LOW, CELLS)
    better = sides_right(HIGH, CELLS)[2]
    other = np.arange(len(y)) % 2 == 0
    unused = Sides((0,), np.empty(0, np.float32), np.array([0, 1]), np.ones((2, 2)))
    trials = trials_of({0.0: better, 0.5: full, 1.0: full})
    for number, sides in enumerate(([side, other], [other, side])):
        found = choose_class_strength(
            trials, y, LeaningSlices(np.array(sides), (unused, unused), np.array([True, True]))
        )
        assert found == (0.0, number)


def test_a_column_names_the_class_for_which_each_side_stands():
    """A flag in 1 % of one class and 45 % of the other: with it a row of the second follows the column."""
    y = np.repeat([0, 1], [900, 400])
    flag = np.r_[np.arange(900) < 9, np.arange(400) < 180]
    Z = (flag[:, None] - flag.mean()).astype(np.float32)
    slices = find_slices(Z, y, np.column_stack([1.0 - 0.8 * flag, 0.8 * flag]))
    strong = replace(slices, lean=np.full(len(slices.lean), 0.9), error=np.full(len(slices.error), 0.9))
    evidence = Evidence(0.9, 0.5, 0.9, 0.6, 0.1, 0.02, 0.1, 0.1)
    found = leaning_slices(strong, evidence, Z, y, 2)
    assert found is not None
    np.testing.assert_array_equal(found.columns[0].breaks(Z, y), flag != y)


def test_a_name_that_has_nothing_to_do_with_it_changes_nothing_of_that():
    X, y = rare_class()
    noise = np.random.default_rng(2).integers(0, 2, (N, 1))
    X = np.hstack([X, noise, np.zeros((N, 1))]).astype(np.float32)
    silent = fit(X, y, IDS)
    assert silent.class_strength == 0.0
    assert fit(X, y, IDS, CueSettings(spurious=(Named((CUE + 1,)),))).class_strength == 0.0
    constant = fit(X, y, IDS, CueSettings(spurious=(Named((CUE + 2,)),)))
    np.testing.assert_array_equal(weights(constant, X, y, IDS), weights(silent, X, y, IDS))


def test_a_small_rise_of_the_worst_side_is_no_reason():
    y, side, full = sides_right(LOW, CELLS)
    slightly = sides_right(LOW | {(0, 1): 0.38}, CELLS)[2]
    assert balance(trials_of({0.0: slightly, 0.5: full, 1.0: full}), y, side) == (1.0, None)


def test_sides_of_few_rows_say_nothing():
    cells = dict.fromkeys(CELLS, 40)
    y, side, full = sides_right(LOW, cells)
    better = sides_right(dict.fromkeys(CELLS, 1.0), cells)[2]
    trials = trials_of({0.0: better, 0.5: full, 1.0: full})
    assert balance(trials, y, side) == choose_class_strength(trials, y)


def test_the_worst_side_speaks_against_less_balance_that_a_class_asks_for():
    y = np.repeat([0, 1], [800, 200])
    side = np.arange(1000) % 8 == 0
    full = np.ones(1000, bool)
    full[800:860] = False
    less = np.ones(1000, bool)
    less[side & (y == 0)] = False
    trials = trials_of({0.0: less, 0.5: full, 1.0: full})
    assert choose_class_strength(trials, y) == (0.0, None)
    assert balance(trials, y, side) == (1.0, 0)


@pytest.mark.parametrize(("rate", "expected"), [(0.62, 1.0), (0.72, 0.5)])
def test_a_side_of_a_weak_slice_that_loses_much_speaks_against_less_balance(rate: float, expected: float):
    """As blond men in photographs: the worst class gains by half of the balance, and they lose a third."""
    cells = {(0, 0): 4000, (0, 1): 4000, (1, 0): 1400, (1, 1): 100}
    full = {(0, 0): 0.8, (0, 1): 0.78, (1, 0): 0.9, (1, 1): 0.8}
    less = {(0, 0): 0.83, (0, 1): 0.82, (1, 0): 0.88, (1, 1): rate}
    y, side, right = sides_right(full, cells)
    better = sides_right(less, cells)[2]
    trials = trials_of({0.0: right, 0.5: better, 1.0: right})
    assert choose_class_strength(trials, y) == (0.5, None)
    assert balance(trials, y, side, clear=False) == (expected, 0 if expected == 1 else None)
    alone = np.zeros(len(y), bool)
    assert balance(trials, y, alone & (y == 5), clear=False).strength == 0.5


def test_a_column_that_others_speak_against_is_not_clear():
    X, y = rare_class()
    state = fit(X, y, IDS)
    Z = state.scaler.apply(X)
    assert state.evidence is not None
    found = leaning_slices(state.slices, state.evidence, Z, y, 2)
    assert found is not None
    np.testing.assert_array_equal(found.sides[0], X[:, CUE] == 1)
    np.testing.assert_array_equal(found.columns[0].breaks(Z, y), X[:, CUE] != y)
    assert found.clear[0]
    against = leaning_slices(state.slices, replace(state.evidence, slice_support=0.4), Z, y, 2)
    assert against is not None
    assert not against.clear.any()
    assert leaning_slices(state.slices, None, Z, y, 2) is None


def test_the_curve_compares_the_rows_that_contradict_the_column():
    X, y = rare_class()
    state = fit(X, y, IDS)
    record = measured_curve(state, SampledRows(X, y, IDS), ["no", "yes"], ["channel"])
    assert record is not None
    assert record["grouping"] == "shortcut"
    assert record["published_strength"] == 0.0
    first, full = record["points"][0], record["points"][4]
    assert first["worst_accuracy"] > full["worst_accuracy"] + 0.2
    assert full["worst_group"] in ("class no, breaks `channel`", "rows that break `channel`")
    assert record["baseline"]["name"] == "no weights"


def test_the_verdict_says_why():
    weak = {**FOUND, "part": 0.0, "class_strength": 0.0, "suspects": []}
    assert f"so that the weights are the same for all rows, {WHY_LESS}." in verdict(weak)
    assert WHY_LESS not in verdict({**weak, "class_strength": 1.0})
    said = verdict({**weak, "leaning": "channel"})
    assert "as with balanced classes models mistake far more held-out rows that contradict `channel`." in said
