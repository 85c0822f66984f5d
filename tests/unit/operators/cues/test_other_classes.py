"""A balanced column is balanced in classes that are too small for the search as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from operators.cues import CueSettings, fit, weights
from operators.cues.decision.sample_decision import Sample
from operators.cues.learnt_classes import learnt_classes
from operators.cues.other_classes import MIN_SIDE_ROWS, name_in_other_classes, with_other_classes
from operators.cues.settings import Named
from operators.cues.sides.class_sides import independent_factors
from operators.cues.sides.joint_balance import balance_jointly
from operators.cues.sides.sides import Sides

N = 8000
IDS = np.arange(N)


def table(third: float = 0.02, apart: float = 0.08) -> tuple[Any, Any, Any]:
    """Features, labels of which the third class is rare, and a column that goes with all three classes.

    ``apart`` is the share of the rare class on the side where class 0 is.
    """
    rng = np.random.default_rng(4)
    y = np.where(rng.random(N) < third, 2, rng.integers(0, 2, N))
    cue = np.where(rng.random(N) < 0.94, y, 1 - y)
    cue = np.where(y == 2, rng.random(N) >= apart, cue)
    X = rng.normal(size=(N, 6))
    X[:, :3] += 1.1 * np.eye(3)[y]
    return np.column_stack([cue, X]).astype(np.float32), y, cue


def totals(w: Any, y: Any, cue: Any) -> Any:
    """Return the share of each class's weight that lies where the column is 1."""
    return np.array([w[(y == c) & (cue == 1)].sum() / w[y == c].sum() for c in range(3)])


def test_the_rare_class_gets_the_shares_of_the_others() -> None:
    X, y, cue = table()
    assert not learnt_classes(np.bincount(y))[2]
    for settings in (CueSettings(), CueSettings(spurious=(Named((0,)),))):
        state = fit(X, y, IDS, settings)
        assert state.blend >= 0.85
        share = totals(weights(state, X, y, IDS), y, cue)
        part = 0.02 if state.named is None else 0.15
        assert np.ptp(share) < part, share
        assert share[2] < 0.7


def test_where_the_cost_of_a_name_is_limited_the_classes_that_are_measured_are_balanced() -> None:
    X, y, _ = table()
    settings = CueSettings(spurious=(Named((0,)),))
    state, sample = fit(X, y, IDS, settings), Sample(X, y, IDS, np.bincount(y))
    assert state.named
    factor = state.named[0].factor.copy()
    factor[2] = 1.0
    learnt_alone = replace(state, named=(replace(state.named[0], factor=factor),))
    assert name_in_other_classes(learnt_alone, sample, replace(settings, max_named_cost=0.9)) is learnt_alone
    found = name_in_other_classes(learnt_alone, sample, settings).named
    assert found
    np.testing.assert_allclose(found[0].factor, state.named[0].factor)


def test_a_handful_of_rows_has_no_factor() -> None:
    X, y, cue = table(apart=0.0)
    few = np.flatnonzero(y == 2)[: MIN_SIDE_ROWS - 1]
    X[few, 0] = cue[few] = 0
    state = fit(X, y, IDS)
    assert state.blend == 1.0
    of_class = weights(state, X, y, IDS)[y == 2]
    assert np.ptp(of_class) < 1e-9


def test_factors_of_learnt_classes_stay_as_they_are() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [500, 500, 60])
    side = np.concatenate([rng.random(500) < 0.1, rng.random(500) < 0.9, np.arange(60) < 48]).astype(int)
    learnt = np.array([True, True, False])
    factor = independent_factors(side[:1000], y[:1000], 3)
    sides = Sides((0,), np.array([0.5], np.float32), np.array([0, 1]), factor)
    found = with_other_classes(sides, side[:, None].astype(np.float32), y, learnt)
    np.testing.assert_array_equal(found.factor[:2], factor[:2])
    share = np.bincount(side[y == 0], minlength=2) / 500
    target = share * factor[0, :2] / (share * factor[0, :2]).sum()
    rare = np.array([12, 48]) / 60
    np.testing.assert_allclose(rare * found.factor[2, :2], target, rtol=1e-6)


def test_a_value_of_the_rare_class_alone_keeps_its_share() -> None:
    """A reviewer's table: 84 of 136 rows of a rare class had weight 0, as no other class has their value."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [500, 500, 136])
    of_rare = np.repeat([0, 1, 2], [40, 12, 84])
    side = np.concatenate([rng.random(500) < 0.1, rng.random(500) < 0.9, of_rare]).astype(int)
    learnt = np.array([True, True, False])
    for stray in (0, 5):
        seen = side.copy()
        seen[:stray] = 2
        factor = independent_factors(np.where(seen == 2, 3, seen)[:1000], y[:1000], 3)
        level_side = np.array([0, 1, 3])
        sides = Sides((0,), np.array([0.5, 1.5], np.float32), level_side, factor)
        found = with_other_classes(sides, seen[:, None].astype(np.float32), y, learnt).factor[2]
        assert found[3] == 1.0
        assert found[1] > 1.5 > 1.0 > found[0] > 0.4
        assert abs(40 * found[0] + 12 * found[1] - 52.0) < 1e-9


def test_of_several_columns_the_rare_class_breaks_none() -> None:
    """A reviewer's tables: 31 to 38 rows of the rare class counted as rows that break, all of one weight."""
    X, y, _ = table()
    learnt = np.array([True, True, False])
    sides = Sides((0,), np.array([0.5], np.float32), np.array([0, 1]), independent_factors(X[:, 0] > 0, y, 3))
    sides = with_other_classes(sides, X, y, learnt)
    assert sides.breaks(X, y)[y == 2].any()
    rows = learnt[y]
    joint = balance_jointly((sides, replace(sides, columns=(1,))), X[rows], y[rows], 3)
    for one in joint:
        assert not one.breaks(X, y)[y == 2].any()
        assert (one.factor[2] == 1.0).all()
    assert joint[0].breaks(X, y)[y == 0].any()


def test_a_learnt_class_without_rows_in_the_sample_has_no_shares() -> None:
    y = np.repeat([0, 1, 2], [500, 500, 100])
    side = np.concatenate([np.arange(500) < 50, np.arange(500) < 450, np.arange(100) < 80]).astype(int)
    sides = Sides((0,), np.array([0.5], np.float32), np.array([0, 1]), independent_factors(side, y, 4))
    found = with_other_classes(
        sides, side[:, None].astype(np.float32), y, np.array([True, True, False, True])
    )
    assert np.isfinite(found.factor).all()
    assert found.factor[2, 0] > 1.0


def test_counts_of_more_classes_than_have_rows() -> None:
    X, y, _ = table()
    counts = np.append(np.bincount(y), 40)
    state = fit(X, y, IDS, class_counts=counts)
    assert len(state.class_factor) == 4
    assert np.isfinite(weights(state, X, y, IDS)).all()
