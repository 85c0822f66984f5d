"""Expected gain of full robust weights: the measurements, the trees, and what follows from them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operators.class_shares import class_factors
from operators.cues import CueSettings, fit, fit_searched, weights
from operators.cues.decision import full_weights
from operators.cues.decision.decision import Decision
from operators.cues.decision.expected_gain import (
    FROM_TRIALS,
    LEAST,
    LEAST_OF_MANY,
    NAMES,
    STORED,
    STORED_OF_MANY,
    Trees,
    expected_gain,
    measurements,
    stored_trees,
)
from operators.cues.decision.sample_decision import Sample
from operators.cues.models.trade_off import Trials
from operators.cues.output.verdict import verdict
from operators.cues.search.evidence import Evidence
from operators.cues.sides.sides import Sides
from operators.cues.state import class_balance_only
from tests.paper.real.expected_gain import family, fitted, stored
from tests.unit.operators.cues.output.test_cue_report import FOUND

SAFE = LEAST["safe"]
TRIED = (0.0, 0.5, 1.0, 1.5, 2.0)
EVIDENCE = Evidence(0.1, 0.2, 0.3, 0.4, 0.05, 0.06, 0.07, 0.08)


def trials_of(*right: Any) -> Trials:
    """Return trials of the strengths 0, .5, 1, 1.5 and 2 with these right rows."""
    rows = np.array(right, bool)
    return Trials(TRIED, rows, np.ones(rows.shape[1]), (1.0, 0.9, 0.8, 0.5, 0.25))


@pytest.fixture
def split_rows() -> tuple[Any, Any, Any]:
    """400 rows: 150 of each class keep to the shortcut, 50 break it; 90 % and 20 % of them are right, then 80
    % and 60 %."""
    y = np.repeat([0, 1], 200)
    broken = np.tile(np.arange(200) >= 150, 2)
    share = np.tile(np.r_[(np.arange(150) + 0.5) / 150, (np.arange(50) + 0.5) / 50], 2)
    before = share < np.where(broken, 0.2, 0.9)
    half = share < np.where(broken, 0.4, 0.86)
    after = share < np.where(broken, 0.6, 0.8)
    return y, broken, trials_of(before, before, before, half, after)


def test_the_measurements_are_those_of_the_definition(split_rows: Any) -> None:
    y, broken, trials = split_rows
    found = dict(zip(NAMES, measurements(EVIDENCE, trials, y, broken, of_column=True), strict=True))
    assert found["agreement"] == 0.1
    assert found["column_share_with_class"] == 1.0
    expected = {
        "of_column": 1.0,
        "baseline": 0.2,
        "rise": 0.4,
        "rise_over_class_balance": 0.4,
        "rise_by_half": 0.2,
        "rise_of_class": (0.8 * 150 + 0.6 * 50) / 200 - (0.9 * 150 + 0.2 * 50) / 200,
        "change_of_mean": 0.025,
        "rise_of_broken": 0.4,
        "rise_of_broken_less_errors": 0.4 - 2.0 * np.sqrt(2 * 0.24 / 50) / 2,
        "exchange_with_class_balance": 40 / 30,
        "exchange_with_unweighted": 40 / 30,
        "exchange_by_half": 20 / 12,
        "broken_share": 0.25,
        "broken_rows": np.log10(51),
        "effective_share": 0.25,
        "change_of_others": -0.1,
        "accuracy_of_broken": 0.6,
        "gap": 0.2,
    }
    assert tuple(expected) == FROM_TRIALS
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_rows_that_none_breaks_are_measured_too(split_rows: Any) -> None:
    y, _, trials = split_rows
    found = measurements(EVIDENCE, trials, y, np.zeros(400, bool), of_column=False)
    assert np.isfinite(found).all()
    assert expected_gain(EVIDENCE, trials, y, np.zeros(400, bool), of_column=False) is not None


def test_nothing_is_expected_where_full_weights_were_not_tried(split_rows: Any) -> None:
    y, broken, trials = split_rows
    short = Trials(TRIED[:3], trials.right[:3], trials.mass, trials.effective_share[:3])
    assert expected_gain(EVIDENCE, short, y, broken, of_column=False) is None


def test_the_trees_predict_what_scikit_learn_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, len(NAMES)))
    model = fitted(x, 0.2 * x[:, 0] * (x[:, 1] > 0) + 0.05 * rng.normal(size=300))
    (tmp_path / "trees.json").write_text(json.dumps(stored(model)), "utf-8")
    trees = Trees.load(tmp_path / "trees.json")
    fresh = rng.normal(size=(200, len(NAMES)))
    ours = np.array([trees.predict(row) for row in fresh])
    assert np.allclose(ours, model.predict(fresh), atol=1e-5)
    assert np.ptp(ours) > 0.1


def test_the_stored_trees_tell_a_shortcut_from_an_honest_table(split_rows: Any) -> None:
    y, broken, trials = split_rows
    strong = Evidence(0.8, 0.6, 0.97, 0.7, 0.05, 0.03, 0.3, 0.2, exchange=0.4)
    weak = Evidence(0.3, 0.2, 0.7, 0.1, 0.35, 0.2, -0.2, -0.1, exchange=0.02)
    worse = trials_of(*trials.right[[0, 1, 4, 3, 2]])
    high, low = (
        expected_gain(evidence, found, y, broken, of_column=False)
        for evidence, found in ((strong, trials), (weak, worse))
    )
    assert high > 0.05
    assert low < 0.0


@pytest.mark.parametrize("path", [STORED, STORED_OF_MANY])
def test_the_stored_trees_are_of_these_measurements(path: Path, tmp_path: Path) -> None:
    assert stored_trees(path).names == NAMES
    other = json.loads(path.read_text("utf-8"))
    other["names"][0] = "another"
    (tmp_path / "other.json").write_text(json.dumps(other), "utf-8")
    with pytest.raises(ValueError, match="was fitted to other measurements"):
        stored_trees(tmp_path / "other.json")


def test_tables_of_more_classes_have_trees_of_their_own(split_rows: Any) -> None:
    y, broken, trials = split_rows
    label = y + np.where(np.arange(400) % 2, 1, 0)
    found = expected_gain(EVIDENCE, trials, label, broken, of_column=True)
    measured = measurements(EVIDENCE, trials, label, broken, of_column=True)
    assert found == stored_trees(STORED_OF_MANY).predict(measured)
    assert found != stored_trees(STORED).predict(measured)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("diamonds with a column", "planted"), ("ggplot2/diamonds, 3", "many_held_back")),
        (("AER/Fertility2, 1", "many_held_back"), ("Fertility, more children:black", "fresh")),
        (("diseases, cases:measles", "entities_fresh"), ("dslabs/us_contagious_diseases, 1", "many")),
        (("odd, 50 components, corner", "images"), ("digits prime, background, 4%, cue, 0", "pixels")),
    ],
)
def test_problems_of_one_source_table_are_one_family(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert family(*first) == family(*second)
    assert family("1", "drawn") != family("2", "drawn")
    assert family("adult with a column", "planted") != family(*second)


@pytest.fixture
def table() -> tuple[Any, Any, Any]:
    """1,500 rows of two classes without a shortcut."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 1500)
    X = rng.normal(size=(1500, 5)).astype(np.float32)
    X[:, :3] += (2 * y[:, None] - 1) * 0.8
    return X, y, np.arange(1500)


def force(monkeypatch: pytest.MonkeyPatch, gain: float, *, better: bool = True) -> list[bool]:
    """Let every way have an expected gain, and be better on held-out rows; return which ways were tried."""
    asked: list[bool] = []

    def expected(*_: Any, of_column: bool) -> float:
        asked.append(of_column)
        return gain - 0.01 * of_column

    monkeypatch.setattr(full_weights, "expected_gain", expected)
    monkeypatch.setattr("operators.cues.decision.decision.beats_baseline", lambda *_: better)
    return asked


def test_a_large_expected_gain_opens_what_the_gate_leaves_shut(table: Any, monkeypatch: Any) -> None:
    asked = force(monkeypatch, SAFE + 0.1)
    state = fit(*table)
    assert asked[0] is False, "twins and slices are tried first"
    assert (state.blend, state.class_strength, state.class_column) == (1.0, 1.0, None)
    assert state.expected_gain == pytest.approx(SAFE + 0.1)
    assert state.published_strength in {point.strength for point in state.points}
    assert np.ptp(weights(state, *table)) > 1.0


@pytest.mark.parametrize(("gain", "better"), [(SAFE, True), (SAFE + 0.1, False)])
def test_a_small_or_refuted_gain_opens_nothing(
    table: Any, monkeypatch: Any, gain: float, better: bool
) -> None:
    force(monkeypatch, gain, better=better)
    state = fit(*table)
    assert (state.blend, state.expected_gain) == (0.0, 0.0)
    assert np.allclose(weights(state, *table), class_factors(np.bincount(table[1]))[table[1]])


def test_bold_asks_for_less(table: Any, monkeypatch: Any) -> None:
    force(monkeypatch, SAFE)
    assert fit(*table).blend == 0.0
    assert fit(*table, CueSettings(setting="bold")).blend == 1.0
    force(monkeypatch, LEAST["bold"])
    assert fit(*table, CueSettings(setting="bold")).blend == 0.0


@pytest.fixture
def three_classes() -> tuple[Any, Any, Any]:
    """3,000 rows of three classes, 90 % of which a column of three values tells."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 3000)
    told = np.where(rng.random(3000) < 0.9, y, rng.integers(0, 3, 3000))
    X = rng.normal(size=(3000, 6)).astype(np.float32)
    X[:, :3] += 0.8 * np.eye(3)[y]
    X[:, 5] = 2.0 * told + 0.1 * X[:, 5]
    return X, y, np.arange(3000)


def shut_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the evidence of every search suffice for nothing."""
    for gate in ("searched_gate", "column_gate", "own_column_gate", "column_of_two_gate"):
        monkeypatch.setattr(Evidence, gate, lambda _: 0.0)


def test_of_more_classes_the_column_alone_is_tried(three_classes: Any, monkeypatch: Any) -> None:
    asked = force(monkeypatch, LEAST_OF_MANY["safe"] + 0.02)
    shut_the_gate(monkeypatch)
    state = fit(*three_classes)
    assert asked == [True]
    assert state.class_column is not None
    assert state.class_column.columns == (5,)
    assert state.expected_gain == pytest.approx(LEAST_OF_MANY["safe"] + 0.01)
    assert state.blend > 0.0
    assert np.ptp(weights(state, *three_classes)) > 1.0


def test_of_more_classes_a_smaller_gain_suffices(three_classes: Any, monkeypatch: Any) -> None:
    shut_the_gate(monkeypatch)
    for setting, least in LEAST_OF_MANY.items():
        assert least < LEAST[setting]
        settings = CueSettings(setting=setting)  # type: ignore[arg-type]
        force(monkeypatch, least + 0.01)
        assert fit(*three_classes, settings).blend == 0.0
        force(monkeypatch, least + 0.0101)
        assert fit(*three_classes, settings).blend > 0.0


def test_a_column_that_stands_for_no_class_is_not_followed(monkeypatch: Any) -> None:
    """Its factor is the same for all rows of a class, so that there is nothing to follow."""
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(900, 2)).astype(np.float32), rng.integers(0, 3, 900)
    flat = Sides((0,), np.empty(0, np.float32), np.array([3, 3]), np.ones((3, 4)))
    sample = Sample(X, y, np.arange(900), np.bincount(y))
    state = fit(X, y, np.arange(900))
    kept = Decision(1.0, 0.0, ())
    force(monkeypatch, 0.5)
    assert full_weights.follow_in_full(state, flat, kept, sample, CueSettings()) == (state, kept)


def test_a_rare_third_class_does_not_keep_two_from_being_weighed(table: Any, monkeypatch: Any) -> None:
    force(monkeypatch, SAFE + 0.1)
    X, y, ids = table
    label = np.where(np.arange(1500) < 6, 2, y)
    assert fit(X, label, ids).blend == 1.0


def test_an_open_gate_is_not_asked_again(cue_problem: Any, monkeypatch: Any) -> None:
    asked = force(monkeypatch, 0.5)
    X, label, _, _, ids = cue_problem
    state = fit(X, label, ids)
    assert (state.blend, state.expected_gain) == (1.0, 0.0)
    assert not asked


def test_a_search_that_decides_nothing_keeps_its_decision() -> None:
    kept = Decision(1.0, 0.0, ())
    state = class_balance_only(None, np.ones(2), CueSettings(), "")  # type: ignore[arg-type]
    rows = Sample(np.zeros((4, 1), np.float32), np.array([0, 1, 0, 1]), np.arange(4), np.array([2, 2]))
    found = full_weights.follow_in_full(state, None, kept, rows, CueSettings())
    assert found == (state, kept)


def test_the_verdict_says_by_what_the_weights_were_opened() -> None:
    shown = {**FOUND, "part": 1.0, "expected_gain": 0.214}
    said = verdict(shown)
    assert "the accuracy of the worst group rose by about 0.21: the weights follow the robust ones" in said
    assert "The strongest suspect is `PAY_0 > 1.5`: if it is honest signal, name `PAY_0` under" in said
    assert "The strongest suspect" not in verdict({**shown, "suspects": []})
    column = verdict({**shown, "balanced_columns": ["site"]})
    assert "The values of `site` go with the classes. The evidence for a shortcut does not" in column
    assert "which rows are exceptions" not in column


@pytest.mark.parametrize(
    ("n_learnt", "gate", "blend", "expected"),
    [
        (2, 1.0, 0.9, True),
        (2, 1.0, 0.8, False),
        (3, 1.0, 0.75, True),
        (3, 0.5, 0.75, False),
        (3, 0.5, 0.9, True),
        (3, 1.0, 0.0, False),
    ],
)
def test_the_gate_is_open_by_the_evidence_ahead_of_the_part(
    n_learnt: int, gate: float, blend: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than two classes a part is kept back for wrong labels, which the trees do not give back."""
    monkeypatch.setattr(Evidence, "gate", lambda _: gate)
    state = class_balance_only(None, np.ones(3), CueSettings(), "")  # type: ignore[arg-type]
    search = replace(state, evidence=EVIDENCE, n_learnt=n_learnt)
    assert full_weights.is_open(search, Decision(1.0, blend, ())) is expected


@pytest.mark.parametrize("rival", [0.95, 0.5])
def test_a_column_of_two_classes_beside_an_equal_one_is_not_tried(rival: float, monkeypatch: Any) -> None:
    rng = np.random.default_rng(8)
    y = rng.integers(0, 2, 3000)
    X = rng.normal(size=(3000, 6)).astype(np.float32)
    X[:, 0] += 0.8 * y
    X[:, 5] = np.where(rng.random(3000) < 0.9, y, 1 - y)
    judged = fit_searched.judge_strongest_slice
    monkeypatch.setattr(
        fit_searched, "judge_strongest_slice", lambda *given: replace(judged(*given), rival=rival)
    )
    asked = force(monkeypatch, 0.0)
    shut_the_gate(monkeypatch)
    fit(X, y, np.arange(3000))
    assert asked == ([False] if rival > 0.9 else [False, True])
