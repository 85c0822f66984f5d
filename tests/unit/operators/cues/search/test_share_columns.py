"""Class shares among the features: other columns tell a shortcut from an entity that decides the label."""

from dataclasses import replace

import numpy as np
import pytest

from operators.cues import CueSettings, fit
from operators.cues.decision.decision import is_worth_its_cost
from operators.cues.models.trade_off import TradeOffPoint
from operators.cues.named.references import FeatureColumns
from operators.cues.search.independence import independence, rarer_side
from operators.cues.search.share_columns import ADDITIVE, EVENNESS, RATIO, class_shares_lead, support
from operators.cues.settings import SourceColumn
from operators.encoded_features import Output

N, CATEGORIES = 6000, 120
COLUMN = SourceColumn(shares=(0,), features=(0,))


def shares_of(category, y):
    """Return the share of class 1 among the other rows of each row's category, smoothed by five rows."""
    rows, ones = np.bincount(category), np.bincount(category, y)
    return ((ones[category] - y + 5 * y.mean()) / (rows[category] - 1 + 5)).astype(np.float32)


def shortcut(seed, flips=0.0):
    """Categories that lie in one class for 94 % of the rows, beside features that tell the true class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, N)
    side = np.where(rng.random(N) < 0.94, y, 1 - y)
    category = 2 * rng.integers(0, CATEGORIES // 2, N) + side
    core = rng.normal(size=(N, 6)) + 0.55 * (2 * y[:, None] - 1)
    label = np.where(rng.random(N) < flips, 1 - y, y)
    return np.column_stack([shares_of(category, label), core]).astype(np.float32), label, side > 0


def entity(seed):
    """Categories with a level of their own, which the label and one more feature follow."""
    rng = np.random.default_rng(seed)
    category = rng.integers(0, CATEGORIES, N)
    level = (2.5 * rng.normal(size=CATEGORIES))[category]
    y = (level + rng.normal(size=N) > 0).astype(int)
    core = np.column_stack([level + 2.0 * rng.normal(size=N), rng.normal(size=(N, 5))])
    return np.column_stack([shares_of(category, y), core]).astype(np.float32), y, level > 0


def judged(X, y, side):
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return independence(rarer_side(side, y), Z, y, np.arange(N), COLUMN.features, seed=0, l2=1e-3)


@pytest.mark.parametrize("flips", [0.0, 0.02])
def test_the_other_columns_judge_rows_against_a_shortcut_as_well_but_for_wrong_labels(flips):
    X, y, side = shortcut(0, flips)
    wrong = flips * 0.94 / (flips * 0.94 + (1 - flips) * 0.06)  # of the rows that contradict their category
    found = judged(X, y, side)
    assert found.ratio == pytest.approx(1 - 2 * wrong, abs=0.15)
    assert found.evenness == pytest.approx(1, abs=0.2)
    assert support(found) == 1.0


def test_rows_that_contradict_an_entity_are_hard_for_a_column_that_follows_it_too():
    assert judged(*entity(1)).ratio < RATIO[0]


def test_rows_that_contradict_an_entity_are_easy_where_the_label_is_a_sum():
    rng = np.random.default_rng(2)
    level, other = 3.0 * rng.normal(size=N), rng.normal(size=N)
    y = (level + other > 0).astype(int)
    assert judged(np.column_stack([level, other]), y, level > 0).ratio > ADDITIVE[0]


def test_without_rows_on_both_sides_nothing_is_supported():
    X, y, _ = shortcut(3)
    assert support(judged(X, y, np.zeros(N, bool))) == 0.0


def test_rows_that_contradict_an_entity_lie_near_the_border_of_the_classes():
    rng = np.random.default_rng(6)
    level, shown = rng.normal(size=N), rng.normal(size=(N, 1))
    size = level + 0.7 * rng.normal(size=N)
    y = (size > 0).astype(int)
    found = judged(np.column_stack([level, size[:, None] + 0.5 * shown]), y, level > 0)
    assert found.ratio > RATIO[1]
    assert found.evenness < EVENNESS[0]


@pytest.mark.parametrize(("made", "supported"), [(shortcut(6, 0.02), True), (entity(5), False)])
def test_class_shares_of_an_entity_open_no_gate_and_those_of_a_shortcut_do(made, supported):
    X, y, _ = made
    plain = CueSettings(seed=0)
    free, found = (
        fit(X, y, np.arange(N), s, n_classes=2) for s in (plain, replace(plain, columns=(COLUMN,)))
    )
    assert free.evidence.share_support == 1.0
    ordinary = replace(free.evidence, slice_strength=0.0, slice_support=1.0, column_strength=0.0)
    assert ordinary.gate() > 0.5, "this table would open the gate but for the judgement of the other columns"
    assert found.evidence.share_support == supported
    assert found.blend == (free.blend if supported else 0.0)


def test_class_shares_that_hardly_raise_the_worst_group_are_not_followed():
    X, y, _ = shortcut(4)
    ids = np.arange(N)
    state = fit(X, y, ids, CueSettings(columns=(COLUMN,)), n_classes=2)
    assert state.evidence.gate() > 0.5
    assert state.blend == 0.0
    assert class_shares_lead(state.slices, CueSettings(columns=(COLUMN,)))
    assert not class_shares_lead(state.slices, CueSettings())


@pytest.mark.parametrize(
    ("worst", "mean", "worth"), [(0.6, 0.85, True), (0.4, 0.85, False), (0.6, 0.55, False)]
)
def test_an_entity_is_worth_a_rise_that_is_clear_and_larger_than_its_cost(worst, mean, worth):
    points = tuple(
        TradeOffPoint(strength, m, m, m, w, w, w, (0,), 100, 1.0)
        for strength, m, w in ((0.0, 0.9, 0.3), (1.0, 0.9, 0.3), (2.0, mean, worst))
    )
    assert is_worth_its_cost(points, 2.0) == worth


def test_columns_with_class_shares_are_known_by_the_roles_of_their_features():
    outputs = tuple(
        Output(source=source, label=label, kind=kind, role=role)
        for source, label, kind, role in (
            ("age", "age", "numeric", "value"),
            ("shop", "shop = a", "categorical", "category"),
            ("shop", "shop: share of yes", "categorical", "target"),
            ("town", "town = x", "categorical", "category"),
        )
    )
    columns = FeatureColumns(("age", "shop", "town"), (1, 2, 1), outputs)
    assert columns.source_columns() == (SourceColumn(shares=(2,), features=(1, 2)),)
    assert FeatureColumns(("x",), (3,)).source_columns() == ()
