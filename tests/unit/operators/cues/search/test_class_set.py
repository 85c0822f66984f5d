"""A shortcut that tells one of several classes, or a set of them, from all others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from operators.class_shares import class_factors
from operators.cues import CueSettings, CueState, fit, weights
from operators.cues.decision import choice
from operators.cues.decision.decision import Decision
from operators.cues.decision.sample_decision import Sample, decide_on
from operators.cues.fit_searched import fit_searched
from operators.cues.models.linear import Scaler, class_balance, fit_softmax, predict
from operators.cues.named.references import FeatureColumns
from operators.cues.output.listing import _class_sets as sets_record
from operators.cues.output.listing import shortcut_names
from operators.cues.output.verdict import verdict
from operators.cues.row_weights import breaks
from operators.cues.search.class_set import class_sets
from operators.cues.settings import SourceColumn
from operators.cues.state import Search
from tests.unit.operators.cues.output.test_cue_report import FOUND

N, C, TARGET = 9000, 3, 1
IDS = np.arange(N)
NAMES = 4


def table(form: str, *, n: int = N, seed: int = 4, told: float = 0.93, honest: bool = False) -> Any:
    """Features with the column behind six others, labels, whether the column says TARGET, source columns.

    The others tell the label, or with ``honest`` what the column says.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    belongs = (y == TARGET).astype(int)
    cue = np.where(rng.random(n) < told, belongs, 1 - belongs)
    X = rng.normal(size=(n, 6))
    shown = np.where(cue == 1, TARGET, np.where(y == TARGET, 0, y)) if honest else y
    X[np.arange(n), shown] += 1.2
    name = np.where(cue == 1, 0, rng.integers(1, NAMES + 1, n))
    column = {
        "0/1": cue[:, None].astype(float),
        "number": (2 * cue + 0.15 * rng.normal(size=n))[:, None],
        "name": np.eye(NAMES + 1)[name],
    }[form]
    columns = (SourceColumn(tuple(range(6, 6 + NAMES + 1))),) if form == "name" else ()
    return np.column_stack([X, column]).astype(np.float32), y, cue, columns


def worst_group(weight: Any, X: Any, y: Any, form: str) -> float:
    rows, label, cue, _ = table(form, n=40_000, seed=9, told=0.5)
    scaler = Scaler.from_rows(X)
    coef = fit_softmax(scaler.apply(X), y, weight, C, l2=1e-4)
    right = predict(coef, scaler.apply(rows)).argmax(axis=1) == label
    group = 2 * label + cue
    return float((np.bincount(group, right) / np.bincount(group)).min())


@pytest.mark.parametrize("form", ["0/1", "number", "name"])
def test_it_is_found_and_balanced(form: str):
    X, y, cue, columns = table(form)
    state = fit(X, y, IDS, CueSettings(columns=columns))
    assert state.class_column is not None
    assert 6 in state.class_column.columns
    assert state.blend >= 0.75
    assert np.mean(breaks(state, X, y, IDS) == (cue != (y == TARGET))) > 0.995
    factor = state.class_column.apply(state.scaler.apply(X), y)
    share = [np.average(cue[y == c], weights=factor[y == c]) for c in range(C)]
    np.testing.assert_allclose(share, np.mean([np.mean(cue[y == c]) for c in range(C)]), atol=0.01)
    w = weights(state, X, y, IDS)
    assert worst_group(w, X, y, form) > worst_group(class_balance(y, C), X, y, form) + 0.25


@pytest.mark.parametrize("form", ["0/1", "number", "name"])
def test_it_takes_the_place_of_twins_that_see_less_of_it(form: str):
    X, y, _, columns = table(form, told=0.96)
    s = CueSettings(columns=columns)
    scaler, counts = Scaler.from_rows(X), np.bincount(y)
    found = fit_searched(scaler.apply(X), y, IDS, s, C, scaler, class_factors(counts))
    assert found.state.blend >= 0.5
    assert found.state.class_column is None
    assert found.class_set is not None
    state = fit(X, y, IDS, s)
    assert state.class_column is not None
    assert state.class_column.class_sets == ((0, 2), (TARGET,))
    sample = Sample(X, y, IDS, counts)
    twins = decide_on(found.state, sample, s)
    w, without = weights(state, X, y, IDS), weights(_decided(found.state, twins), X, y, IDS)
    assert worst_group(w, X, y, form) > worst_group(without, X, y, form) + 0.1


def _decided(state: CueState, decision: Decision) -> CueState:
    return replace(state, blend=decision.blend)


def test_it_does_not_where_held_out_rows_do_not_favour_it(monkeypatch: pytest.MonkeyPatch):
    X, y, _, columns = table("0/1", told=0.96)
    monkeypatch.setattr(choice, "CLEAR_RISE", 1.0)
    state = fit(X, y, IDS, CueSettings(columns=columns))
    assert state.class_column is None or not state.class_column.class_sets


def search_of_named_classes() -> tuple[Search, Sample, CueSettings]:
    """What the search finds where the values of a column stand for each class."""
    X, y, _, _ = table("0/1", told=0.5)
    rng = np.random.default_rng(0)
    named = np.where(rng.random(N) < 0.93, y, (y + rng.integers(1, C, N)) % C)
    rows = np.column_stack([X[:, :6], np.eye(C)[named]]).astype(np.float32)
    s = CueSettings(columns=(SourceColumn((6, 7, 8)),))
    scaler, counts = Scaler.from_rows(rows), np.bincount(y)
    found = fit_searched(scaler.apply(rows), y, IDS, s, C, scaler, class_factors(counts))
    return found, Sample(rows, y, IDS, counts), s


def test_it_does_not_where_the_column_is_balanced_over_all_classes(monkeypatch: pytest.MonkeyPatch):
    found, sample, s = search_of_named_classes()
    assert found.state.class_column is not None
    sides = replace(found.state.class_column, class_sets=((0, 2), (TARGET,)))
    other = found._replace(class_set=replace(found.state, class_column=sides))
    monkeypatch.setattr(choice, "_is_better", lambda *_: True)
    state, _ = choice.choose_state(other, sample, s)
    assert state.class_column is not None
    assert not state.class_column.class_sets


@pytest.mark.parametrize("better", [True, False])
def test_values_that_stand_for_every_class_are_balanced_for_every_class(
    better: bool, monkeypatch: pytest.MonkeyPatch
):
    """The evidence suffices for one set of the classes alone, whose column says more."""
    found, sample, s = search_of_named_classes()
    assert found.column is not None
    sides = replace(found.column, class_sets=((0, 2), (TARGET,)))
    shut = replace(found.state, class_column=None, blend=0.0)
    alone = found._replace(state=shut, class_set=replace(found.state, class_column=sides))
    monkeypatch.setattr(choice, "_is_better", lambda *_: better)
    state, decision = choice.choose_state(alone, sample, s)
    assert state.class_column is not None
    assert decision.blend > 0
    assert bool(state.class_column.class_sets) != better


@pytest.mark.parametrize(
    ("own", "other", "better"),
    [(0.06, 0.0, True), (0.04, 0.0, False), (0.2, -0.01, False), (0.2, 0.1, True)],
)
def test_its_own_worst_group_has_to_rise_and_the_other_not_to_fall(
    own: float, other: float, better: bool, monkeypatch: pytest.MonkeyPatch
):
    rows = Sample(np.zeros((4, 1)), np.zeros(4, int), np.arange(4), np.array([4]))
    monkeypatch.setattr(choice, "broken_column", lambda state, *_: np.full(4, state.number))
    worst = {("before", 1): 0.3, ("after", 1): 0.3 + own}
    for number in (2, 5):  # the other shortcut alone, and both crossed
        worst |= {("before", number): 0.2, ("after", number): 0.2 + other}
    monkeypatch.setattr(choice, "worst_of_decision", lambda made, by, _: worst[made, by[0]])
    rival = SimpleNamespace(number=1, class_columns=())
    for class_columns in ((), ("column",)):
        search = SimpleNamespace(number=2, class_columns=class_columns)
        found = choice._is_better("after", "before", rival, search, rows)  # type: ignore[arg-type]
        assert found == better


def test_the_list_names_the_class():
    X, y, _, _ = table("0/1")
    state = fit(X, y, IDS)
    columns = FeatureColumns(tuple("abcdefg"), (1,) * 7)
    assert sets_record(state, ["lost", "late", "ok"]) == {"class_sets": [["late"], ["lost", "ok"]]}
    assert sets_record(replace(state, blend=0.0), ["lost", "late", "ok"]) == {}
    assert shortcut_names(state, columns) == ["g"]
    assert shortcut_names(replace(state, blend=0.0, leaning_column=state.class_column), columns) == ["g"]
    found = {**FOUND, "part": 1.0, "balanced_columns": ["hub"], "class_sets": [["late"], ["lost", "ok"]]}
    assert "The values of `hub` tell class late from the others, and" in verdict(found)
    found["class_sets"] = [["late", "lost"], ["ok", "new", "gone"]]
    assert "The values of `hub` tell the classes late and lost from the others, and" in verdict(found)
    found["class_sets"] = [["late"], ["ok", "new"], ["lost", "gone", "old"]]
    told = "tell class late; the classes ok and new; the classes lost, gone and old from each other, and"
    assert told in verdict(found)


def test_a_column_of_which_the_others_tell_the_side_is_not_followed():
    X, y, _, columns = table("0/1", honest=True)
    state = fit(X, y, IDS, CueSettings(columns=columns))
    assert state.class_column is None or 6 not in state.class_column.columns


def test_a_column_that_stands_for_each_class_is_read_by_class():
    rng = np.random.default_rng(0)
    X, y, _, _ = table("0/1", told=0.5)
    named = np.where(rng.random(N) < 0.93, y, (y + rng.integers(1, C, N)) % C)
    rows = np.column_stack([X[:, :6], np.eye(C)[named]]).astype(np.float32)
    state = fit(rows, y, IDS, CueSettings(columns=(SourceColumn((6, 7, 8)),)))
    assert state.class_column is not None
    assert state.class_column.level_side.tolist() == [C, 0, 1, 2]


def test_a_legitimate_column_is_not_followed():
    X, y, _, _ = table("0/1")
    state = fit(X, y, IDS, CueSettings(legitimate=frozenset({6})))
    assert state.class_column is None or 6 not in state.class_column.columns


def test_features_that_tell_nothing_are_no_shortcut_of_a_class():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 1000)
    X = np.eye(3)[rng.integers(0, 3, 1000)].astype(np.float32)
    assert fit(X, y, np.arange(1000), CueSettings(columns=(SourceColumn((0, 1, 2)),))).class_column is None


def table_of_sets(*, mirrored: float = 0.0, told: float = 0.93) -> tuple[Any, Any, Any]:
    """Features, five classes, and whether a column says that the class is 1 or 3; with its mirror, if any."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 5, N)
    belongs = np.isin(y, [1, 3])
    cue = np.where(rng.random(N) < told, belongs, ~belongs)
    X = rng.normal(size=(N, 6))
    X[np.arange(N), y] += 2.0
    columns = [X, cue]
    if mirrored:
        columns.append(np.where(rng.random(N) < mirrored, cue, ~cue))
    return np.column_stack(columns).astype(np.float32), y, cue


@pytest.mark.parametrize("mirrored", [0.0, 0.93])
def test_a_column_of_two_of_five_classes_is_found_and_balanced(mirrored: float):
    X, y, cue = table_of_sets(mirrored=mirrored)
    state = fit(X, y, IDS)
    assert state.class_column is not None
    assert state.class_column.columns == (6,)
    assert state.class_column.class_sets == ((0, 2, 4), (1, 3))
    w = weights(state, X, y, IDS)
    share = [np.average(cue[y == c], weights=w[y == c]) for c in range(5)]
    assert np.ptp(share) < 0.3  # in the rows it is .86


@pytest.mark.parametrize(
    ("level_of_class", "sets"),
    [
        ([0, 1, 1, 0], [0, 1, 1, 0]),
        ([2, 0, 1, 1, 2, 0], [0, 1, 2, 2, 0, 1]),
        ([0, 0, 1, 0], None),  # one class is looked at for every column
        ([0, 1, 2, 3], None),  # each class has a value of its own
    ],
)
def test_classes_that_are_alike_in_the_values_of_a_column_are_one_set(level_of_class: Any, sets: Any):
    rng, C = np.random.default_rng(0), len(level_of_class)
    y, L = np.arange(N) % C, max(level_of_class) + 1
    level = np.where(rng.random(N) < 0.9, np.array(level_of_class)[y], rng.integers(0, L, N))
    found = class_sets(level, L, y, C)
    assert (None if found is None else found.tolist()) == sets


def test_a_value_for_each_of_three_sets_of_six_classes_is_found_and_balanced():
    rng, set_of = np.random.default_rng(5), np.array([0, 1, 1, 2, 0, 2])
    y = rng.integers(0, 6, N)
    cue = np.where(rng.random(N) < 0.93, set_of[y], (set_of[y] + rng.integers(1, 3, N)) % 3)
    X = rng.normal(size=(N, 6))
    X[np.arange(N), y] += 2.0
    rows = np.column_stack([X, np.eye(3)[cue]]).astype(np.float32)
    state = fit(rows, y, IDS, CueSettings(columns=(SourceColumn((6, 7, 8)),)))
    assert state.class_column is not None
    assert state.class_column.class_sets == ((0, 4), (1, 2), (3, 5))
    w = weights(state, rows, y, IDS)
    share = np.array([np.bincount(cue[y == c], w[y == c]) / w[y == c].sum() for c in range(6)])
    assert np.ptp(share, axis=0).max() < 0.35  # in the rows it is .9


def test_sides_of_sets_are_those_of_the_labels_where_a_class_is_not_searched():
    X, y, _ = table_of_sets()
    y = np.where(y == 0, 0, y + 1)  # class 1 has no rows
    state = fit(X, y, IDS, class_counts=np.bincount(y), n_classes=6)
    assert state.class_column is not None
    assert state.class_column.class_sets == ((0, 3, 5), (2, 4))
