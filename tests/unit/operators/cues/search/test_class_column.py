"""A column whose values stand for more than two classes: found, judged by the others, and balanced."""

from dataclasses import replace

import numpy as np
import pytest

from operators.cues import CueSettings, fit, robust_weights, weights
from operators.cues.decision import choice
from operators.cues.decision.decision import Decision, best_part
from operators.cues.fit_searched import fit_searched
from operators.cues.models.linear import Scaler, fit_softmax, predict
from operators.cues.models.trade_off import TradeOffPoint
from operators.cues.named.fit_named import fit_named
from operators.cues.row_weights import breaks
from operators.cues.search.class_column import LEAST_BALANCE, VETO, ClassColumn, candidates, judge
from operators.cues.search.evidence import EQUAL_RIVAL, Evidence
from operators.cues.search.ramps import COLUMN_RAMPS
from operators.cues.search.searched_rows import SearchedRows
from operators.cues.search.slices import find_slices
from operators.cues.serialise import load_state, save_state
from operators.cues.settings import Named, SourceColumn

N, C = 6000, 4
FORMS = ["number", "levels", "zeros and ones"]


def table(form, seed=0, *, honest=False, flips=0.0, shift=1.2):
    """Return rows, labels, the class that the first column names (93 of 100), and its features.

    Honest: the others follow what the column names, and the label does so, too.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, N)
    cue = np.where(rng.random(N) < 0.93, y, (y + rng.integers(1, C, N)) % C)
    others = rng.normal(size=(N, 6))
    others[:, :4] += shift * np.eye(4)[cue if honest else y]
    label = np.where(rng.random(N) < flips, (y + rng.integers(1, C, N)) % C, y)
    if form == "number":
        return np.column_stack([cue + 0.05 * rng.normal(size=N), others]), label, cue, ()
    columns = (SourceColumn(tuple(range(C))),) if form == "levels" else ()
    return np.column_stack([np.eye(C)[cue], others]), label, cue, columns


def found_in(X, y, columns, seed=0):
    Z, ids = Scaler.from_rows(X).apply(X), np.arange(len(y))
    half = np.random.default_rng(1).permutation(len(y)) % 2
    p = np.empty((len(y), C))
    for h in (0, 1):
        coef = fit_softmax(Z[half != h], y[half != h], np.ones((half != h).sum()), C, l2=1e-3)
        p[half == h] = predict(coef, Z[half == h])
    settings = CueSettings(seed=seed, columns=columns)
    rows = SearchedRows(Z, y, ids, p)
    likely = candidates(find_slices(Z, y, p), rows, settings)
    return (judge(likely[0], rows, settings) if likely else None), Z


@pytest.mark.parametrize("form", FORMS)
def test_a_column_is_found_by_what_its_values_stand_for(form):
    X, y, cue, columns = table(form)
    found, Z = found_in(X.astype(np.float32), y, columns)
    assert found is not None
    assert np.array_equal(found.sides.columns, range(C) if form != "number" else [0])
    side = found.sides.of_rows(Z)
    assert set(side.tolist()) == set(range(C))
    assert (side == cue).mean() > 0.97
    judged = found.judged
    assert judged.dependence == pytest.approx(0.5, abs=0.06)
    assert judged.ratio == pytest.approx(1.0, abs=0.2), "420 rows break it"


@pytest.mark.parametrize("form", FORMS)
def test_the_factors_make_the_label_independent_of_the_column(form):
    X, y, _, columns = table(form, 1)
    found, Z = found_in(X.astype(np.float32), y, columns)
    w, side = found.sides.apply(Z, y), found.sides.of_rows(Z)
    total = np.bincount(y * C + side, w, minlength=C * C).reshape(C, C)
    share = total / total.sum(axis=1, keepdims=True)
    assert np.abs(share - share.mean(axis=0)).max() < 0.02, "of no class more than of another"


def weighted_worst(X, y, cue, w):
    """Return the accuracy of the worst class among the rows that break the column, on the second half."""
    Z, train = Scaler.from_rows(X).apply(X), np.arange(len(y)) % 2 == 0
    coef = fit_softmax(Z[train], y[train], w[train], C, l2=1e-3)
    right = predict(coef, Z[~train]).argmax(axis=1) == y[~train]
    broken = cue[~train] != y[~train]
    return min(right[broken & (y[~train] == c)].mean() for c in range(C))


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_break_the_column_gain_and_the_state_survives_storage(form, tmp_path):
    X, y, cue, columns = table(form, 2)
    X, ids = X.astype(np.float32), np.arange(N)
    state = fit(X, y, ids, CueSettings(columns=columns), n_classes=C)
    assert state.class_column is not None
    assert state.blend >= 0.5
    w = weights(state, X, y, ids)
    gain = weighted_worst(X, y, cue, w) - weighted_worst(X, y, cue, np.ones(N))
    assert gain > 0.15
    broken = breaks(state, X, y, ids)
    assert (broken == (cue != y)).mean() > 0.97
    save_state(state, tmp_path)
    assert np.array_equal(weights(load_state(tmp_path), X[:99], y[:99], ids[:99]), w[:99])


def test_an_honest_column_is_told_from_a_shortcut_by_the_others():
    X, y, _, columns = table("levels", 3, honest=True)
    state = fit(X.astype(np.float32), y, np.arange(N), CueSettings(columns=columns), n_classes=C)
    assert state.evidence.column_strength > 0.3
    assert state.evidence.column_gate() == 0.0
    assert state.class_column is None


def test_a_legitimate_column_carries_nothing():
    X, y, _, columns = table("levels", 4)
    settings = CueSettings(columns=columns, legitimate=frozenset(range(C)))
    state = fit(X.astype(np.float32), y, np.arange(N), settings, n_classes=C)
    assert state.class_column is None
    assert state.blend == 0.0


def test_legitimate_values_that_others_repeat_carry_nothing():
    X, y, cue, _ = table("levels", 4)
    X = np.column_stack([cue == 1, X]).astype(np.float32)
    columns = (SourceColumn(tuple(range(1, C + 1))),)
    settings = CueSettings(columns=columns, legitimate=frozenset(range(1, C + 1)))
    state = fit(X, y, np.arange(N), settings, n_classes=C)
    assert state.class_column is None or not settings.legitimate & set(state.class_column.columns)


def test_a_value_that_the_sample_does_not_have_stands_for_no_class():
    X, y, _, columns = table("levels", 2)
    X, ids = X.astype(np.float32), np.arange(N)
    state = fit(X, y, ids, CueSettings(columns=columns), n_classes=C)
    assert state.class_column is not None
    X[:, :C] = 0.0
    assert not breaks(state, X, y, ids).any()
    w = weights(state, X, y, ids)
    assert np.ptp([np.unique(w[y == c]) for c in range(C)]) < 0.2, "about class balance, of all classes"


def test_a_value_that_goes_with_all_classes_stands_for_none():
    X, y, cue, _ = table("levels", 2)
    missing = np.random.default_rng(9).random(N) < 0.2
    X = np.column_stack([missing, X]).astype(np.float32)
    X[missing, 1 : C + 1] = 0.0
    ids, columns = np.arange(N), (SourceColumn(tuple(range(C + 1))),)
    state = fit(X, y, ids, CueSettings(columns=columns), n_classes=C)
    assert state.class_column is not None
    assert not breaks(state, X, y, ids)[missing].any()
    w = state.class_column.apply(state.scaler.apply(X), y)
    assert np.abs(w[missing] - 1.0).max() < 0.2
    total = np.bincount((y * C + cue)[~missing], w[~missing], minlength=C * C).reshape(C, C)
    share = total / total.sum(axis=1, keepdims=True)
    assert np.abs(share - share.mean(axis=0)).max() < 0.03


def test_the_column_of_a_state_that_names_a_shortcut_is_the_one_that_is_balanced():
    X, y, _, columns = table("levels", 2)
    X, ids = X.astype(np.float32), np.arange(N)
    Z, scaler = Scaler.from_rows(X).apply(X), Scaler.from_rows(X)
    settings = CueSettings(columns=columns, spurious=(Named((C,)),))
    search = fit_searched(Z, y, ids, settings, C, scaler, np.ones(C)).state
    assert search.class_column is not None
    assert fit_named(Z, y, ids, settings, C, replace(search, blend=0.0)).class_column is None
    named = fit_named(Z, y, ids, settings, C, search)
    assert named.class_column is None
    assert [one.columns for one in named.named] == [search.class_column.columns, (C,)]


def test_a_named_number_has_intervals_that_stand_for_each_class_unless_the_user_cuts_it():
    X, y, cue, columns = table("number", 3)
    X, ids = X.astype(np.float32), np.arange(N)
    state, cut = (
        fit(X, y, ids, CueSettings(columns=columns, spurious=(Named((0,), cut=at),)), n_classes=C)
        for at in (None, 1.5)
    )
    Z = state.scaler.apply(X)
    assert len(state.named[0].cuts) >= C - 1
    side = state.named[0].of_rows(Z)
    assert (side == cue).mean() > 0.97
    assert len(cut.named[0].cuts) == 1
    assert cut.searched_part > 0 == state.searched_part, "a slice leaves the rest of the column to the search"
    w = state.named[0].apply(Z, y)
    total = np.bincount(y * C + side, w, minlength=C * C).reshape(C, C)
    share = total / total.sum(axis=1, keepdims=True)
    assert np.abs(share - share.mean(axis=0)).max() < 0.02, "of no class more than of another"


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_confirms_the_search_changes_no_weight(form):
    X, y, _, columns = table(form, 3)
    X, ids = X.astype(np.float32), np.arange(N)
    silent = fit(X, y, ids, CueSettings(columns=columns), n_classes=C)
    assert silent.blend > 0.85
    for name in (Named(silent.class_column.columns), Named(silent.class_column.columns, one_of=True)):
        answered = fit(X, y, ids, CueSettings(columns=columns, spurious=(name,)), n_classes=C)
        assert answered.searched_part == 0.0
        assert np.allclose(weights(answered, X, y, ids), weights(silent, X, y, ids))


def test_wrong_labels_lower_the_part_that_is_balanced():
    X, y, _, columns = table("levels", 5, flips=0.06)
    noisy, _ = found_in(X.astype(np.float32), y, columns)
    clean, _ = found_in(*(lambda t: (t[0].astype(np.float32), t[1], t[3]))(table("levels", 5)))
    assert noisy.judged.ratio < 0.75 < clean.judged.ratio
    assert LEAST_BALANCE <= noisy.part() < clean.part() == 1.0


@pytest.mark.parametrize("form", FORMS)
def test_of_two_classes_the_column_is_balanced_where_the_search_finds_a_shortcut(form):
    rng = np.random.default_rng(6)
    y = rng.integers(0, 2, N)
    cue = np.where(rng.random(N) < 0.93, y, 1 - y)
    others = rng.normal(size=(N, 6)) + 0.6 * np.eye(1, 6) * (2 * y[:, None] - 1)
    shown = cue[:, None] + 0.05 * rng.normal(size=(N, 1)) if form == "number" else np.eye(2)[cue]
    columns = (SourceColumn((0, 1)),) if form == "levels" else ()
    X, ids = np.hstack([shown, others]).astype(np.float32), np.arange(N)
    state = fit(X, y, ids, CueSettings(columns=columns))
    assert state.evidence.searched_gate() > 0.1
    assert (state.class_column is not None, state.blend) == (True, 1.0)
    w, broken = weights(state, X, y, ids), cue != y
    for c in (0, 1):
        parts = [w[(y == c) & (broken == b)].sum() for b in (False, True)]
        assert parts[0] == pytest.approx(parts[1], rel=0.1), "both sides have the same total"


def with_missing(share, n_classes, seed=6):
    """Return rows whose first columns are values that tell 96 labels of 100, and "missing" in such a part."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, N)
    cue = np.where(rng.random(N) < 0.96, y, (y + rng.integers(1, n_classes, N)) % n_classes)
    missing = rng.random(N) < share
    level = np.where(missing, n_classes, cue)
    others = rng.normal(size=(N, 6))
    others[:, :n_classes] += 1.1 * np.eye(n_classes)[y]
    columns = (SourceColumn(tuple(range(n_classes + 1))),)
    return np.hstack([np.eye(n_classes + 1)[level], others]).astype(np.float32), y, cue, missing, columns


@pytest.mark.parametrize("n_classes", [2, 3])
def test_missing_values_hide_no_shortcut(n_classes):
    whole, parts = (with_missing(share, n_classes) for share in (0.0, 0.3))
    strengths, opened = [], []
    for X, y, cue, missing, columns in (whole, parts):
        state = fit(X, y, np.arange(N), CueSettings(columns=columns))
        strengths.append(state.evidence.column_strength)
        opened.append(state.blend)
        broken = breaks(state, X, y, np.arange(N))
        assert (broken == (cue != y))[~missing].mean() > 0.97
        assert not broken[missing].any()
    assert strengths[1] == pytest.approx(strengths[0], abs=0.1)
    assert min(opened) >= 0.75
    assert state.evidence.column_share_with_class == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_named_category_with_missing_values_is_balanced_by_the_others(n_classes):
    X, y, cue, missing, columns = with_missing(0.3, n_classes)
    ids, named = np.arange(N), Named(columns[0].features)
    state = fit(X, y, ids, CueSettings(columns=columns, spurious=(named,)))
    factor = state.named[0].apply(state.scaler.apply(X), y)
    assert np.abs(factor[missing] - 1.0).max() < 0.1, "a missing value breaks nothing"
    total = np.bincount((y * n_classes + cue)[~missing], factor[~missing]).reshape(n_classes, n_classes)
    share = total / total.sum(axis=1, keepdims=True)
    assert np.abs(share - share.mean(axis=0)).max() < 0.02
    assert not breaks(state, X, y, ids)[missing].any()


def test_of_two_classes_a_column_alone_opens_no_gate():
    shut = replace(CARRIED, classes=2)
    assert shut.column_gate() == 1.0
    assert shut.searched_gate() == 0.0


CARRIED = Evidence(
    agreement=0.0,
    mistake_confidence=0.0,
    crispness=0.0,
    recovery=0.0,
    error=0.1,
    cost=0.5,
    gain=0.0,
    righted=0.0,
    classes=4,
    column_strength=0.8,
    column_minority=0.1,
    column_label_accuracy=0.4,
    column_ratio=0.9,
    column_dependence=0.5,
    column_unevenness=1.0,
)


@pytest.mark.parametrize("name", [name for name in COLUMN_RAMPS if name.startswith("column_")])
def test_each_measurement_shuts_the_gate(name):
    assert CARRIED.gate() == 1.0
    assert replace(CARRIED, **{name: COLUMN_RAMPS[name][0]}).gate() == 0.0


def test_the_error_is_measured_against_that_of_chance():
    assert replace(CARRIED, error=0.3).gate() == 1.0, "chance is wrong in .75 of the rows of four classes"
    assert replace(CARRIED, error=0.3, classes=2).gate() == 0.0


def point(strength, worst):
    return TradeOffPoint(strength, 0.8, 0.7, 0.9, worst, worst, worst, (0,), 99, 1.0)


def test_the_part_is_the_best_for_the_worst_group_within_the_gate():
    points = tuple(
        point(*one) for one in ((0.0, 0.9), (1.0, 0.9), (1.25, 0.2), (1.5, 0.4), (1.75, 0.4), (2.0, 0.5))
    )
    assert best_part(points, 1.0) == 1.0
    assert best_part(points, 0.75) == 0.5, "the lesser one of equal parts"
    assert best_part(points, 0.25) == 0.0, "less than half is not followed"


def test_no_column_carries_where_features_are_noise():
    rng = np.random.default_rng(7)
    y, Z = rng.integers(0, C, N), rng.normal(size=(N, 3)).astype(np.float32)
    p = np.full((N, C), 1 / C) + 1e-3 * rng.normal(size=(N, C))
    assert candidates(find_slices(Z, y, p), SearchedRows(Z, y, np.arange(N), p), CueSettings()) == []
    assert ClassColumn.__dataclass_params__.frozen


def test_a_strong_column_that_the_others_tell_shuts_the_gate_of_the_search():
    strong = replace(CARRIED, agreement=0.8, mistake_confidence=0.5, crispness=0.9, recovery=0.8, gain=0.1)
    strong = replace(strong, cost=0.0, column_dependence=0.8)
    assert strong.gate() == 1.0
    shut = replace(strong, column_support=0.0)
    assert (shut.gate(), shut.weakest()) == (0.0, "slice_support")


@pytest.mark.parametrize(("honest", "support"), [(False, 1.0), (True, 0.0)])
def test_the_others_support_a_shortcut_or_not(honest, support):
    X, y, _, columns = table("levels", 8, honest=honest, shift=0.8)
    found, _ = found_in(X.astype(np.float32), y, columns)
    assert found.column_strength > VETO[1]
    assert found.support == support


def test_a_column_that_gains_much_is_balanced_where_twins_and_slices_gain_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    cue = np.where(rng.random(4000) < 0.93, y, 1 - y)
    core = rng.normal(size=(4000, 6)) + np.outer(2 * y - 1, [0.7, 0, 0.3, 0.4, 0, 0])
    X, ids = np.column_stack([core, cue + 0.25 * rng.normal(size=4000)]).astype(np.float32), np.arange(4000)
    decide_as_usual = choice.decide_on

    def twins_gain_nothing(found, *rest, **more):
        return (
            decide_as_usual(found, *rest, **more)
            if found.class_column is not None
            else Decision(1.0, 0.0, ())
        )

    monkeypatch.setattr(robust_weights, "follow_in_full", lambda search, _, decision, *__: (search, decision))
    monkeypatch.setattr(choice, "decide_on", twins_gain_nothing)
    state = fit(X, y, ids, CueSettings())
    assert (state.class_column is not None, state.blend) == (True, 1.0)
    assert (breaks(state, X, y, ids) == (cue != y)).mean() > 0.97
    for limit, value in (("SURE_RISE", 1.0), ("MIN_GROUP_ROWS", 1000), ("SURE_COLUMN", 1.1)):
        with monkeypatch.context() as patch:
            patch.setattr(choice, limit, value)
            assert fit(X, y, ids, CueSettings()).blend == 0.0, limit
    for rare in (0, 2):  # a class of thirty rows changes nothing, whatever its place in the order
        with_rare = np.append(np.where(y >= rare, y + 1, y), np.full(30, rare))
        more = np.vstack([X, rng.normal(size=(30, 7)).astype(np.float32)])
        state = fit(more, with_rare, np.arange(4030), CueSettings())
        assert (state.class_column is not None, state.blend) == (True, 1.0), rare


def test_of_two_columns_that_are_as_strong_none_is_balanced_in_place_of_twins_and_slices():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 6000)
    X = (rng.normal(size=(6000, 5)) + np.outer(2 * y - 1, [0.5, 0.5, 0.5, 0, 0])).astype(np.float32)
    first, second = (np.where(rng.random(6000) < 0.92, y, 1 - y) for _ in range(2))
    settings, ids = CueSettings(), np.arange(6000)

    def search(*columns):
        scaler = Scaler.from_rows(shown := np.column_stack([X, *columns]).astype(np.float32))
        return fit_searched(scaler.apply(shown), y, ids, settings, 2, scaler, np.ones(2))[:2]

    state, column = search(first)
    assert state.class_column is not None
    assert state.class_column is column
    assert state.evidence.slice_rival < EQUAL_RIVAL
    state, column = search(first, second)
    assert state.evidence.slice_rival >= EQUAL_RIVAL
    assert (state.class_column, column) == (None, None)
    again, _ = search(first, -first)
    assert again.evidence.slice_rival < EQUAL_RIVAL, "a repetition is the same column"


def test_a_gate_that_a_column_as_strong_shuts_is_reported_as_shut():
    missing = replace(CARRIED, classes=2, column_share_with_class=0.7)
    assert missing.gate() == 1.0
    rivalled = replace(missing, slice_rival=EQUAL_RIVAL)
    assert rivalled.gate() == rivalled.searched_gate() == 0.0
    assert replace(CARRIED, slice_rival=EQUAL_RIVAL).gate() == 1.0, "more classes are judged without a rival"
