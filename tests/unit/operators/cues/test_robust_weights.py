"""fit and weights as a whole."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from operators.cues import CueSettings, Named, fit, load_state, save_state, weights
from operators.cues.fit_searched import fit_searched
from operators.cues.models.linear import Scaler, class_balance, fit_softmax, predict
from operators.cues.named.fit_named import fit_named
from operators.cues.named.named_sides import fit_sides
from operators.cues.row_weights import full_factor
from operators.cues.search.ramps import RAMPS
from operators.cues.search.slices import find_slices
from operators.cues.search.suspects import Suspect, measure_suspects, measured_sample
from operators.cues.serialise import _encode


def worst(X, w, label, y, cue):
    Z = Scaler.from_rows(X).apply(X)
    right = predict(fit_softmax(Z, label, w, 2, l2=1e-4), Z).argmax(axis=1) == y
    return min(right[(y == a) & (cue == b)].mean() for a in (0, 1) for b in (0, 1))


def suspects_of(X, y, ids, n_classes=None) -> list[Suspect]:
    sample, p = measured_sample(X, y, ids, None, n_classes)
    return measure_suspects(find_slices(sample.Z, sample.y, p), sample)


def test_a_strong_cue_opens_the_gate_and_helps_the_minority(cue_problem):
    X, label, y, cue, ids = cue_problem
    state = fit(X, label, ids)
    w = weights(state, X, label, ids)
    assert state.blend > 0.9
    assert worst(X, w, label, y, cue) > worst(X, class_balance(label, 2), label, y, cue) + 0.1


def test_without_a_cue_a_hard_table_gets_class_balance():
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.25).astype(int)
    X = (rng.normal(size=(4000, 6)) + 0.3 * y[:, None]).astype(np.float32)
    ids = np.arange(4000)
    state = fit(X, y, ids)
    assert state.blend == 0
    assert np.allclose(weights(state, X, y, ids), class_balance(y, 2))


@pytest.mark.parametrize("seed", [2, 4, 8, 9])
def test_honest_signal_with_wrong_labels_opens_no_gate(seed):
    # Wrong labels are confident mistakes: without the measured gain the gate would be open, for nothing.
    rng = np.random.default_rng(seed)
    n = 2000
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 10)).astype(np.float32)
    X[:, :4] += (2 * y[:, None] - 1) * 0.8
    label = np.where(rng.random(n) < 0.04, 1 - y, y)
    state = fit(X, label, np.arange(n))
    ramps = state.evidence.ramps(RAMPS)
    others = ("agreement", "mistake_confidence", "crispness", "recovery", "error", "cost")
    assert np.prod([ramps[name] for name in others]) == 1.0
    assert state.evidence.gain <= 0
    assert state.blend == 0
    assert np.allclose(weights(state, X, label, np.arange(n)), class_balance(label, 2))


def test_a_cue_of_five_classes_opens_the_gate_and_helps():
    rng = np.random.default_rng(2)
    n, C = 6000, 5
    y, means = rng.integers(0, C, n), 1.2 * rng.normal(size=(C, 6))
    core = (means[y] + rng.normal(size=(n, 6))).astype(np.float32)
    cue = np.where(rng.random(n) < 0.92, y, (y + rng.integers(1, C, n)) % C)
    X = np.column_stack([core, np.eye(C)[cue]]).astype(np.float32)
    label, ids = np.where(rng.random(n) < 0.04, (y + 1) % C, y), np.arange(n)
    state = fit(X, label, ids)
    assert state.evidence.recovery < 0.45  # of the worst class, which alone shut the gate before
    assert state.blend > 0.6
    w, broken = weights(state, X, label, ids), y != cue
    Z = Scaler.from_rows(X).apply(X)
    right = [
        (predict(fit_softmax(Z, label, given, C), Z).argmax(axis=1) == y)[broken].mean()
        for given in (w, class_balance(label, C))
    ]
    assert right[0] > right[1] + 0.1


def test_a_class_of_few_rows_leaves_the_gate_open(cue_problem):
    X, label, _, _, ids = cue_problem
    label = label.copy()
    label[:6] = 2
    state = fit(X, label, ids)
    assert state.blend > 0.9
    w = weights(state, X, label, ids)
    totals = np.bincount(label, w)
    assert totals[2] < 0.3 * totals[0]


def test_classes_are_balanced_less_where_that_serves_the_worst_class():
    rng = np.random.default_rng(1)
    y = (rng.random(6000) < 0.4).astype(int)
    X = rng.normal(size=(6000, 3)).astype(np.float32)
    X[:, 0] = np.where(y == 1, 1.0 + 0.3 * X[:, 0], 1.2 * X[:, 0])  # the rare class is the easy one
    full = fit(X, y, np.arange(6000))
    assert full.class_strength in (0.0, 0.5)
    w = weights(full, X, y, np.arange(6000))
    assert w[y == 0].sum() > 1.1 * w[y == 1].sum()
    recalls = [
        min((predict(fit_softmax(X, y, given, 2), X).argmax(axis=1) == y)[y == c].mean() for c in (0, 1))
        for given in (w, class_balance(y, 2))
    ]
    assert recalls[0] > recalls[1]
    named = fit(X, y, np.arange(6000), CueSettings(spurious=(Named((2,)),)))
    assert named.class_strength == full.class_strength
    assert named.blend == 0.85
    assert named.published_strength is None  # not on the curve, which balances the classes in full above 1


def test_weights_stream_and_do_not_depend_on_the_order_of_rows(cue_problem):
    X, label, _, _, ids = cue_problem
    state = fit(X, label, ids)
    whole = weights(state, X, label, ids)
    parts = [
        weights(state, X[i : i + 700], label[i : i + 700], ids[i : i + 700]) for i in range(0, len(ids), 700)
    ]
    assert np.array_equal(np.float32(np.concatenate(parts)), np.float32(whole))
    order = np.random.default_rng(1).permutation(len(ids))
    again = fit(X[order], label[order], ids[order])
    assert np.allclose(weights(again, X, label, ids), whole, rtol=0.05)


def test_fit_is_deterministic_and_survives_its_files(cue_problem, tmp_path):
    X, label, _, _, ids = cue_problem
    state = fit(X, label, ids)
    for name, value in (("one", state), ("two", fit(X, label, ids))):
        (tmp_path / name).mkdir()
        save_state(value, tmp_path / name)
    for file in ("cues.json", "cues.npz"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    # Names in the file are part of its format: a class may be renamed, its name in the file may not.
    structure = json.loads((tmp_path / "one" / "cues.json").read_text())
    assert (structure["type"], structure["points"]["data"][0]["type"]) == ("State", "Point")
    again = load_state(tmp_path / "one")
    assert np.array_equal(weights(again, X, label, ids), weights(state, X, label, ids))


def test_other_files_are_no_state(tmp_path):
    (tmp_path / "cues.json").write_text("[]")
    np.savez(tmp_path / "cues.npz", a=np.zeros(1))
    with pytest.raises(ValueError, match="no state"):
        load_state(tmp_path)


def test_rows_outside_the_sample_are_weighted_like_those_inside(cue_problem):
    X, label, y, cue, ids = cue_problem
    state = fit(X, label, ids, CueSettings(max_rows=2000))
    w = weights(state, X, label, ids)
    broken = (y != cue) & (label == y)
    assert w[broken].mean() > 2 * w[~broken].mean()


def test_a_named_shortcut_is_balanced(cue_problem, tmp_path):
    X, label, _, _, ids = cue_problem
    for name in (Named((6,)), Named((6,), cut=1.0)):
        settings = CueSettings(spurious=(name,), named_share=1.0, searched_share=0.0, min_effective=0.01)
        state = fit(X, label, ids, settings)
        w = weights(state, X, label, ids)
        cells = np.bincount(2 * label + (X[:, 6] > 1), w).reshape(2, 2)
        assert np.allclose(cells, cells.mean(), rtol=0.02), "the sides keep the shares that they have"
        folder = tmp_path / str(name.cut)
        folder.mkdir()
        save_state(state, folder)
        assert np.array_equal(weights(load_state(folder), X, label, ids), w)


def test_a_named_number_is_independent_of_the_label_of_any_number_of_classes():
    """It went 2 / C of the way, and every text said that it was balanced in full."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 4, 4000)
    Z = np.where(rng.random((4000, 1)) < 0.9, y[:, None] > 1, y[:, None] < 2).astype(np.float32)
    w = fit_sides(Named((0,)), Z, y, 4, 0.5).apply(Z, y)
    cells = np.bincount(2 * y + (Z[:, 0] > 0.5), w, minlength=8).reshape(4, 2)
    assert np.allclose(cells.sum(axis=1), np.bincount(y)), "a class keeps its weight"
    shares = cells[:, 1] / cells.sum(axis=1)
    assert np.allclose(shares, shares[0])


def test_no_row_breaks_a_named_number_in_a_class_that_goes_with_neither_side():
    """Half of the rows of such a class counted as rows that break it, by chance."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 5, 5000)
    share = np.array([0.95, 0.9, 0.62, 0.58, 0.05])[y]
    Z = (rng.random((5000, 1)) < share[:, None]).astype(np.float32)
    breaks = fit_sides(Named((0,)), Z, y, 5, 0.5).breaks(Z, y)
    assert [breaks[y == c].mean() < 0.2 for c in range(5)] == [True] * 5
    assert breaks[y == 4].tolist() == (Z[y == 4, 0] > 0).tolist()
    assert not breaks[np.isin(y, (2, 3))].any()


def _without_columns(monkeypatch):
    """Let the search find no column, so that twins and slices are followed."""

    def without_columns(*arguments):
        found = fit_searched(*arguments)
        return found._replace(state=replace(found.state, class_column=None), column=None, together=None)

    monkeypatch.setattr("operators.cues.robust_weights.fit_searched", without_columns)


def test_twins_that_show_the_named_shortcut_have_no_part_beside_it(cue_problem, monkeypatch):
    _without_columns(monkeypatch)
    X, label, _, _, ids = cue_problem
    settings = CueSettings(spurious=(Named((6,)),))
    assert fit(X, label, ids, settings).searched_part == 0.5, "the worst group is better with them"
    monkeypatch.setattr("operators.cues.robust_weights._worst", lambda *_: 0.5)
    assert fit(X, label, ids, settings).searched_part == 0.0, "the worst group is no worse without them"
    monkeypatch.setattr("operators.cues.robust_weights.SAME_SHORTCUT", 1.1)
    assert fit(X, label, ids, settings).searched_part == 0.5, "they show something else"


def test_twins_that_find_a_shortcut_have_a_part_beside_the_name(cue_problem, monkeypatch):
    _without_columns(monkeypatch)
    X, label, y, cue, ids = cue_problem
    found = fit(X, label, ids)
    named = fit(X, label, ids, CueSettings(spurious=(Named((0,)),)))
    assert found.blend == 1.0
    assert named.searched_part == 0.5
    broken = (y != cue) & (label == y)
    w = weights(named, X, label, ids)
    assert w[broken].mean() > 2 * w[~broken].mean()  # the name is a column of the core
    alone = fit(X, label, ids, CueSettings(spurious=(Named((0,)),), searched_share=0.0))
    assert alone.twins is None
    expected = 0.5 * full_factor(found, X, label, ids) + 0.5 * full_factor(alone, X, label, ids)
    assert np.allclose(full_factor(named, X, label, ids), expected)


def test_a_named_feature_is_balanced_whatever_it_costs_unless_the_user_sets_a_limit():
    rng = np.random.default_rng(5)
    n = 4000
    X = rng.normal(size=(n, 4)).astype(np.float32)
    X[:, 0] = rng.random(n) < 0.5
    y = (3.0 * (2 * X[:, 0] - 1) + 2.0 * X[:, 1] + rng.logistic(size=n) > 0).astype(int)
    ids, name = np.arange(n), (Named((0,)),)
    full = fit(X, y, ids, CueSettings(spurious=name))
    limited = fit(X, y, ids, CueSettings(spurious=name, max_named_cost=0.025))
    assert full.blend == 1.0, "as without the name"
    assert full.named_cost > 0.05
    assert limited.blend in (2 / 3, 1 / 3, 1 / 6)
    assert limited.named_cost < full.named_cost / 2
    none = fit(X, y, ids, CueSettings(spurious=name, max_named_cost=0.0))
    assert none.blend == 0.0
    assert np.allclose(weights(none, X, y, ids), class_balance(y, 2))
    other = CueSettings(spurious=(Named((3,)),), max_named_cost=0.025, searched_share=0.0)
    nothing_lost = fit(X, y, ids, other)
    assert nothing_lost.blend == 1.0


@pytest.mark.parametrize("named", [(Named((6,)),), (Named((0,)), Named((6,), cut=1.0))])
def test_a_named_fit_takes_models_and_slices_from_the_search(cue_problem, named, monkeypatch):
    X, label, ids = (cue_problem[k][:1500] for k in (0, 1, 4))
    settings, scaler = CueSettings(spurious=named), Scaler.from_rows(X)
    Z = scaler.apply(X)
    search = replace(fit_searched(Z, label, ids, settings, 2, scaler, np.ones(2))[0], blend=0.0)
    afresh = fit_named(Z, label, ids, settings, 2, replace(search, twins=None))
    monkeypatch.setattr("operators.cues.named.fit_named.fit_halves", None)
    reused = fit_named(Z, label, ids, settings, 2, search)
    assert arrays_of(reused) == arrays_of(afresh)


def arrays_of(state):
    """Return every number of a state as text and bytes."""
    found = {}
    return json.dumps(_encode(state, found)), {name: value.tobytes() for name, value in found.items()}


def test_a_column_that_the_search_follows_stays_in_full_beside_another_name(cue_problem):
    X, label, y, cue, ids = cue_problem
    found = fit(X, label, ids)
    named = fit(X, label, ids, CueSettings(spurious=(Named((0,)),)))
    assert [one.columns for one in named.named] == [(6,), (0,)]
    assert (named.searched_part, named.blend) == (0.0, found.blend)
    broken = (y != cue) & (label == y)
    for state in (found, named):
        w = weights(state, X, label, ids)
        assert w[broken].mean() > 2 * w[~broken].mean()


def test_naming_a_constant_leaves_what_the_search_finds(cue_problem):
    X, label, _, _, ids = cue_problem
    w, found = (
        weights(fit(X, label, ids, CueSettings(spurious=names)), X, label, ids)
        for names in ((Named((7,)),), ())
    )
    assert np.array_equal(w, found)


def test_naming_a_constant_gives_class_balance_where_nothing_is_found():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    X = np.column_stack([rng.normal(size=(1000, 3)) + 0.4 * y[:, None], np.ones(1000)]).astype(np.float32)
    w = weights(fit(X, y, np.arange(1000), CueSettings(spurious=(Named((3,)),))), X, y, np.arange(1000))
    assert np.allclose(w, class_balance(y, 2))


def test_a_legitimate_feature_has_no_part_in_the_weights(cue_problem):
    X, label, _, _, ids = cue_problem
    settings = CueSettings(legitimate=frozenset({6}), setting="bold")
    state = fit(X, label, ids, settings)
    other = X.copy()
    other[:, 6] = 0.0
    assert 6 not in state.slices.feature
    assert np.allclose(weights(state, X, label, ids), weights(state, other, label, ids))


@pytest.mark.parametrize("setting", ["safe", "bold"])
@pytest.mark.parametrize("columns", [1, 60])
def test_small_and_odd_tables(setting, columns):
    rng = np.random.default_rng(2)
    sizes = [20, 300, 2, 150, 40, 40, 40, 40, 40, 40]
    y = np.repeat(np.arange(10), sizes)
    X = (rng.random((len(y), columns)) < 0.05 + 0.08 * y[:, None]).astype(np.float32)
    X[:, -1] = 1.0
    ids = np.arange(len(y))
    state = fit(X, y, ids, CueSettings(setting=setting))
    w = weights(state, X, y, ids)
    assert np.isfinite(w).all()
    assert w.min() >= 0
    assert (w <= 20 * class_balance(y, 10) * (1 + 1e-9)).all()
    assert (state.effective >= 0.2 - 1e-6).all()


def test_class_counts_of_the_whole_table_decide_the_class_balance(cue_problem):
    X, label, _, _, ids = cue_problem
    state = fit(X, label, ids, class_counts=np.array([9000, 1000]))
    assert np.allclose(state.class_factor, [10 / 18, 5.0])


def test_bad_input_is_named():
    X, y, ids = np.ones((4, 2), np.float32), np.array([0, 0, 1, 1]), np.arange(4)
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match="feature 1 of the row with id 2 is nan"):
        fit(X, y, ids)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ((np.ones((300, 2)), np.arange(300) % 2), "every feature is constant"),
        ((np.arange(300.0).reshape(300, 1), np.zeros(300, int)), "only one class has rows"),
        ((np.arange(99.0).reshape(99, 1), np.arange(99) % 2), "99 rows are fewer than 100"),
        ((np.arange(909.0).reshape(909, 1), np.arange(909) % 101), "101 classes are more than 100"),
        ((np.empty((0, 3)), np.empty(0, int)), "there are no rows"),
        ((np.empty((200, 0)), np.arange(200) % 2), "every feature is constant"),
    ],
)
def test_where_nothing_can_be_learnt_weights_are_class_balanced(rows, reason):
    X, y = rows[0].astype(np.float32), rows[1]
    ids = np.arange(len(y))
    for settings in (CueSettings(setting="bold"), CueSettings(spurious=(Named((0,)),))):
        state = fit(X, y, ids, settings, n_classes=max(len(np.unique(y)), 2))
        assert state.reason == reason
        assert np.allclose(weights(state, X, y, ids), class_balance(y, 101))


@pytest.mark.parametrize("columns", [1, 3, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("spurious", [(), (Named((0,)),)])
def test_classes_of_one_row_and_huge_values(columns, spurious):
    rng = np.random.default_rng(4)
    y = np.append(np.arange(400) % 2, [2, 3])
    X = rng.normal(size=(402, columns)).astype(np.float32)
    X[:5, 0] = [3.4e38, -3.4e38, 1e-38, 0, 3.4e38]
    ids = np.arange(402)
    for setting in ("safe", "bold"):
        state = fit(X, y, ids, CueSettings(setting=setting, spurious=spurious), n_classes=5)
        w = weights(state, X, y, ids)
        assert np.isfinite(w).all()
        assert (w <= 20 * class_balance(y, 5) * (1 + 1e-9)).all()
    suspects_of(X, y, ids, n_classes=5)


def test_the_cue_is_the_first_suspect(cue_problem):
    X, label, _, _, ids = cue_problem
    found = suspects_of(X, label, ids)
    first = found[0]
    assert first.feature == 6
    assert first.strength > 2 * found[1].strength
    assert 0 < first.gap.middle < 2
    assert abs(first.share - 0.5) < 0.05
    assert first.gain > 0.1
    assert first.cost < 0.2
    assert len({s.feature for s in found}) == len(found)
