"""The column that models lean on most: the other columns tell a shortcut from one of several honest ones."""

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.datasets import load_digits

from operators.cues import CueSettings, fit, weights
from operators.cues.models.linear import Scaler, fit_softmax, predict
from operators.cues.search.evidence import Evidence
from operators.cues.search.independence import (
    MAX_MIRRORS,
    Independence,
    independence,
    rarer_side,
    support_of,
    with_mirrors,
)
from operators.cues.search.ramps import REPEATED_RAMPS, SINGLE_RAMPS, SLICE_VETO
from operators.cues.search.related_features import are_components, features_of
from operators.cues.search.searched_rows import SearchedRows
from operators.cues.search.slices import find_slices
from operators.cues.search.strongest_slice import SPREAD_VETO, StrongestSlice, judge_strongest_slice
from operators.cues.settings import SourceColumn
from tests.unit.operators.cues.search.test_share_columns import COLUMN

N = 8000


def table(seed, *, honest=False, flips=0.0, core=0.35):
    """Return rows, labels and sides: one column tells 93 labels of 100, the others fewer.

    Honest: what the column measures shows in others, too, and the label follows all of it.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N)
    side = np.where(rng.random(N) < 0.93, y, 1 - y)
    others = rng.normal(size=(N, 5))
    others[:, :2] += core * (2 * (side if honest else y)[:, None] - 1)
    label = np.where(rng.random(N) < flips, 1 - y, y)
    return np.column_stack([side, others]).astype(np.float32), label, side > 0


def judged(X, y, side, features=(0,)):
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return independence(rarer_side(side, y), Z, y, np.arange(len(y)), features, seed=0, l2=1e-3)


def strongest_in(Z, y, p):
    """Return the judgement of the strongest slice of rows with held-out probabilities ``p``."""
    rows = SearchedRows(Z, y, np.arange(len(y)), p)
    return judge_strongest_slice(find_slices(Z, y, p), rows, CueSettings())


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5])
def test_dependence_is_the_area_under_the_curve_of_another_column(shift):
    rng = np.random.default_rng(1)
    y, side = rng.integers(0, 2, 20_000), rng.random(20_000) < 0.3
    X = np.column_stack([side, rng.normal(size=20_000) + shift * side])
    assert judged(X, y, side).dependence == pytest.approx(norm.cdf(shift / np.sqrt(2)), abs=0.03)


@pytest.mark.parametrize("flips", [0.0, 0.05])
def test_the_others_tell_the_label_and_not_the_side_of_a_shortcut(flips):
    found = judged(*table(2, flips=flips, core=1.0))
    assert found.dependence == pytest.approx(0.5, abs=0.04), "wrong labels are not told from sides"
    assert found.minority == pytest.approx(0.07 * (1 - flips) + 0.93 * flips, abs=0.01)
    assert found.label_accuracy > 0.6
    assert judged(*table(2, honest=True, core=0.7)).dependence > 0.7


def test_nothing_is_known_without_rows_on_both_sides():
    X, y, _ = table(3)
    found = judged(X, y, np.zeros(N, bool))
    assert found.label_accuracy > 0.3, "all rows say how well the others tell the label"
    assert replace(found, label_accuracy=0.0) == Independence()


def test_features_of_one_column_and_repetitions_are_hidden_together():
    rng = np.random.default_rng(4)
    Z = rng.normal(size=(500, 5))
    Z[:, 3] = -Z[:, 0]
    Z = Z.astype(np.float32) * [1, 1, 400, 1, 1]  # a huge mean leaves a feature unscaled
    assert features_of(0, Z, (SourceColumn((0, 1)),)) == (0, 1, 3)
    assert features_of(2, Z, ()) == (2,)
    assert features_of(4, Z, (SourceColumn((0, 1)),)) == (4,)


def test_a_column_that_says_the_same_in_most_rows_does_not_judge():
    """An attribute that is recorded twice kept its own shortcut shut: the others seemed to tell its side."""
    X, y, side = table(5, core=0.7)
    rng = np.random.default_rng(5)
    twice = np.where(rng.random(N) < 0.95, side, ~side)
    Z = Scaler.from_rows(X).apply(X)
    broken = rarer_side(side, y)
    assert with_mirrors([0], broken, Z, y) == [0]
    both = Scaler.from_rows(np.column_stack([X, twice])).apply(np.column_stack([X, twice]))
    assert with_mirrors([0], broken, both, y) == [0, 6]
    many = np.column_stack([Z, *[both[:, 6]] * (MAX_MIRRORS + 1)])
    assert with_mirrors([0], broken, many, y) == [0], "a shortcut of many features"
    assert with_mirrors([0], broken, both[:, [0, 6]], y) == [0], "something is left that judges"
    state = fit(np.column_stack([X, twice]), y, np.arange(N))
    assert state.blend == 1.0


def test_a_column_of_many_values_that_says_the_same_does_not_judge_either():
    """Each of its values alone hardly correlates with the side, as where a hospital has several wards."""
    X, y, side = table(5, core=0.7)
    rng = np.random.default_rng(6)
    hospital = np.where(rng.random(N) < 0.95, side, ~side)
    ward = np.eye(6)[rng.integers(0, 3, N) + 3 * hospital]
    Z = Scaler.from_rows(np.column_stack([X, ward])).apply(np.column_stack([X, ward]))
    columns = (SourceColumn(tuple(range(6, 12))),)
    broken = rarer_side(side, y)
    assert with_mirrors([0], broken, Z, y) == [0], "as columns of their own"
    assert with_mirrors([0], broken, Z, y, columns) == [0, *range(6, 12)]
    assert with_mirrors([0], broken, Z, y, (SourceColumn((1, 2, 3)),)) == [0], "honest ones judge"
    state = fit(np.column_stack([X, ward]), y, np.arange(N), CueSettings(columns=columns))
    assert state.blend == 1.0


def test_columns_that_say_the_same_are_found_among_many_quickly():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(20), 60))
    broken = rng.random(len(y)) < 0.4
    Z = rng.normal(size=(len(y), 5000)).astype(np.float32)
    Z[:, [3, 4998]] += 3 * broken[:, None]
    Z[:, 70] = 5.0
    started = time.process_time()
    assert with_mirrors([0], broken, Z, y) == [0, 3, 4998]
    assert time.process_time() - started < 1, "column by column it took three times as long"


def test_no_column_leads_where_the_strongest_slice_is_weak():
    rng = np.random.default_rng(5)
    y, Z = rng.integers(0, 2, N), rng.normal(size=(N, 3)).astype(np.float32)
    p = np.full((N, 2), 0.5) + 1e-3 * rng.normal(size=(N, 2))
    assert strongest_in(Z, y, p) == StrongestSlice()


LEADS = Evidence(
    agreement=0.9,
    mistake_confidence=0.5,
    crispness=0.95,
    recovery=0.8,
    error=0.1,
    cost=0.3,
    gain=0.1,
    righted=0.1,
    exchange=0.2,
    slice_strength=0.9,
    slice_minority=0.1,
    slice_label_accuracy=0.3,
    slice_ratio=0.4,
    slice_dependence=0.5,
    slice_unevenness=1.1,
)


@pytest.mark.parametrize("name", SINGLE_RAMPS)
def test_each_measurement_of_the_leading_column_shuts_a_gate_that_is_too_dear_otherwise(name):
    assert LEADS.gate() == 1.0, "balancing costs more than other evidence allows"
    assert replace(LEADS, **{name: SINGLE_RAMPS[name][0]}).gate() == 0.0


REPEATED = replace(
    LEADS,
    crispness=0.96,
    cost=0.15,
    recovery=0.2,
    gain=-0.1,
    slice_strength=0.55,
    slice_dependence=0.95,
    slice_unevenness=3.0,
)


@pytest.mark.parametrize("name", REPEATED_RAMPS)
def test_a_shortcut_that_many_features_repeat_needs_all_of_its_measurements(name):
    assert REPEATED.gate() == 1.0, "nothing is put right on held-out rows"
    measured = "slice_strength" if name == "slice_dominance" else name
    assert replace(REPEATED, **{measured: REPEATED_RAMPS[name][0]}).gate() == 0.0


def test_a_column_whose_contradicting_rows_are_wrong_labels_opens_no_gate():
    """The others tell nothing of these rows, and the weights put few of them right."""
    noise = replace(LEADS, cost=0.0, slice_strength=0.6, slice_ratio=-0.05, gain=0.09)
    assert (noise.gate(), noise.weakest()) == (0.0, "not_honest")
    for measured in (
        {"slice_ratio": 0.1},
        {"slice_strength": 0.8},
        {"gain": 0.25},
        {"slice_dependence": 0.7},
    ):
        assert replace(noise, **measured).gate() == 1.0
    assert replace(noise, classes=3).gate() == 1.0, "of more classes nothing is known"


def test_an_independent_column_by_which_little_is_gained_is_honest():
    honest = replace(LEADS, cost=0.0, gain=0.06)
    assert honest.gate() == 0.0
    assert replace(honest, gain=0.07).gate() == pytest.approx(0.5)
    assert replace(honest, slice_dependence=0.62).gate() == 1.0, "the others tell its side"


def test_without_the_support_of_the_others_no_gate_is_open():
    found = replace(LEADS, cost=0.0, slice_support=0.0, slice_dependence=0.7)
    assert (found.gate(), found.weakest()) == (0.0, "slice_support")
    assert replace(found, slice_support=1.0).gate() == 1.0


def test_a_column_that_is_strong_in_part_shuts_the_gate_of_spread_shortcuts_alone():
    spread = replace(LEADS, agreement=0.56, recovery=0.9, cost=0.0, gain=0.3, slice_dependence=0.78)
    assert spread.gate() == 1.0
    shut = replace(spread, slice_spread_support=0.0)
    assert shut.gate() == pytest.approx(0.6), "what agreement alone allows"


@pytest.mark.parametrize(("core", "supported"), [(0.25, 1.0), (0.0, 0.0)])
def test_the_others_support_a_spread_shortcut_or_not(core, supported):
    X, y, side = table(12, honest=not core, core=core or 0.7)
    Z = Scaler.from_rows(X).apply(X)
    p = np.column_stack([np.where(side, 0.1, 0.9), np.where(side, 0.9, 0.1)])
    found = strongest_in(Z, y, p + 1e-3 * np.random.default_rng(0).normal(size=p.shape))
    assert found.strength > SPREAD_VETO[1]
    assert (found.spread_support, found.spread_support <= found.support) == (supported, True)


def test_support_counts_what_is_beyond_two_standard_errors():
    good = Independence(rows=400, minority=0.1, label_accuracy=0.5, ratio=0.5, evenness=1.0, dependence=0.5)
    assert support_of(good) == 1.0
    for name, bad in (("dependence", 0.7), ("ratio", -0.6), ("evenness", 0.5), ("evenness", 2.0)):
        assert support_of(replace(good, **{name: bad})) == 0.0
    few = replace(good, rows=30)
    assert support_of(replace(few, evenness=1 / 1.5)) == 1.0, "a chance of so few rows"
    assert support_of(replace(good, ratio=-0.6, ratio_error=0.3)) == 1.0


def test_classes_count_alike_in_what_the_other_columns_tell():
    rng = np.random.default_rng(8)
    y = (rng.random(N) < 0.02).astype(int)
    side = np.where(rng.random(N) < 0.95, y, 1 - y)
    X = np.column_stack([side, rng.normal(size=(N, 30))])
    found = judged(X, y, side > 0)
    assert found.rows > 0, "only the large class has rows on both sides"
    assert abs(found.label_accuracy) < 0.08
    both = judged(X, 7 * y, side > 0)
    assert both == found, "classes that do not occur do not count"


def test_rows_of_equal_probability_are_even():
    rng = np.random.default_rng(9)
    y = rng.integers(0, 2, N)
    side = np.where(rng.random(N) < 0.95, y, 1 - y)
    others = np.where(rng.random((N, 1)) < 0.8, y[:, None], 1 - y[:, None])
    assert judged(np.column_stack([side, others]), y, side > 0).evenness == pytest.approx(1.0, abs=0.2)


def test_columns_of_zeros_and_ones_that_exclude_each_other_are_one_column():
    rng = np.random.default_rng(10)
    level, other = rng.integers(0, 3, N), rng.integers(0, 2, N)
    Z = Scaler.from_rows(np.column_stack([np.eye(3)[level], other])).apply(
        np.column_stack([np.eye(3)[level], other])
    )
    assert features_of(1, Z, ()) == (0, 1, 2)
    assert features_of(3, Z, ()) == (3,)


@pytest.mark.parametrize(("honest", "support"), [(False, 1.0), (True, 0.0)])
def test_a_strong_column_has_the_support_of_the_others_or_not(honest, support):
    X, y, side = table(10, honest=honest, core=0.7)
    Z = Scaler.from_rows(X).apply(X)
    p = np.where(side[:, None], [0.1, 0.9], [0.9, 0.1])
    found = strongest_in(Z, y, p)
    assert found.strength > 0.75
    assert found.support == support


@pytest.mark.parametrize("flips", [0.0, 0.03])
def test_a_shortcut_in_one_column_opens_the_gate_where_balancing_is_dear_and_an_honest_column_does_not(flips):
    X, y, _ = table(6, flips=flips)
    settings, ids = CueSettings(columns=(COLUMN,)), np.arange(N)
    state = fit(X, y, ids, settings, n_classes=2)
    assert state.evidence.cost > 0.18, "too dear without the judgement of the other columns"
    assert state.blend >= 0.5
    T, t, held_out = table(7, flips=0.0)
    scaler = Scaler.from_rows(X)

    def worst(w):
        right = predict(fit_softmax(scaler.apply(X), y, w, 2), scaler.apply(T)).argmax(axis=1) == t
        return min(right[(t == c) & (held_out == s)].mean() for c in (0, 1) for s in (False, True))

    assert worst(weights(state, X, y, ids)) > worst(np.ones(N)) + 0.2
    X, y, _ = table(6, honest=True, flips=flips)
    assert fit(X, y, ids, settings, n_classes=2).blend == 0.0


def rotated(X):
    """Return the principal components of rows."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return (Z @ np.linalg.svd(Z, full_matrices=False)[2].T).astype(np.float32)


def columns_that_go_together(seed, rows=4000):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 10)) @ (np.eye(10) + 0.1 * rng.normal(size=(10, 10)))


def test_principal_components_are_told_from_columns():
    X = columns_that_go_together(0)
    assert not are_components(X)
    assert are_components(rotated(X))
    assert are_components(rotated(X)[::3]), "a sample of the rows that they were fitted on"
    assert are_components(np.column_stack([rotated(X), np.ones(len(X))])), "constant features do not count"
    assert not are_components(np.column_stack([rotated(X), X[:, 0]]))
    assert not are_components(rotated(X)[:, :7]), "too few to say"


def test_components_that_share_a_shortcut_do_not_contradict_it(monkeypatch):
    """A bright corner of digits lies in several principal components, each of which tells its side."""
    data = load_digits()
    y, rng = (data.target >= 5).astype(np.int64), np.random.default_rng(0)
    shown = np.where(rng.random(len(y)) < 0.95, y, 1 - y)
    images = data.images.copy()
    images[shown == 1, :3, :3] = 16.0
    Z = rotated(images.reshape(len(y), -1)[:, images.reshape(len(y), -1).std(axis=0) > 0.5])[:, :30]
    Z /= Z.std(axis=0)
    p = predict(fit_softmax(Z, y, np.ones(len(y)), 2), Z)
    found = strongest_in(Z, y, p)
    assert found.strength > SLICE_VETO[1]
    assert (found.dependence > 0.6, found.support) == (True, 1.0)
    monkeypatch.setattr("operators.cues.search.strongest_slice.are_components", lambda _: False)
    assert strongest_in(Z, y, p).support == 0.0


def test_rows_that_break_are_judged_though_they_are_most_of_their_class() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    Z = (rng.normal(size=(4000, 3)) + 1.5 * y[:, None]).astype(np.float32)
    broken = rng.random(4000) < np.where(y == 1, 0.6, 0.1)
    found = independence(broken, Z, y, np.arange(4000), [0], seed=0, l2=1e-3)
    assert found.rows == broken.sum()
    assert found.minority == pytest.approx(np.mean([broken[y == c].mean() for c in (0, 1)]))
    every = independence(y == 1, Z, y, np.arange(4000), [0], seed=0, l2=1e-3)
    assert (every.rows, every.label_accuracy > 0.5) == (0, True), "a class of which all rows break it"
