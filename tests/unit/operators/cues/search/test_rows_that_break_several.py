"""Rows that break several columns at once, and what becomes of them where labels are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from operators.cues import CueSettings, Named, fit, weights
from operators.cues.models.linear import Scaler, fit_softmax, predict
from operators.cues.row_weights import broken_column
from operators.cues.search.wrong_labels import have_wrong_labels, own_features
from operators.cues.settings import SourceColumn
from operators.cues.sides.class_sides import independent_factors
from operators.cues.sides.joint_balance import (
    balance_jointly,
    breaks_several,
    first_broken,
    joint_factor,
    several_factor,
)
from operators.cues.sides.sides import Sides

N = 8000
IDS = np.arange(N)
CUES = (5, 6)


def table(flips: float, told: tuple[float, ...] = (0.97, 0.95), n: int = N, seed: int = 3) -> Any:
    """(n, 5 + k) features, observed labels, true labels."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 5)) + np.outer(2 * true - 1, [1.0, 1.0, 0.5, 0, 0])
    cues = [np.where(rng.random(n) < share, true, 1 - true) for share in told]
    seen = np.where(rng.random(n) < flips, 1 - true, true)
    return np.column_stack([X, *cues]).astype(np.float32), seen, true


def columns_of(X: Any, y: Any) -> tuple[Any, tuple[Sides, ...]]:
    """Standardised rows, and the sides of both columns, balanced together."""
    Z = Scaler.from_rows(X).apply(X)
    alone = []
    for feature in CUES:
        cut, level = np.array([0.0], np.float32), (Z[:, feature] > 0).astype(np.intp)
        alone.append(Sides((feature,), cut, np.array([0, 1]), independent_factors(level, y, 2)))
    return Z, balance_jointly(alone, Z, y, 2)


@pytest.mark.parametrize(("flips", "wrong"), [(0.0, False), (0.05, True)])
def test_rows_that_break_both_have_wrong_labels_or_not(flips: float, wrong: bool):
    X, y, _ = table(flips, (0.93, 0.9))
    Z, columns = columns_of(X, y)
    assert have_wrong_labels(columns, Z, y, IDS, CueSettings()) is wrong
    assert have_wrong_labels(columns[:1], Z, y, IDS, CueSettings()) is False, (
        "of one column there are no such"
    )


def test_rows_are_counted_by_the_columns_that_they_break():
    X, y, _ = table(0.0)
    Z, columns = columns_of(X, y)
    first, second = X[:, 5] != y, X[:, 6] != y
    np.testing.assert_array_equal(first_broken(columns, Z, y), np.where(first, 1, 2 * second))
    np.testing.assert_array_equal(breaks_several(columns, Z, y), first & second)


def test_rows_that_break_several_are_spared():
    X, y, _ = table(0.05)
    Z, columns = columns_of(X, y)
    several, joint = breaks_several(columns, Z, y), joint_factor(columns, Z, y)
    spared = several_factor(columns, True, Z, y)
    assert joint[several].min() > 5
    assert spared[several].max() <= 1
    np.testing.assert_array_equal(spared[~several], joint[~several])
    np.testing.assert_array_equal(several_factor(columns, False, Z, y), joint)


def test_features_of_a_source_column_belong_together():
    X, y, _ = table(0.0)
    Z, columns = columns_of(X, y)
    settings = CueSettings(columns=(SourceColumn((4, 5)),))
    assert own_features(columns, Z, settings) == {4, 5, 6}


def accuracies(weight: Any, X: Any, y: Any) -> tuple[float, float]:
    """Accuracy of the worst group of true label x both columns, and of all rows; no label is wrong."""
    rows, _, true = table(0.0, n=60_000, seed=11)
    scaler = Scaler.from_rows(X)
    coef = fit_softmax(scaler.apply(X), y, weight, 2, l2=1e-4)
    right = predict(coef, scaler.apply(rows)).argmax(axis=1) == true
    group = (4 * true + 2 * (rows[:, 5] != true) + (rows[:, 6] != true)).astype(int)
    hits, count = np.bincount(group, right), np.bincount(group)
    return float((hits / count)[count >= 80].min()), float(right.mean())


def test_wrong_labels_do_not_take_over(monkeypatch: pytest.MonkeyPatch):
    X, y, _ = table(0.05, (0.95, 0.9), seed=4)
    state = fit(X, y, IDS)
    assert [one.columns for one in state.class_columns] == [(5,), (6,)]
    assert state.caps_several
    worst, mean = accuracies(weights(state, X, y, IDS), X, y)
    plain_worst, plain_mean = accuracies(np.ones(N), X, y)
    assert worst > plain_worst + 0.1
    assert mean > plain_mean - 0.01
    joint = replace(state, caps_several=False, judged_labels=())
    _, mean_of_all = accuracies(weights(joint, X, y, IDS), X, y)
    assert mean_of_all < mean - 0.05, "joint balance alone learns wrong labels"


@pytest.mark.parametrize("differs", [0.0, 0.002, 0.03])
def test_a_copy_of_a_column_does_not_hide_who_breaks_it(differs: float):
    X, y, _ = table(0.0)
    rng = np.random.default_rng(8)
    copy = np.where(rng.random(N) < differs, 1 - X[:, 5], X[:, 5])
    X = np.column_stack([X[:, :6], copy, X[:, 6]]).astype(np.float32)
    state = fit(X, y, IDS, CueSettings(spurious=(Named((5,)), Named((6,)), Named((7,)))))
    assert state.named is not None
    which = broken_column(state, X, y, IDS)
    order = [one.columns[0] for one in state.named]
    expected = np.zeros(N, int)
    for number in (3, 2, 1):
        expected[X[:, order[number - 1]] != y] = number
    np.testing.assert_array_equal(which, expected)


def test_a_cut_that_divides_no_rows_changes_nothing():
    X, y, _ = table(0.05, (0.95, 0.9), seed=4)
    found = fit(X, y, IDS)
    assert found.class_columns
    cut = fit(X, y, IDS, CueSettings(spurious=(Named((5,), cut=100.0),)))
    assert [one.columns for one in cut.named or ()] == [one.columns for one in found.class_columns]
    np.testing.assert_allclose(weights(cut, X, y, IDS), weights(found, X, y, IDS))


def test_names_do_not_decide_which_rows_the_search_spares():
    X, y, _ = table(0.05, (0.95, 0.9), seed=4)
    state = fit(X, y, IDS, CueSettings(spurious=(Named((5,), cut=0.5), Named((6,), cut=0.5))))
    assert state.searched_part > 0
    named = replace(state, caps_named=not state.caps_named)
    assert state.caps_several
    assert np.any(weights(named, X, y, IDS) != weights(state, X, y, IDS))


def test_a_slice_of_one_column_leaves_the_others_that_the_search_balances() -> None:
    X, y, _ = table(0.05, (0.95, 0.9), seed=4)
    found = fit(X, y, IDS)
    columns = {one.columns for one in found.class_columns}
    assert len(columns) == 2
    cut = fit(X, y, IDS, CueSettings(spurious=(Named((5,), cut=0.5),)))
    assert {one.columns for one in cut.named or ()} == columns
    assert cut.searched_part > 0, "the rest of the column that is cut"
