"""Shares of right labels among the rows that break a column, and what weights and figures make of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from operators.arrays import Floats, Integers
from operators.cues import CueSettings, fit, weights
from operators.cues.models.linear import Scaler
from operators.cues.row_weights import breaks, right_label
from operators.cues.search.fit_right_labels import best_slope, fit_right_labels, right_share
from operators.cues.search.wrong_labels import unseen_features
from operators.cues.settings import Named
from operators.cues.sides.class_sides import independent_factors
from operators.cues.sides.right_labels import RightLabels, right_probability
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState

N = 12_000


def table(
    flips: float, *, classes: int = 2, told: float = 0.92, lean: float = 0.0
) -> tuple[Floats, Integers, Integers, Integers]:
    """Return features, labels, true labels and ids; feature 0 tells the class of most rows.

    ``lean`` moves the others of the rows that break it towards the class that it names.
    """
    rng = np.random.default_rng(7)
    true = rng.integers(0, classes, N)
    cue = np.where(rng.random(N) < told, true, (true + rng.integers(1, classes, N)) % classes)
    centres = 1.2 * np.eye(classes, 5)
    X = (1 - lean) * centres[true] + lean * centres[cue] + rng.normal(size=(N, 5))
    X = np.column_stack([2.0 * cue + 0.1 * rng.normal(size=N), X]).astype(np.float32)
    y = np.where(rng.random(N) < flips, (true + rng.integers(1, classes, N)) % classes, true)
    return X, y, true, np.arange(N, dtype=np.uint64)


def sides_of_cue(Z: Floats, y: Integers, classes: int) -> Sides:
    middle = np.linspace(Z[:, 0].min(), Z[:, 0].max(), 2 * classes - 1)[1::2].astype(np.float32)
    level_side = np.arange(classes)
    side = np.searchsorted(middle, Z[:, 0])
    return Sides((0,), middle, level_side, independent_factors(side, y, classes))


def judged(classes: int = 2) -> tuple[RightLabels, tuple[Sides], Floats, Integers, Integers]:
    """Return what is found with 6 % wrong labels, the column, standardised rows, labels and true labels."""
    X, y, true, ids = table(0.06, classes=classes)
    Z = Scaler.from_rows(X).apply(X)
    columns = (sides_of_cue(Z, y, classes),)
    found = fit_right_labels(columns, Z, y, ids, CueSettings(), classes)
    assert found is not None
    return found, columns, Z, y, true


@pytest.mark.parametrize("classes", [2, 3])
def test_the_share_of_right_labels_is_found(classes: int) -> None:
    found, columns, Z, y, true = judged(classes)
    broken, right = columns[0].breaks(Z, y), y == true
    p = found.probability(columns, Z, y)
    assert (p[~broken] == 1.0).all()
    assert p[broken].mean() == pytest.approx(right[broken].mean(), abs=0.05)
    assert p[broken & right].mean() > p[broken & ~right].mean() + 0.3
    wrong = found.wrong_by_class()
    assert sorted(wrong) == list(range(classes))
    for c, (rows, expected) in wrong.items():
        of_class = broken & (y == c)
        assert rows == of_class.sum()
        assert expected / rows == pytest.approx((~right)[of_class].mean(), abs=0.08)


def test_a_cell_keeps_its_weight() -> None:
    found, columns, Z, y, _ = judged()
    factor = found.factor(columns, Z, y)
    for c in (0, 1):
        assert factor[columns[0].breaks(Z, y) & (y == c)].mean() == pytest.approx(1.0)


def test_a_row_does_not_depend_on_its_batch() -> None:
    found, columns, Z, y, _ = judged()
    whole = found.factor(columns, Z, y)
    parts = [found.factor(columns, Z[k : k + 7], y[k : k + 7]) for k in range(0, 700, 7)]
    assert np.array_equal(np.concatenate(parts), whole[:700])


@pytest.mark.parametrize(("flips", "lean"), [(0.0, 0.0), (0.0, 0.6)])
def test_hard_rows_with_right_labels_keep_their_weight(flips: float, lean: float) -> None:
    """Rows that break a column whose others go along with it look like another class, and are right."""
    X, y, _, ids = table(flips, lean=lean)
    Z = Scaler.from_rows(X).apply(X)
    assert fit_right_labels((sides_of_cue(Z, y, 2),), Z, y, ids, CueSettings(), 2) is None


def test_few_rows_say_nothing() -> None:
    X, y, _, ids = table(0.06)
    Z = Scaler.from_rows(X[:60]).apply(X[:60])
    assert fit_right_labels((sides_of_cue(Z, y[:60], 2),), Z, y[:60], ids[:60], CueSettings(), 2) is None
    assert fit_right_labels((), Z, y[:60], ids[:60], CueSettings(), 2) is None


def test_many_columns_of_many_classes_need_no_table_of_all_combinations() -> None:
    """Four columns of 100 classes have 10^8 combinations of sides."""
    rng = np.random.default_rng(0)
    C, n = 100, 12_000
    y = rng.integers(0, C, n)
    Z = np.column_stack([np.where(rng.random(n) < 0.5, y, rng.integers(0, C, n)) for _ in range(4)])
    Z = Z.astype(np.float32)
    cuts = np.arange(0.5, C - 1).astype(np.float32)
    columns = [
        Sides((k,), cuts, np.arange(C), independent_factors(Z[:, k].astype(int), y, C)) for k in range(4)
    ]
    fit_right_labels(columns, Z, y, np.arange(n, dtype=np.uint64), CueSettings(), C)


def test_weights_go_to_right_labels(fitted: tuple[CueState, Floats, Integers, Integers, Integers]) -> None:
    state, X, y, true, ids = fitted
    assert state.blend > 0
    assert state.right_labels is not None
    w, broken = weights(state, X, y, ids), breaks(state, X, y, ids)
    wrong = w[y != true].sum() / w.sum()
    without = weights(replace(state, judged_labels=()), X, y, ids)
    assert wrong < 0.6 * without[y != true].sum() / without.sum()
    assert w[broken & (y == true)].mean() > 2 * w[broken & (y != true)].mean()


def test_figures_count_rows_by_whether_their_label_is_right(
    fitted: tuple[CueState, Floats, Integers, Integers, Integers],
) -> None:
    """The worst group of the curve is near that of the true labels, half of whose rows have wrong ones."""
    state, X, y, _, ids = fitted
    p = right_label(state, X, y)
    assert p is not None
    worst = max(point.worst for point in state.points if point.strength > 1.5)
    assert worst > 0.65
    broken = breaks(state, X, y, ids)
    rows = next(point.rows for point in state.points if point.strength > 1.5)
    assert rows < np.count_nonzero(broken & (y == 0))


@pytest.fixture(scope="module", params=["found", "named", "beside a legitimate column"])
def fitted(request: pytest.FixtureRequest) -> tuple[CueState, Floats, Integers, Integers, Integers]:
    X, y, true, ids = table(0.06)
    spurious = (Named((0,)),) if request.param == "named" else ()
    legitimate = frozenset({1} if request.param.startswith("beside") else ())
    settings = CueSettings(spurious=spurious, legitimate=legitimate)
    return fit(X, y, ids, settings), X, y, true, ids


def test_a_mixture_of_two_known_densities() -> None:
    rng = np.random.default_rng(1)
    x = np.where(rng.random(4000) < 0.3, 1.0, -1.0) + rng.normal(size=4000)
    right, wrong = np.exp(-((x - 1) ** 2) / 2), np.exp(-((x + 1) ** 2) / 2)
    assert right_share(right, wrong) == pytest.approx(0.3, abs=0.03)
    assert right_share(right[x > 1], wrong[x > 1]) == 1.0
    assert right_share(np.ones(50), np.ones(50)) == 1.0  # nothing tells them apart


def test_the_slope_of_logits_that_are_too_sure() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=20_000)
    y = (rng.random(20_000) < 1 / (1 + np.exp(-x))).astype(int)
    logits = np.column_stack([np.zeros(20_000), 4 * x])
    assert best_slope(logits, y, np.ones(20_000)) == pytest.approx(0.25, abs=0.02)


def test_bayes_rule_by_hand() -> None:
    shares, p = np.array([[0.2, 0.8]]), np.array([[0.9, 0.1]])
    assert right_probability(shares, p, np.array([0]))[0] == pytest.approx(0.18 / (0.18 + 0.08))


def test_a_slice_that_is_named_leaves_what_is_known_of_the_columns_beside_it() -> None:
    X, y, true, ids = table(0.06, classes=3)
    rng = np.random.default_rng(3)
    other = np.where(rng.random(N) < 0.8, true == 0, rng.random(N) < 0.5)
    X = np.column_stack([X, other]).astype(np.float32)
    state = fit(X, y, ids, CueSettings(spurious=(Named((0,), cut=1.0),)))
    assert state.searched_part > 0
    assert state.labels_of(state.class_columns) is not None
    w, plain = (weights(one, X, y, ids) for one in (state, replace(state, judged_labels=())))
    broken = np.rint(X[:, 0] / 2) != y
    wrong, of_plain = (v[broken & (y != true)].sum() / v[broken].sum() for v in (w, plain))
    assert wrong < 0.8 * of_plain


def test_another_cut_of_the_column_is_another_column() -> None:
    found, columns, *_ = judged()
    assert found.is_of(columns)
    assert not found.is_of((replace(columns[0], cuts=columns[0].cuts + 0.5),))
    assert not found.is_of((*columns, *columns))


@pytest.mark.parametrize("flips", [0.0, 0.06])
def test_a_mirror_of_the_column_does_not_judge_its_labels(flips: float) -> None:
    X, y, _, ids = table(flips)
    mirror = np.where(np.random.default_rng(1).random(N) < 0.95, X[:, 0] > 1, X[:, 0] <= 1)
    Z = Scaler.from_rows(np.column_stack([X, mirror])).apply(np.column_stack([X, mirror]).astype(np.float32))
    columns = (sides_of_cue(Z, y, 2),)
    assert unseen_features(columns, Z, y, CueSettings()) == [0, 6]
    found, alone = (fit_right_labels(columns, rows, y, ids, CueSettings(), 2) for rows in (Z, Z[:, :6]))
    assert (found is None) == (alone is None) == (not flips)
    if found is not None and alone is not None:
        assert found.shares == pytest.approx(alone.shares, abs=1e-6)


def test_columns_that_are_all_there_is_are_left_out_without_their_mirrors() -> None:
    X, y, _, _ = table(0.0)
    Z = Scaler.from_rows(X).apply(X)[:, [0, 0]]
    Z[:, 1] = np.sign(Z[:, 0]) + 0.4 * np.random.default_rng(0).normal(size=N)
    assert unseen_features((sides_of_cue(Z, y, 2),), Z, y, CueSettings()) == [0]
